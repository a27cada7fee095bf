package grpclimit

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/tallygate/tallygate/internal/headers"
)

// ourNames are the limit headers as metadata spells them.
func ourNames() []string {
	names := headers.Names()
	for i, name := range names {
		names[i] = strings.ToLower(name)
	}
	return names
}

// incoming returns a call's metadata without a client's copies of the limit headers,
// which the application could take for ours, and the context that says so: ctx
// itself where there are none.
func (g *gate) incoming(ctx context.Context) (context.Context, metadata.MD) {
	md, ok := metadata.FromIncomingContext(ctx) // a copy
	if !ok {
		return ctx, nil
	}
	found := false
	for _, name := range g.ours {
		if _, sent := md[name]; sent {
			delete(md, name)
			found = true
		}
	}
	if found {
		ctx = metadata.NewIncomingContext(ctx, md)
	}
	return ctx, md
}

// cleaned is a stream whose context lacks a client's limit headers.
type cleaned struct {
	grpc.ServerStream
	context context.Context //nolint:containedctx // a stream is asked for its context
}

// Context implements [grpc.ServerStream].
func (c *cleaned) Context() context.Context { return c.context }
