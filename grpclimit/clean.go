package grpclimit

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/tallygate/tallygate/internal/headers"
)

// withoutOurs drops a client's copies of the limit headers, which the application
// could take for ours. Without any it returns ctx.
func withoutOurs(ctx context.Context) context.Context {
	md, ok := metadata.FromIncomingContext(ctx) // a copy
	if !ok {
		return ctx
	}
	found := false
	for _, name := range headers.Names() {
		name = strings.ToLower(name)
		if _, sent := md[name]; sent {
			delete(md, name)
			found = true
		}
	}
	if !found {
		return ctx
	}
	return metadata.NewIncomingContext(ctx, md)
}

// cleaned is a stream whose context lacks a client's limit headers.
type cleaned struct {
	grpc.ServerStream
	context context.Context //nolint:containedctx // a stream is asked for its context
}

// Context implements [grpc.ServerStream].
func (c *cleaned) Context() context.Context { return c.context }
