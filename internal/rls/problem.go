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

// invalid says what is wrong with a field of a request.
func invalid(field, message string) error {
	return status.Error(codes.InvalidArgument, field+": "+message)
}

// asStatus turns an error of the limiter into that of a call. Causes are not shown:
// they may name hosts.
func asStatus(ctx context.Context, err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	e, ok := errors.AsType[*tallygate.Error](err)
	if !ok {
		return status.Error(codes.Internal, "unexpected error")
	}
	text := string(e.Code) + ": " + e.Message
	if e.Field != "" {
		text = string(e.Code) + " at " + inRequest(e.Field) + ": " + e.Message
	}
	switch e.Code {
	case tallygate.CodeBadRequest, tallygate.CodeTooLarge, tallygate.CodeInvalidCost,
		tallygate.CodeMissingIdentity, tallygate.CodeUnknownDomain, tallygate.CodeUnknownRule:
		return status.Error(codes.InvalidArgument, text)
	case tallygate.CodeStoreTimeout, tallygate.CodeStoreUnavailable, tallygate.CodeClosed:
		return status.Error(codes.Unavailable, text)
	case tallygate.CodeOverloaded:
		return status.Error(codes.ResourceExhausted, text)
	case tallygate.CodeNotReservable: // nothing is reserved here
		return status.Error(codes.FailedPrecondition, text)
	case tallygate.CodeCanceled:
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return status.Error(codes.DeadlineExceeded, text)
		}
		return status.Error(codes.Canceled, text)
	default:
		return status.Error(codes.Internal, text)
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
