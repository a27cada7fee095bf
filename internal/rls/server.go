package rls

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"sync"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto" // the codec, by its name
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/tallygate/tallygate/internal/sampled"
	"github.com/tallygate/tallygate/internal/unlimited"
)

// streamWorkers is how many goroutines answer requests and stay. One of a request's own
// would begin with a small stack and copy it several times on the way down to the limiter,
// which was a tenth of the CPU of a call. Requests beyond these get one of their own.
const streamWorkers = 128

// The bounds of a connection, against clients that are slow or noisy on purpose.
const (
	handshakeTimeout = 5 * time.Second
	pingEvery        = time.Minute // of ours, on a silent connection
	pingTimeout      = 10 * time.Second
	minPingEvery     = 10 * time.Second // of theirs
	maxHeaderBytes   = 16 << 10
)

// Server is the gRPC server. Create it with [New]; it is safe for concurrent use.
type Server struct {
	*Service

	grpc   *grpc.Server
	health *health.Server
	drain  time.Duration
	finish time.Duration
	ending sync.Mutex // held while the server stops: Serve may run for several listeners
}

// New returns a server that is not listening yet. Its goroutines already wait for
// requests: one that never serves is closed as well.
func New(config Config) (*Server, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	service := &Service{
		config: config, log: sampled.New(config.Log),
		unlimited: unlimited.ToEnvoys(cmp.Or(config.Log, slog.New(slog.DiscardHandler))),
	}
	service.calls.New = func() any { return new(call) }
	s := &Server{
		Service: service,
		grpc:    grpc.NewServer(service.options()...),
		health:  health.NewServer(),
		drain:   config.Drain,
		finish:  config.Finish,
	}
	s.grpc.RegisterService(described(), service)
	healthv1.RegisterHealthServer(s.grpc, s.health)
	s.health.SetServingStatus(rlsv3.RateLimitService_ServiceDesc.ServiceName, healthv1.HealthCheckResponse_SERVING)
	if config.Reflection {
		reflection.Register(s.grpc)
	}
	return s, nil
}

// options are the bounds of the gRPC server.
func (s *Service) options() []grpc.ServerOption {
	age := s.config.MaxAge
	if age < 0 {
		age = math.MaxInt64
	}
	list := []grpc.ServerOption{
		grpc.ForceServerCodecV2(codec{encoding.GetCodecV2(proto.Name)}),
		grpc.MaxRecvMsgSize(maxRequestBytes),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.MaxConcurrentStreams(clamp(int64(s.config.MaxStreams))),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPingEvery, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionAge: age, MaxConnectionAgeGrace: s.config.Finish, Time: pingEvery, Timeout: pingTimeout,
		}),
	}
	if s.config.TLS != nil {
		list = append(list, grpc.Creds(credentials.NewTLS(s.config.TLS)))
	}
	return list
}

// SetServing sets what the health service says of the rate limit service; it is
// serving until told otherwise.
func (s *Server) SetServing(serving bool) {
	status := healthv1.HealthCheckResponse_NOT_SERVING
	if serving {
		status = healthv1.HealthCheckResponse_SERVING
	}
	s.health.SetServingStatus("", status)
	s.health.SetServingStatus(rlsv3.RateLimitService_ServiceDesc.ServiceName, status)
}

// Serve answers on l, TCP or a Unix socket, until ctx ends or Close is called. When
// ctx ends its health says so at once; it goes on for Config.Drain, then takes no more
// requests and returns when those under way are answered, at the latest after
// Config.Finish. It closes l. It may be called for several listeners, which end
// together: the first whose ctx ends stops all.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	served := make(chan error, 1)
	go func() { served <- s.grpc.Serve(l) }()
	select {
	case err := <-served:
		return stopped(err)
	case <-ctx.Done():
	}
	s.health.Shutdown()
	wait := time.NewTimer(s.drain)
	defer wait.Stop()
	select {
	case err := <-served:
		return stopped(err)
	case <-wait.C:
	}
	if err := s.stop(); err != nil {
		return errors.Join(err, stopped(<-served))
	}
	return stopped(<-served)
}

// stop waits for the requests under way, for as long as they may take.
func (s *Server) stop() error {
	s.ending.Lock()
	defer s.ending.Unlock()
	done := make(chan struct{})
	go func() {
		s.grpc.GracefulStop()
		close(done)
	}()
	finish := time.NewTimer(s.finish)
	defer finish.Stop()
	select {
	case <-done:
		return nil
	case <-finish.C:
		s.grpc.Stop() // ends GracefulStop too
		<-done
		return fmt.Errorf("rls: requests were still under way after %s", s.finish)
	}
}

// Close ends Serve at once: requests under way are cut off. It may be called at any
// time, more than once.
func (s *Server) Close() error {
	s.health.Shutdown()
	s.grpc.Stop()
	return nil
}

// stopped is nil for the error of a server that was told to stop.
func stopped(err error) error {
	if errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return err
}
