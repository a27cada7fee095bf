package rls

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tallygate/tallygate"
)

// refusal is the error of a call: a status of gRPC, and the code that POST /json tells.
type refusal struct {
	status *status.Status
	code   tallygate.Code
}

func (r *refusal) Error() string { return r.status.Err().Error() }

// GRPCStatus has gRPC answer with it.
func (r *refusal) GRPCStatus() *status.Status { return r.status }

const codeInternal tallygate.Code = "internal"

func refuse(code codes.Code, own tallygate.Code, text string) error {
	return &refusal{status: status.New(code, text), code: own}
}

// invalid says what is wrong with a field of a request.
func invalid(field, message string) error {
	return refuse(codes.InvalidArgument, tallygate.CodeBadRequest, field+": "+message)
}

// asStatus turns an error of the limiter into that of a call. Causes are not shown:
// they may name hosts.
func asStatus(ctx context.Context, err error) error {
	if _, ok := errors.AsType[*refusal](err); ok {
		return err
	}
	e, ok := errors.AsType[*tallygate.Error](err)
	if !ok {
		return refuse(codes.Internal, codeInternal, "unexpected error")
	}
	text := string(e.Code) + ": " + e.Message
	if e.Field != "" {
		text = string(e.Code) + " at " + inRequest(e.Field) + ": " + e.Message
	}
	switch e.Code {
	case tallygate.CodeBadRequest, tallygate.CodeTooLarge, tallygate.CodeInvalidCost,
		tallygate.CodeMissingIdentity, tallygate.CodeUnknownDomain, tallygate.CodeUnknownRule:
		return refuse(codes.InvalidArgument, e.Code, text)
	case tallygate.CodeStoreTimeout, tallygate.CodeStoreUnavailable, tallygate.CodeClosed:
		return refuse(codes.Unavailable, e.Code, text)
	case tallygate.CodeOverloaded:
		return refuse(codes.ResourceExhausted, e.Code, text)
	case tallygate.CodeNotReservable: // nothing is reserved here
		return refuse(codes.FailedPrecondition, e.Code, text)
	case tallygate.CodeCanceled:
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return refuse(codes.DeadlineExceeded, e.Code, text)
		}
		return refuse(codes.Canceled, e.Code, text)
	default:
		return refuse(codes.Internal, e.Code, text)
	}
}

// ofDescriptor is an error of a check of one set, which was made of descriptor i.
func ofDescriptor(err error, i int) error {
	e, ok := errors.AsType[*tallygate.Error](err)
	if !ok || e.Field != "/sets/0" {
		return err
	}
	own := *e
	own.Field = "/sets/" + strconv.Itoa(i)
	return &own
}

// inRequest names a field of the limiter's check as the request has it: sets are made of
// descriptors, one of each.
func inRequest(field string) string {
	if rest, ok := strings.CutPrefix(field, "/sets"); ok {
		return "descriptors" + rest
	}
	return strings.TrimPrefix(field, "/")
}

// noStore reports whether a rule that fails closed had no answer of the store.
func noStore(err error) bool {
	code := tallygate.CodeOf(err)
	return code == tallygate.CodeStoreTimeout || code == tallygate.CodeStoreUnavailable
}
