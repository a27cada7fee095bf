package feed_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/await"
	"github.com/tallygate/tallygate/internal/rulestore/feed"
)

// A pod that is refused says so: nobody looks for a network that is down.
func TestClientIsRefused(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]string{
		http.StatusUnauthorized:       "the control plane refuses this pod: it needs a token of role pod",
		http.StatusForbidden:          "the control plane refuses this pod: it needs a token of role pod",
		http.StatusServiceUnavailable: "the control plane does not answer",
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, `{"detail":"this is why"}`, status)
		}))
		log := new(lockedBuffer)
		c := client(t, server.URL, func(c *feed.ClientConfig) { c.Log = slog.New(slog.NewTextHandler(log, nil)) })
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); _ = c.Wait(ctx, 1) }()
		await.That(t, "a line of the log", func() bool { return log.String() != "" })
		cancel()
		<-ended
		server.Close()
		if !strings.Contains(log.String(), want) || !strings.Contains(log.String(), "this is why") {
			t.Errorf("%d: %s", status, log)
		}
	}
}
