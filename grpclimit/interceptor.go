package grpclimit

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/identity/request"
	"github.com/tallygate/tallygate/internal/headers"
	"github.com/tallygate/tallygate/internal/unlimited"
)

// attrRoute is the attribute that holds the full method.
const attrRoute = "route"

// UnaryServerInterceptor limits unary calls. It panics without a Limiter: that
// program cannot have worked.
func UnaryServerInterceptor(c Config) grpc.UnaryServerInterceptor {
	g := newGate(c)
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		ctx, md := g.incoming(ctx)
		if err := g.admit(ctx, md, Call{Method: info.FullMethod, Request: req}); err != nil {
			return nil, err
		}
		return handler(ctx, req)
	}
}

// StreamServerInterceptor limits the opening of streams. It panics without a
// Limiter: that program cannot have worked.
func StreamServerInterceptor(c Config) grpc.StreamServerInterceptor {
	g := newGate(c)
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		ctx, md := g.incoming(stream.Context())
		if err := g.admit(ctx, md, Call{Method: info.FullMethod}); err != nil {
			return err
		}
		if ctx != stream.Context() {
			stream = &cleaned{ServerStream: stream, context: ctx}
		}
		return handler(srv, stream)
	}
}

// gate is what an interceptor works with.
type gate struct {
	config Config
	style  headers.Style
	// ours are the metadata that only this package may write.
	ours []string
	// silent tells that there is nothing to limit by.
	silent *unlimited.Notice
	passes sync.Pool
}

// pass is everything one call needs on its way, reused.
type pass struct {
	attrs   map[string]string
	verdict tallygate.Verdict
	fields  headers.Fields
}

// Attributes for which a pass has room, and beyond which it is not kept.
const (
	firstAttrs = 8
	keepAttrs  = 64
)

func newGate(c Config) *gate {
	if c.Limiter == nil {
		panic("grpclimit: Config.Limiter is nil; set it to what tallygate.New returned")
	}
	if c.Identity == nil {
		c.Identity = &identity.Resolver{}
	}
	g := &gate{config: c, style: headers.Style{Jitter: c.RetryJitter, Rand: c.Rand}, ours: ourNames(), silent: unlimited.To(c.Log)}
	if c.ResetSeconds {
		g.style.Reset = headers.ResetSeconds
	}
	if c.NoIETF {
		g.style.IETF = headers.IETFOff
	}
	g.passes.New = func() any { return &pass{attrs: make(map[string]string, firstAttrs)} }
	return g
}

// admit is the path of a call: nil lets it pass. It owns the order of the questions
// and every branch.
func (g *gate) admit(ctx context.Context, md metadata.MD, call Call) error {
	if g.config.Skip != nil && g.config.Skip(ctx, call) {
		return nil
	}
	p := g.passes.Get().(*pass) //nolint:forcetypeassert // the pool holds nothing else
	defer g.free(p)
	err := g.decide(ctx, md, p, call)
	if g.config.Observe != nil {
		g.observe(ctx, p, call, err)
	}
	noRules := tallygate.CodeOf(err) == tallygate.CodeUnknownDomain
	if noRules {
		g.silent.Passed(time.Now(), g.config.Domain)
	}
	switch {
	case g.config.ReportOnly || noRules:
		return nil
	case err != nil && g.config.OnError != nil:
		return g.config.OnError(ctx, call, err)
	case err != nil:
		return refusal(err)
	}
	g.encode(ctx, p)
	switch {
	case p.verdict.Allow:
		return nil
	case g.config.OnDeny != nil:
		return g.config.OnDeny(ctx, call, &p.verdict)
	default:
		return g.denial(p)
	}
}

// decide finds out who calls what and decides.
func (g *gate) decide(ctx context.Context, md metadata.MD, p *pass, call Call) error {
	facts := factsOf(ctx, md)
	if err := g.config.Identity.Resolve(&facts, p.attrs); err != nil {
		return err
	}
	p.attrs[attrRoute] = call.Method
	if g.config.Attributes != nil {
		g.config.Attributes(ctx, call, p.attrs)
	}
	check := tallygate.Check{Domain: g.config.Domain, Attributes: p.attrs}
	if g.config.Cost != nil {
		check.Cost = g.config.Cost(ctx, call)
	}
	return g.config.Limiter.Decide(ctx, check, &p.verdict)
}

func (g *gate) observe(ctx context.Context, p *pass, call Call, err error) {
	if err != nil {
		g.config.Observe(ctx, call, nil, err)
		return
	}
	g.config.Observe(ctx, call, &p.verdict, nil)
}

// factsOf are a call's facts: metadata for headers, the peer, its certificate.
func factsOf(ctx context.Context, md metadata.MD) identity.Facts {
	f := identity.Facts{LowerNames: true, Header: md}
	p, ok := peer.FromContext(ctx)
	if !ok {
		return f
	}
	if p.Addr != nil {
		f.Peer = p.Addr.String()
	}
	if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
		f.Certificate = request.Certificate(info.State.VerifiedChains)
	}
	return f
}

// free gives a pass back. It forgets the call, so that an idle interceptor does not
// hold on to it.
func (g *gate) free(p *pass) {
	if len(p.attrs) > keepAttrs {
		return
	}
	clear(p.attrs)
	clear(p.verdict.Entries)
	g.passes.Put(p)
}
