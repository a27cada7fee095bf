package postgres

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// retryAfter is the pause after a lost connection.
	retryAfter = time.Second
	// silence is how long a listener hears nothing before it asks whether its
	// connection still stands: a firewall may have forgotten it.
	silence = 30 * time.Second
)

// listener turns notifications into hints over a connection of its own.
type listener struct {
	conf *pgx.ConnConfig
	hint func()
	log  *slog.Logger
}

// run listens until ctx ends.
func (l *listener) run(ctx context.Context) {
	lost := false
	for {
		err := l.listen(ctx, func() {
			if lost {
				l.log.Info("listening for changes of rules again")
			}
			lost = false
		})
		if ctx.Err() != nil {
			return
		}
		if !lost {
			lost = true
			l.log.Warn("not told of changes of rules; looking for them every few seconds", "error", err)
		}
		pause := time.NewTimer(retryAfter)
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
		pause.Stop()
	}
}

// listen listens over one connection until it is lost.
func (l *listener) listen(ctx context.Context, connected func()) error {
	conn, err := pgx.ConnectConfig(ctx, l.conf)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), retryAfter) // ctx has ended by then
		defer cancel()
		_ = conn.Close(closing)
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		return err
	}
	connected()
	l.hint() // what was notified before is lost
	for {
		if err := l.next(ctx, conn); err != nil {
			return err
		}
	}
}

// next waits for one notification, or asks the server after a long silence.
func (l *listener) next(ctx context.Context, conn *pgx.Conn) error {
	quiet, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	_, err := conn.WaitForNotification(quiet)
	switch {
	case err == nil:
		l.hint()
		return nil
	case ctx.Err() != nil || quiet.Err() == nil:
		return err
	}
	asking, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	return conn.Ping(asking)
}
