package grpclimit_test

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/grpclimit"
	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/rules"
)

// A key may call a method twice a minute; the third call is RESOURCE_EXHAUSTED.
func ExampleUnaryServerInterceptor() {
	snapshot, problems := rules.Compile(nil, rules.Set{Rules: []rules.Rule{{
		ID: "checks", Match: map[string]string{"route": "/grpc.health.v1.Health/Check"}, Identity: []string{"api_key"},
		Algorithm: limit.SlidingLog, Numbers: rules.Numbers{Limit: 2, WindowS: 60},
	}}}, 1, time.Now())
	if err := problems.Err(); err != nil {
		fmt.Println(err)
		return
	}
	limiter, err := tallygate.New(tallygate.Config{Rules: tallygate.Fixed(snapshot)})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = limiter.Close() }()
	resolver, err := identity.NewResolver(identity.Config{Sources: map[string]string{"api_key": "header:X-Api-Key"}})
	if err != nil {
		fmt.Println(err)
		return
	}

	config := grpclimit.Config{Limiter: limiter, Identity: resolver}
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(grpclimit.UnaryServerInterceptor(config)),
		grpc.ChainStreamInterceptor(grpclimit.StreamServerInterceptor(config)),
	)
	healthpb.RegisterHealthServer(server, health.NewServer())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()

	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = conn.Close() }()
	ctx := metadata.AppendToOutgoingContext(context.Background(), "x-api-key", "acct_7Q2")
	for range 3 {
		var header metadata.MD
		_, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.Header(&header))
		fmt.Println(status.Code(err), header.Get("x-ratelimit-remaining"))
	}
	// Output:
	// OK [1]
	// OK [0]
	// ResourceExhausted [0]
}
