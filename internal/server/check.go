package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/internal/headers"
	"github.com/tallygate/tallygate/internal/problem"
)

// maxBody bounds a body: 1 MiB.
const maxBody = 1 << 20

// firstBody is the buffer a body starts with: it grows as bytes arrive, not as a
// client announces them. keepBody is the largest kept for the next exchange.
const (
	firstBody = 4 << 10
	keepBody  = 64 << 10
)

// exchange is everything one request and its answer need, reused.
type exchange struct {
	body    []byte
	request request
	verdict tallygate.Verdict
	fields  headers.Fields
	answer  []byte
}

// check answers POST /v1/ratelimit:check. A denial is an answer too: 200.
func (s *Server) check(w http.ResponseWriter, r *http.Request) { s.serve(w, r, (*Server).answerCheck) }

// answerCheck answers the check or the batch in x.
func (s *Server) answerCheck(ctx context.Context, x *exchange) error {
	if err := x.request.decode(x.body); err != nil {
		return err
	}
	if x.request.batch {
		return s.decideBatch(ctx, x)
	}
	return s.decide(ctx, x, x.answer[:0])
}

// serve reads the request of an endpoint, has answer write what x.answer is to be,
// and sends that, or a problem.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, answer func(*Server, context.Context, *exchange) error) {
	if r.Method != http.MethodPost {
		s.wrongMethod(w, r, http.MethodPost)
		return
	}
	if token, _ := identity.Bearer(r.Header["Authorization"]); s.authorize != nil && !s.authorize(token) {
		w.Header().Set("WWW-Authenticate", "Bearer")
		writeProblem(w, &tallygate.Error{Code: codeUnauthorized, Message: "send a token of this server: Authorization: Bearer tg_…"})
		return
	}
	if s.inflight.Add(1) > s.maxInflight {
		s.inflight.Add(-1)
		s.shed.Add(1)
		writeProblem(w, &tallygate.Error{
			Code:    tallygate.CodeOverloaded,
			Message: fmt.Sprintf("more than %d checks are in flight", s.maxInflight),
		})
		return
	}
	defer s.inflight.Add(-1)
	x := s.exchanges.Get().(*exchange) //nolint:forcetypeassert // the pool holds nothing else
	defer s.free(x)

	err := x.read(w, r)
	if err == nil {
		err = answer(s, r.Context(), x)
	}
	if err != nil {
		writeProblem(w, asError(err))
		return
	}
	x.answer = append(x.answer, '\n') // for those who read it in a terminal
	h := w.Header()
	h["Content-Type"] = s.contentJSON
	h["Content-Length"] = []string{strconv.Itoa(len(x.answer))}
	_, _ = w.Write(x.answer) // the client is gone if this fails
}

// decide decides the check in x and appends the answer to dst.
func (s *Server) decide(ctx context.Context, x *exchange, dst []byte) error {
	if err := s.limiter.Decide(ctx, x.request.check, &x.verdict); err != nil {
		return err
	}
	s.encodeHeaders(&x.fields, &x.verdict)
	x.answer = appendVerdict(dst, &x.verdict, &x.fields)
	return nil
}

// decideBatch decides each check by itself; a bad one is a problem in its place.
func (s *Server) decideBatch(ctx context.Context, x *exchange) error {
	x.answer = append(x.answer[:0], `{"results":[`...)
	for i, item := range x.request.items {
		if ctx.Err() != nil {
			return &tallygate.Error{Code: tallygate.CodeCanceled, Message: "the batch was canceled", Err: ctx.Err()}
		}
		if i > 0 {
			x.answer = append(x.answer, ',')
		}
		err := x.request.decodeItem(item)
		if err == nil {
			err = s.decide(ctx, x, x.answer)
		}
		if err != nil {
			x.answer = problem.Append(x.answer, problemOf(asError(within("checks", within(strconv.Itoa(i), err)))))
		}
	}
	x.answer = append(x.answer, `]}`...)
	return nil
}

// encodeHeaders writes the fields for what the headers speak of: the tightest
// entry. Where that has no numbers there is nothing true to say.
func (s *Server) encodeHeaders(f *headers.Fields, v *tallygate.Verdict) {
	f.Reset()
	if v.Tightest < 0 {
		// No entry has numbers to show, but a denial without the store tells a wait.
		s.style.EncodeRetry(f, headers.Facts{Denied: !v.Allow, RetryMS: v.RetryMS})
		return
	}
	e := &v.Entries[v.Tightest]
	s.style.Encode(f, headers.Facts{
		Rule: e.Rule, Limit: e.Limit, WindowMS: e.WindowMS,
		Remaining: e.Remaining, ResetMS: e.ResetMS,
		NowMS: v.NowMS, Denied: !v.Allow, RetryMS: v.RetryMS,
	})
}

// read reads the body, bounded in size; the server bounds its time.
func (x *exchange) read(w http.ResponseWriter, r *http.Request) error {
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return &tallygate.Error{Code: codeMediaType, Message: "bodies are read as they are, without Content-Encoding"}
	}
	if r.ContentLength > maxBody {
		w.Header().Set("Connection", "close")
		return tooLarge()
	}
	x.body = x.body[:0]
	for {
		if len(x.body) == cap(x.body) {
			x.body = append(x.body, 0)[:len(x.body)]
		}
		n, err := r.Body.Read(x.body[len(x.body):cap(x.body)])
		x.body = x.body[:len(x.body)+n]
		switch {
		case len(x.body) > maxBody:
			w.Header().Set("Connection", "close")
			return tooLarge()
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			return &tallygate.Error{Code: codeBodyTooSlow, Message: "the body took too long"}
		case err != nil:
			return fault("", "the body ended early")
		}
	}
}

func tooLarge() error {
	return &tallygate.Error{Code: tallygate.CodeTooLarge, Message: fmt.Sprintf("the body is larger than %d bytes", maxBody)}
}

// free gives an exchange back, unless it has rare large buffers.
func (s *Server) free(x *exchange) {
	if max(cap(x.body), cap(x.answer), cap(x.request.scan.text)) > keepBody {
		return
	}
	x.request.forget()
	s.exchanges.Put(x)
}
