package redisstore

import (
	"errors"
	"net"
	"strings"

	"github.com/redis/rueidis"

	"github.com/tallygate/tallygate/store"
)

// class sorts what became of a call by what is to be done about it.
type class uint8

const (
	// answered: the script ran and said something.
	answered class = iota
	// again: it was not sent, since what it says of the bucket's age has changed.
	again
	// noScript: the server has never seen the script; it gets the text.
	noScript
	// moved and asks name another server, for good or for this call.
	moved
	asks
	// apart: the keys of one call lie on two servers while their slot moves.
	apart
	// readOnly: the server is a replica by now.
	readOnly
	// ill: the server is there and cannot serve.
	ill
	// unsent: no connection; the call surely did not run.
	unsent
	// lost: the connection ended under the call, which may have run.
	lost
	// late: no answer by the deadline; the call may have run, if it was sent.
	late
	// doubted: it ran, and its answer is not to be relied on by rules that fail
	// closed: too few replicas have the spend, or the shard had lost others.
	doubted
	// wrong: the server will not do this, for want of rights or memory, or since
	// the key is of another type. It says nothing of the shard.
	wrong
)

// failed reports whether it counts against the shard.
func (c class) failed() bool {
	switch c {
	case readOnly, ill, unsent, lost, late:
		return true
	case answered, again, noScript, moved, asks, apart, doubted, wrong:
	}
	return false
}

// sort sorts the error of a command that was sent.
func sort(err error) class {
	if err == nil {
		return answered
	}
	switch word := code(err); word {
	case "":
		if errors.Is(err, errReply) || rueidis.IsParseErr(err) {
			return wrong
		}
		if notDialled(err) {
			return unsent
		}
		return lost
	case "NOSCRIPT":
		return noScript
	case "MOVED":
		return moved
	case "ASK":
		return asks
	case "TRYAGAIN":
		return apart
	case "READONLY":
		return readOnly
	case "CLUSTERDOWN", "LOADING", "MASTERDOWN", "NOREPLICAS", "MISCONF", "BUSY":
		return ill
	}
	if strings.Contains(err.Error(), "max number of clients") {
		return ill
	}
	return wrong // WRONGTYPE, OOM, NOPERM, NOAUTH, WRONGPASS, CROSSSLOT, TALLY …
}

// sortUnsent sorts the error of a connection that was not made: whatever the
// server said, no call ran.
func sortUnsent(err error) class {
	switch c := sort(err); c {
	case wrong, ill:
		return c
	case answered, again, noScript, moved, asks, apart, readOnly, unsent, lost, late, doubted:
	}
	return unsent
}

// notDialled reports whether an error is of the connecting.
func notDialled(err error) bool {
	var dial *net.OpError
	return errors.Is(err, errClosed) || errors.Is(err, rueidis.ErrClosing) || errors.As(err, &dial) && dial.Op == "dial"
}

// code is the first word of a server's error, "" of any other. The client leaves
// out a first word that is ERR.
func code(err error) string {
	var e *rueidis.RedisError
	if !errors.As(err, &e) {
		return ""
	}
	word, _, _ := strings.Cut(e.Error(), " ")
	return word
}

// redirect is the server that a MOVED or an ASK names: host:port, of which host is
// empty where it is the one that answered.
func redirect(err error) string {
	words := strings.Fields(err.Error())
	if len(words) < 3 {
		return ""
	}
	return words[2]
}

// outcome is what became of a call.
type outcome struct {
	class class
	reply reply
	err   error
	// sent says that the server may have got it.
	sent bool
	// starved says of a late one that this process was late itself.
	starved bool
	// patient says that it was to wait for replicas.
	patient bool
}

// failure is the error a caller gets.
func (o *outcome) failure(shard string) *store.StoreError {
	e := &store.StoreError{Kind: store.Unavailable, Sent: o.sent, Shard: shard, Err: o.err}
	switch o.class {
	case late:
		e.Kind = store.Timeout
	case wrong:
		e.Kind = store.Refused
	case answered, again, noScript, moved, asks, apart, readOnly, ill, unsent, lost, doubted:
	}
	return e
}
