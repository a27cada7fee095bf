package rls

import (
	"errors"
	"io"
	"net/http"
	"strconv"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/internal/problem"
)

// Handler answers POST /json: the same messages in proto3's JSON. 200 is OK, 429 is
// over the limit, 400 a request that cannot be read or decided, 503 where the gRPC
// service would answer another error.
func (s *Service) Handler() http.Handler { return http.HandlerFunc(s.json) }

func (s *Service) json(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		problem.Write(w, problem.Problem{
			Title: "Method not allowed", Status: http.StatusMethodNotAllowed, Code: "method_not_allowed", Detail: "/json takes POST",
		})
		return
	}
	if token, _ := identity.Bearer(r.Header["Authorization"]); s.config.Authorize != nil && !s.config.Authorize(token) {
		w.Header().Set("WWW-Authenticate", "Bearer")
		fail(w, s.refused(unauthorized()))
		return
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequestBytes))
	if err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			err = invalid("body", "is larger than "+strconv.Itoa(maxRequestBytes)+" bytes")
		} else {
			err = invalid("body", "ended early")
		}
		fail(w, s.refused(err))
		return
	}
	var request rlsv3.RateLimitRequest
	if err := protojson.Unmarshal(text, &request); err != nil {
		fail(w, s.refused(invalid("body", err.Error())))
		return
	}
	response, err := s.answer(r.Context(), &request)
	if err != nil {
		fail(w, err)
		return
	}
	text, err = protojson.Marshal(response)
	if err != nil {
		fail(w, refuse(codes.Internal, codeInternal, "the answer cannot be written"))
		return
	}
	code := http.StatusOK
	if response.GetOverallCode() == codeOver {
		code = http.StatusTooManyRequests
		if seconds := retrySeconds(response); seconds > 0 {
			w.Header().Set("Retry-After", strconv.FormatInt(seconds, 10))
		}
	}
	write(w, code, text)
}

// retrySeconds is the longest wait of the statuses that deny; 0 where one of them
// does not end.
func retrySeconds(response *rlsv3.RateLimitResponse) (seconds int64) {
	for _, s := range response.GetStatuses() {
		if s.GetCode() != codeOver {
			continue
		}
		if s.GetDurationUntilReset() == nil {
			return 0
		}
		seconds = max(seconds, s.GetDurationUntilReset().GetSeconds())
	}
	return seconds
}

// fail answers an error of the gRPC service as a problem: envoyproxy/ratelimit has no
// body there that a client could read.
func fail(w http.ResponseWriter, err error) {
	p := problem.Problem{Title: "Not available", Status: http.StatusServiceUnavailable, Code: string(codeInternal)}
	if e, ok := errors.AsType[*refusal](err); ok {
		p.Code, p.Detail = string(e.code), e.status.Message()
		switch e.status.Code() { //nolint:exhaustive // all others are the same
		case codes.InvalidArgument:
			p.Title, p.Status = titleOf(e.code), http.StatusBadRequest
		case codes.Unauthenticated:
			p.Title, p.Status = "Who are you", http.StatusUnauthorized
		}
	}
	if p.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	w.Header().Set("X-Content-Type-Options", "nosniff")
	problem.Write(w, p)
}

// titleOf is the title that an invalid argument's code has on every port.
func titleOf(code tallygate.Code) string {
	switch code { //nolint:exhaustive // no other is an argument's, or it has this title
	case tallygate.CodeTooLarge:
		return "Too large"
	case tallygate.CodeInvalidCost:
		return "Invalid cost"
	case tallygate.CodeMissingIdentity:
		return "Missing identity"
	default:
		return "Malformed request"
	}
}

func write(w http.ResponseWriter, code int, text []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(text)+1))
	w.WriteHeader(code)
	_, _ = w.Write(append(text, '\n')) // the client is gone if this fails
}
