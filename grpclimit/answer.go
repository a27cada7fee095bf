package grpclimit

import (
	"context"
	"errors"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/internal/headers"
)

// retryAway is what a caller is told to wait where the store or this process is the
// reason: about as long as a breaker stays open.
const retryAway = time.Second

const retryAfter = "retry-after"

// encode sets the limit headers as metadata, all of the tightest entry. Where no
// entry has numbers there is nothing true to say, but a denial may know its wait.
func (g *gate) encode(ctx context.Context, p *pass) {
	v := &p.verdict
	p.fields.Reset()
	if v.Tightest < 0 {
		g.style.EncodeRetry(&p.fields, headers.Facts{Denied: !v.Allow, RetryMS: v.RetryMS})
	} else {
		e := &v.Entries[v.Tightest]
		g.style.Encode(&p.fields, headers.Facts{
			Rule: e.Rule, Limit: e.Limit, WindowMS: e.WindowMS,
			Remaining: e.Remaining, ResetMS: e.ResetMS,
			NowMS: v.NowMS, Denied: !v.Allow, RetryMS: v.RetryMS,
		})
	}
	if p.fields.Len() == 0 {
		return
	}
	md := make(metadata.MD, p.fields.Len())
	for name, value := range p.fields.All() {
		md.Append(name, string(value)) // in lower case
	}
	// These fail only where another interceptor has sent the headers before the
	// handler ran; the answer stands without them.
	_ = grpc.SetHeader(ctx, md)
	if wait := md[retryAfter]; wait != nil {
		// Clients of failed calls look at trailers.
		_ = grpc.SetTrailer(ctx, metadata.MD{retryAfter: wait})
	}
}

// denial is the error of a denied call. RetryInfo says how long to wait, to the
// millisecond, or as retry-after does where that is spread; none where no waiting
// helps.
func (g *gate) denial(p *pass) error {
	s := status.New(codes.ResourceExhausted, "rate_limit_exceeded: denied by rule "+p.verdict.DeniedBy)
	if p.verdict.RetryMS <= 0 {
		return s.Err()
	}
	wait := time.Duration(p.verdict.RetryMS) * time.Millisecond
	if g.style.Jitter > 0 {
		wait = max(wait, told(&p.fields))
	}
	return withRetry(s, wait)
}

// told is the wait that retry-after says.
func told(fields *headers.Fields) time.Duration {
	for name, value := range fields.All() {
		if n, err := strconv.ParseInt(string(value), 10, 64); name == "Retry-After" && err == nil {
			return time.Duration(n) * time.Second
		}
	}
	return 0
}

// refusal is the error of a call that has no verdict. Causes are not shown: they may
// name hosts.
func refusal(err error) error {
	if e, ok := errors.AsType[*identity.SourceError](err); ok {
		return status.Error(codes.InvalidArgument, string(e.Fault)+": "+e.Error())
	}
	e, ok := errors.AsType[*tallygate.Error](err)
	if !ok {
		return status.Error(codes.Internal, "internal: unexpected error")
	}
	text := string(e.Code) + ": " + e.Message
	switch e.Code {
	case tallygate.CodeStoreTimeout, tallygate.CodeStoreUnavailable:
		return withRetry(status.New(codes.Unavailable, text), retryAway)
	case tallygate.CodeOverloaded: // of a Limiter that is not Tallygate's own
		return withRetry(status.New(codes.Unavailable, text), retryAway)
	case tallygate.CodeClosed:
		return status.Error(codes.Unavailable, text)
	case tallygate.CodeCanceled:
		return status.Error(codes.Canceled, text)
	case tallygate.CodeMissingIdentity, tallygate.CodeInvalidCost, tallygate.CodeNotReservable,
		tallygate.CodeTooLarge, tallygate.CodeBadRequest:
		return status.Error(codes.InvalidArgument, text)
	case tallygate.CodeUnknownDomain, tallygate.CodeUnknownRule: // not the caller's fault
	}
	return status.Error(codes.Internal, text)
}

func withRetry(s *status.Status, wait time.Duration) error {
	detailed, err := s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
	if err != nil {
		return s.Err() // only an OK status takes no details
	}
	return detailed.Err()
}
