package rls_test

import (
	"context"
	"math"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tallygate/tallygate/internal/rls"
)

// FuzzRequest: whatever is sent, there is an answer or an error that is the sender's
// fault, with a status a descriptor, and over the limit where one of them is.
func FuzzRequest(f *testing.F) {
	for _, r := range []*rlsv3.RateLimitRequest{
		{},
		request(of("ten", "k"), of("two", "k")),
		addend(request(hits(of("ten", "k"), math.MaxUint64), back(of("two", "k"), math.MaxUint64)), math.MaxUint32),
		request(limited(of("ten", "k"), math.MaxUint32, typev3.RateLimitUnit_YEAR, math.MaxUint32), limited(of("x", "y"), 0, typev3.RateLimitUnit_SECOND, 0)),
		request(limited(of("ten", "k"), 1, typev3.RateLimitUnit_UNKNOWN, 1)),
		request(descriptor("generic_key=a", "generic_key=b", "generic_key#2=c")),
		in("other", request(of("shadow", "k"), of("report", "k"), of("vip", "k"))),
	} {
		text, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	c := newClock()
	var servers []*rls.Server
	for _, each := range []bool{false, true} {
		s := newServer(f, rls.Config{Limiter: limiterOf(f, c, nil), PerDescriptor: each, Body: true, Metadata: true})
		servers = append(servers, s)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var r rlsv3.RateLimitRequest
		if err := proto.Unmarshal(text, &r); err != nil {
			t.Skip()
		}
		for _, s := range servers {
			response, err := s.ShouldRateLimit(context.Background(), &r)
			if err != nil {
				if code := status.Code(err); code != codes.InvalidArgument {
					t.Fatalf("%v for %v", err, &r)
				}
				continue
			}
			if _, err := proto.Marshal(response); err != nil {
				t.Fatalf("%v: %v", response, err)
			}
			over := false
			for _, status := range response.GetStatuses() {
				over = over || status.GetCode() == rlsv3.RateLimitResponse_OVER_LIMIT
			}
			if len(response.GetStatuses()) != len(r.GetDescriptors()) || over != (response.GetOverallCode() == rlsv3.RateLimitResponse_OVER_LIMIT) {
				t.Fatalf("%v for %v", response, &r)
			}
		}
	})
}
