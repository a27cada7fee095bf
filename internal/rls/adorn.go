package rls

import (
	"net/http"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/internal/headers"
	"github.com/tallygate/tallygate/internal/problem"
)

// adorn adds what the configuration asks for: headers, body and metadata.
func (s *Service) adorn(response *rlsv3.RateLimitResponse, v *tallygate.Verdict) {
	denied := response.GetOverallCode() == codeOver
	if s.config.Headers != nil {
		response.ResponseHeadersToAdd = s.headers(v, denied)
	}
	if s.config.Body && denied {
		response.RawBody = body(v)
		response.ResponseHeadersToAdd = append(response.ResponseHeadersToAdd, &corev3.HeaderValue{Key: "content-type", Value: problem.Media})
	}
	if s.config.Metadata {
		response.DynamicMetadata = metadataOf(v, denied)
	}
}

// headers are the fields for what they speak of: the tightest entry.
func (s *Service) headers(v *tallygate.Verdict, denied bool) []*corev3.HeaderValue {
	var fields headers.Fields
	if v.Tightest < 0 {
		s.config.Headers.EncodeRetry(&fields, headers.Facts{Denied: denied, RetryMS: v.RetryMS})
	} else {
		e := &v.Entries[v.Tightest]
		s.config.Headers.Encode(&fields, headers.Facts{
			Rule: e.Rule, Limit: e.Limit, WindowMS: e.WindowMS, Remaining: e.Remaining, ResetMS: e.ResetMS,
			NowMS: v.NowMS, Denied: denied, RetryMS: v.RetryMS,
		})
	}
	list := make([]*corev3.HeaderValue, 0, fields.Len()+1)
	for name, value := range fields.All() {
		list = append(list, &corev3.HeaderValue{Key: name, Value: string(value)})
	}
	return list
}

// body is the problem that a client is told.
func body(v *tallygate.Verdict) []byte {
	p := problem.Denied(http.StatusTooManyRequests, v.DeniedBy)
	if v.RetryMS > 0 {
		seconds := (v.RetryMS + 999) / 1000
		p.RetryAfter = &seconds
	}
	return problem.Append(nil, p)
}

// metadataOf says who denied, for access logs and other filters.
func metadataOf(v *tallygate.Verdict, denied bool) *structpb.Struct {
	verdict := "allow"
	if denied {
		verdict = "deny"
	}
	fields := map[string]*structpb.Value{"verdict": structpb.NewStringValue(verdict)}
	if v.DeniedBy != "" {
		fields["denied_by"] = structpb.NewStringValue(v.DeniedBy)
	}
	if v.RetryMS > 0 {
		fields["retry_ms"] = structpb.NewNumberValue(float64(v.RetryMS))
	}
	if v.Degraded != "" {
		fields["degraded"] = structpb.NewStringValue(string(v.Degraded))
	}
	return &structpb.Struct{Fields: fields}
}
