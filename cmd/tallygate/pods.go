package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"os"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/redisstore"
	"github.com/tallygate/tallygate/store"
)

// podID is this pod's name: that of the settings, else the host's with a few
// letters of chance, so that two pods on one host count as two.
func podID(v *values) string {
	if id := v.String("pod-id"); id != "" {
		return id
	}
	host, err := os.Hostname()
	if err != nil {
		host = "pod"
	}
	chance := make([]byte, 4)
	_, _ = rand.Read(chance) // never fails
	return host + "-" + hex.EncodeToString(chance)
}

// countPods has the limiter know how many pods share its store: as many as the
// settings say, or those the store counts, this one among them until leave.
func countPods(ctx context.Context, v *values, pod string, counts store.Store, limiter *tallygate.Limiter, log *slog.Logger) (leave func(), err error) {
	if fixed := v.Int64("pods"); fixed > 0 {
		limiter.SetPods(fixed)
		return func() {}, nil
	}
	beater, ok := counts.(redisstore.Beater)
	if !ok {
		return func() {}, nil // a store of this process has one pod
	}
	members, err := redisstore.NewMembers(redisstore.MembersConfig{Store: beater, Pod: pod, OnCount: func(live int64) {
		log.Debug("pods that share the store", "pods", live)
		limiter.SetPods(live)
	}, Log: log})
	if err != nil {
		return nil, err
	}
	members.Start(ctx)
	return func() {
		if err := members.Close(); err != nil {
			log.Info("the store will find out by itself that this pod has gone", "error", err)
		}
	}, nil
}
