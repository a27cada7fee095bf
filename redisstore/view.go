package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"strconv"

	"github.com/redis/rueidis"
)

// view is what one server says of the cluster.
type view struct {
	ranges []slotRange
	epoch  int64
	err    error
}

type slotRange struct {
	from, to int
	id, addr string
	replicas []string
}

// later reports whether a view is to be preferred: it is of a later epoch or, of the
// same, knows of more slots. One that has just joined knows the epoch first.
func (v *view) later(o *view) bool {
	return cmp.Or(cmp.Compare(v.epoch, o.epoch), cmp.Compare(v.owned(), o.owned())) > 0
}

// owned is how many slots the view has owners for.
func (v *view) owned() int {
	n := 0
	for _, r := range v.ranges {
		n += r.to - r.from + 1
	}
	return n
}

// ask reads one server's view.
func ask(n *node) view {
	client, err := n.ready()
	if err != nil {
		return view{err: err}
	}
	results := client.DoMulti(context.Background(), client.B().ClusterSlots().Build(), client.B().ClusterInfo().Build())
	ranges, err := parseSlots(results[0], n.addr)
	if err != nil {
		return view{err: err}
	}
	// Without the right to read it all views are of one age.
	info, _ := results[1].ToString()
	epoch, _ := strconv.ParseInt(field(info, "cluster_current_epoch"), 10, 64)
	return view{ranges: ranges, epoch: epoch}
}

// parseSlots reads the answer to CLUSTER SLOTS. asked is who gave it, which it may
// name by an empty host.
func parseSlots(result rueidis.RedisResult, asked string) ([]slotRange, error) {
	rows, err := result.ToArray()
	if err != nil {
		return nil, err
	}
	list := make([]slotRange, 0, len(rows))
	for _, row := range rows {
		parts, err := row.ToArray()
		if err != nil || len(parts) < 3 {
			return nil, fmt.Errorf("slots: %w", cmp.Or(err, errReply))
		}
		from, err1 := parts[0].AsInt64()
		to, err2 := parts[1].AsInt64()
		if err := cmp.Or(err1, err2); err != nil || from < 0 || from > to || to >= slots {
			return nil, fmt.Errorf("slots %d to %d: %w", from, to, cmp.Or(err, errReply))
		}
		r := slotRange{from: int(from), to: int(to)}
		for i, p := range parts[2:] {
			addr, id, err := parseNode(p, asked)
			if err != nil {
				return nil, err
			}
			if i == 0 {
				r.addr, r.id = addr, id
			} else {
				r.replicas = append(r.replicas, addr)
			}
		}
		list = append(list, r)
	}
	return list, nil
}

func parseNode(m rueidis.RedisMessage, asked string) (addr, id string, err error) {
	words, err := m.ToArray()
	if err != nil || len(words) < 3 {
		return "", "", fmt.Errorf("a node of slots: %w", cmp.Or(err, errReply))
	}
	host, _ := words[0].ToString() // null where the server does not know its own
	port, err1 := words[1].AsInt64()
	id, err2 := words[2].ToString()
	if err := cmp.Or(err1, err2); err != nil {
		return "", "", fmt.Errorf("a node of slots: %w", err)
	}
	return address(net.JoinHostPort(host, strconv.FormatInt(port, 10)), asked), id, nil
}

// address completes an address whose host is empty: it is that of who said it.
func address(addr, asked string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || host != "" && host != "?" {
		return addr
	}
	host, _, _ = net.SplitHostPort(asked)
	return net.JoinHostPort(host, port)
}
