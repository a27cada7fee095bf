package rls_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/goccy/go-yaml"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/tallygate/tallygate/internal/rls"
	"github.com/tallygate/tallygate/rules"
	rulesyaml "github.com/tallygate/tallygate/rules/yaml"
	"github.com/tallygate/tallygate/store"
)

// validated is a message of Envoy's that knows its own bounds.
type validated interface {
	proto.Message
	ValidateAll() error
}

// unpack decodes a typed_config and validates it.
func unpack(t *testing.T, packed *anypb.Any, m validated) {
	t.Helper()
	if err := packed.UnmarshalTo(m); err != nil {
		t.Fatal(err)
	}
	if err := m.ValidateAll(); err != nil {
		t.Errorf("%s: %v", packed.GetTypeUrl(), err)
	}
}

// bootstrap decodes deploy/envoy.yaml as Envoy would, and returns its connection
// manager and rate limit filter.
func bootstrap(t *testing.T) (*hcmv3.HttpConnectionManager, *ratelimitv3.RateLimit) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/envoy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if text, err = yaml.YAMLToJSON(text); err != nil {
		t.Fatal(err)
	}
	var b bootstrapv3.Bootstrap
	if err := protojson.Unmarshal(text, &b); err != nil {
		t.Fatal(err)
	}
	if err := b.ValidateAll(); err != nil {
		t.Error(err)
	}
	var hcm hcmv3.HttpConnectionManager
	unpack(t, b.GetStaticResources().GetListeners()[0].GetFilterChains()[0].GetFilters()[0].GetTypedConfig(), &hcm)
	var filter ratelimitv3.RateLimit
	unpack(t, hcm.GetHttpFilters()[0].GetTypedConfig(), &filter)
	cluster := filter.GetRateLimitService().GetGrpcService().GetEnvoyGrpc().GetClusterName()
	for _, c := range b.GetStaticResources().GetClusters() {
		for _, options := range c.GetTypedExtensionProtocolOptions() {
			if _, err := options.UnmarshalNew(); err != nil {
				t.Error(err)
			}
		}
		if c.GetName() == cluster {
			return &hcm, &filter
		}
	}
	t.Errorf("the filter asks cluster %q, which is not there", cluster)
	return &hcm, &filter
}

// descriptorOf is what Envoy would send for a rate limit, of a request with headers.
func descriptorOf(t *testing.T, l *routev3.RateLimit, headers map[string]string) *commonv3.RateLimitDescriptor {
	t.Helper()
	var entries []string
	for _, a := range l.GetActions() {
		switch {
		case a.GetGenericKey() != nil:
			entries = append(entries, a.GetGenericKey().GetDescriptorKey()+"="+a.GetGenericKey().GetDescriptorValue())
		case a.GetRemoteAddress() != nil:
			entries = append(entries, "remote_address=203.0.113.9")
		case a.GetRequestHeaders() != nil:
			h := a.GetRequestHeaders()
			if value, ok := headers[h.GetHeaderName()]; ok {
				entries = append(entries, h.GetDescriptorKey()+"="+value)
			} else if !h.GetSkipIfAbsent() {
				return nil
			}
		default:
			t.Fatalf("an action that this test does not know: %v", a)
		}
	}
	return descriptor(entries...)
}

// documented are the rules of docs/envoy.md.
func documented(t *testing.T) rules.Set {
	t.Helper()
	text, err := os.ReadFile("../../docs/envoy.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "```yaml\n")
	fence, _, found := strings.Cut(after, "```")
	if !found {
		t.Fatal("docs/envoy.md has no rules")
	}
	set, problems := rulesyaml.Parse([]byte(fence))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	return set
}

// The documented configuration of Envoy and the documented rules fit each other.
func TestDocumentedEnvoy(t *testing.T) {
	t.Parallel()
	hcm, filter := bootstrap(t)
	c := newClock()
	l := limiterOf(t, c, store.NewMemoryStore(store.MemoryConfig{Now: c.now}), documented(t).Rules...)
	s := newServer(t, rls.Config{Limiter: l})
	host := hcm.GetRouteConfig().GetVirtualHosts()[0]
	limits := append(host.GetRoutes()[0].GetRoute().GetRateLimits(), host.GetRateLimits()...) //nolint:gocritic // neither is used again
	headers := map[string]string{"x-plan": "growth", "x-api-key": "acct_1"}
	for i, want := range []string{"labels-route", "growth-global", "bytes"} {
		d := descriptorOf(t, limits[i], headers)
		response, err := s.ShouldRateLimit(context.Background(), &rlsv3.RateLimitRequest{Domain: filter.GetDomain(), Descriptors: []*commonv3.RateLimitDescriptor{d}})
		if err != nil {
			t.Fatal(err)
		}
		if got := response.GetStatuses()[0].GetCurrentLimit().GetName(); got != want {
			t.Errorf("limit %d is counted by %q, want %q", i, got, want)
		}
	}
	// Without a key, the address is counted; and never together with a key's bucket.
	delete(headers, "x-api-key")
	response, err := s.ShouldRateLimit(context.Background(), &rlsv3.RateLimitRequest{Domain: filter.GetDomain(), Descriptors: []*commonv3.RateLimitDescriptor{descriptorOf(t, limits[0], headers)}})
	if err != nil || response.GetStatuses()[0].GetLimitRemaining() != 999 {
		t.Errorf("anonymous: %v, %v", response, err)
	}
	if filter.GetTimeout().AsDuration() != 20*time.Millisecond {
		t.Errorf("timeout %v", filter.GetTimeout())
	}
}
