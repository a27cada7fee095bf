package fleet

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/tallygate/tallygate/internal/uplink"
)

// ClientConfig says where the control plane is.
type ClientConfig struct {
	// URL, Token and TLS are as in uplink.Config.
	URL   string
	Token string
	TLS   *tls.Config
}

// Client is the [Sink] that posts reports to a control plane, at
// /v1/pods/{id}/report.
type Client struct{ up *uplink.Client }

var _ Sink = (*Client)(nil)

// NewClient returns a client that has sent nothing yet.
func NewClient(cfg ClientConfig) (*Client, error) {
	up, err := uplink.New(uplink.Config{URL: cfg.URL, Token: cfg.Token, TLS: cfg.TLS})
	if err != nil {
		return nil, err
	}
	return &Client{up: up}, nil
}

// Close closes idle connections.
func (c *Client) Close() error {
	c.up.Close()
	return nil
}

// maxReceipt bounds the answer.
const maxReceipt = 64 << 10

// Report implements Sink. An answer without a body, 204, says that the pod is known.
// A report that is too large goes without its trials, which is then an error: the pod
// must still be seen to live.
func (c *Client) Report(ctx context.Context, report Report) (Receipt, error) {
	body, err := json.Marshal(report)
	if err != nil {
		return Receipt{}, err
	}
	if size := len(body); size > MaxReportBytes && report.Trials != nil {
		report.Trials = nil
		if _, err := c.Report(ctx, report); err != nil {
			return Receipt{}, err
		}
		return Receipt{}, fmt.Errorf("the report has %d bytes, at most %d are taken; it went without its trials", size, MaxReportBytes)
	}
	receipt := Receipt{Known: true}
	err = c.up.Do(ctx, uplink.Request{
		Method: http.MethodPost, Path: []string{"v1", "pods", report.Pod, "report"}, Body: body, MaxAnswer: maxReceipt,
	}, &receipt)
	if err != nil {
		return Receipt{}, err
	}
	return receipt, nil
}
