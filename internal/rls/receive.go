package rls

import (
	"context"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"
)

// described is Envoy's service with a handler of our own: what the generated one cannot
// read it refuses without a word to anybody but the sender.
func described() *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: rlsv3.RateLimitService_ServiceDesc.ServiceName,
		HandlerType: (*rlsv3.RateLimitServiceServer)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "ShouldRateLimit", Handler: receive}},
		Metadata:    "envoy/service/ratelimit/v3/rls.proto", // for reflection
	}
}

// receive reads a request, and has it answered.
func receive(srv any, ctx context.Context, read func(any) error, _ grpc.UnaryServerInterceptor) (any, error) { //nolint:revive // gRPC's order of arguments
	s := srv.(*Service) //nolint:forcetypeassert // what is registered
	request := new(rlsv3.RateLimitRequest)
	if err := read(request); err != nil { // which the sender has been told already
		return nil, s.refused(err)
	}
	return s.ShouldRateLimit(ctx, request)
}

// refused counts and logs why a request is not answered.
func (s *Service) refused(err error) error {
	s.failed.Add(1)
	s.log.Warn(time.Now(), "a request was not answered", "error", err)
	return err
}

// codec reads and writes messages as gRPC's own does.
type codec struct{ encoding.CodecV2 }

// Unmarshal reads what could not be read once more in the slow way, whose errors name
// the field.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	err := c.CodecV2.Unmarshal(data, v)
	m, ok := v.(proto.Message)
	if err == nil || !ok {
		return err
	}
	if named := proto.Unmarshal(data.Materialize(), dynamicpb.NewMessage(m.ProtoReflect().Descriptor())); named != nil {
		return named
	}
	return err
}
