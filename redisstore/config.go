package redisstore

import (
	"cmp"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// Encoder turns a bucket's domain and key into the tag that names its slot. The
// tag must be injective, and hold neither braces nor ':'. identity.Hasher and
// identity.Plain are encoders.
type Encoder interface {
	AppendTag(dst []byte, domain, key string) []byte
}

// Defaults of a Config.
const (
	// DefaultDeadline bounds a call; a gateway's request must not wait longer for
	// its limiter than it would for a cache.
	DefaultDeadline = 5 * time.Millisecond
	// DefaultMaxInFlight bounds the calls that wait for one server at one time.
	DefaultMaxInFlight = 10_000
	// DefaultBreakerFailures, in a row, end the asking of a shard, until a probe
	// every DefaultProbeEvery finds it back.
	DefaultBreakerFailures = 3
	DefaultProbeEvery      = time.Second
	// DefaultFailoverHold is how long rules that fail closed deny after a failover
	// that lost spends, DefaultEmptyHold the longest after a loss of all.
	DefaultFailoverHold = 2 * time.Second
	DefaultEmptyHold    = time.Minute
)

// Timeouts of connections. They are not the deadline of a call: a caller leaves
// when its own has passed, whatever its connection does.
const (
	dialTimeout  = 200 * time.Millisecond
	writeTimeout = 250 * time.Millisecond
	keepAlive    = 250 * time.Millisecond
)

// Config says which server to use and how.
type Config struct {
	// URL names the servers:
	//
	//	redis://[user:password@]host[:6379][,host[:port]…][/db]
	//	rediss://…                                   the same with TLS
	//	redis+sentinel://host[:26379][,…]/master[/db]
	//	rediss+sentinel://…
	//
	// A cluster is found by itself; name two or three of its nodes. Required.
	URL string
	// Username and Password override those of the URL.
	Username, Password string
	// TLS is used with rediss; nil means the system's certificate authorities.
	TLS *tls.Config
	// Tags encodes identities. Required.
	Tags Encoder
	// Deadline bounds every Take, all its groups and retries included. 0 means
	// DefaultDeadline.
	Deadline time.Duration
	// MaxInFlight bounds the calls that wait for one server at one time; more are
	// refused as unavailable. 0 means DefaultMaxInFlight.
	MaxInFlight int
	// Pod is this pod's name, which no other pod may have: its beats tell what a
	// shard lost. "" means one made up at random.
	Pod string
	// BreakerFailures is after how many failed calls a shard is not asked any more:
	// in a row or, where BreakerWithin is above 0, within that time. Half of the
	// last 20 do it too. 0 means DefaultBreakerFailures, the most is 100.
	BreakerFailures int
	BreakerWithin   time.Duration
	// ProbeEvery is how often one call then finds out whether the shard is back,
	// from 0.8 times it on. 0 means DefaultProbeEvery.
	ProbeEvery time.Duration
	// FailoverHold is how long rules that fail closed deny on a shard whose failover
	// lost spends. EmptyHold is the longest that a shard that lost all its keys is
	// not believed: rules that fail closed deny, and a bucket that is missing starts
	// with one cost, each for the time in which its bucket fills. 0 means the
	// defaults.
	FailoverHold, EmptyHold time.Duration
	// NoBeats is for who only looks at the servers: nothing is written unless asked
	// for, and what a shard has lost is not noticed.
	NoBeats bool
	// Log gets what an operator should know. nil means slog.Default.
	Log *slog.Logger
}

func (c *Config) validate() error {
	if c.Tags == nil {
		return errors.New("redisstore: Tags is required: use identity.NewHasher or identity.Plain")
	}
	if c.Deadline < 0 {
		return fmt.Errorf("redisstore: Deadline %s is below 0", c.Deadline)
	}
	if c.MaxInFlight < 0 {
		return fmt.Errorf("redisstore: MaxInFlight %d is below 0", c.MaxInFlight)
	}
	if c.BreakerFailures < 0 || c.BreakerFailures > 100 {
		return fmt.Errorf("redisstore: BreakerFailures %d is not from 0 to 100", c.BreakerFailures)
	}
	for name, d := range map[string]time.Duration{
		"BreakerWithin": c.BreakerWithin, "ProbeEvery": c.ProbeEvery, "FailoverHold": c.FailoverHold, "EmptyHold": c.EmptyHold,
	} {
		if d < 0 {
			return fmt.Errorf("redisstore: %s %s is below 0", name, d)
		}
	}
	if len(c.Pod) > maxPodName {
		return fmt.Errorf("redisstore: Pod has %d bytes, more than %d", len(c.Pod), maxPodName)
	}
	c.Deadline = cmp.Or(c.Deadline, DefaultDeadline)
	c.MaxInFlight = cmp.Or(c.MaxInFlight, DefaultMaxInFlight)
	c.BreakerFailures = cmp.Or(c.BreakerFailures, DefaultBreakerFailures)
	c.ProbeEvery = cmp.Or(c.ProbeEvery, DefaultProbeEvery)
	c.FailoverHold = cmp.Or(c.FailoverHold, DefaultFailoverHold)
	c.EmptyHold = cmp.Or(c.EmptyHold, DefaultEmptyHold)
	if c.Pod == "" {
		c.Pod = rand.Text()
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return nil
}

// options turns the configuration into the client's.
func (c *Config) options() (rueidis.ClientOption, error) {
	o := rueidis.ClientOption{
		Dialer:            net.Dialer{Timeout: dialTimeout, KeepAlive: max(keepAlive, c.Deadline)},
		ConnWriteTimeout:  max(writeTimeout, c.Deadline), // no connection is given up under a call that may still wait
		DisableCache:      true,                          // a bucket changes with every call
		DisableRetry:      true,                          // a call whose reply was lost may have run
		ClientSetInfo:     rueidis.DisableClientSetInfo,
		ClientName:        "tallygate",
		PipelineMultiplex: -1, // one connection: a lane's batches share it
	}
	u, err := url.Parse(c.URL)
	if err != nil {
		return o, fmt.Errorf("store URL: %w", withoutURL(err))
	}
	secure, sentinel := false, false
	switch u.Scheme {
	case "redis":
	case "rediss":
		secure = true
	case "redis+sentinel":
		sentinel = true
	case "rediss+sentinel":
		secure, sentinel = true, true
	default:
		return o, fmt.Errorf("store URL: scheme %q is none of redis, rediss, redis+sentinel, rediss+sentinel", u.Scheme)
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return o, errors.New("store URL: it takes no query and no fragment; give TLS files and credentials as settings")
	}
	port := "6379"
	if sentinel {
		port = "26379"
	}
	if o.InitAddress, err = addresses(u.Host, port); err != nil {
		return o, err
	}
	if err := c.path(&o, u.Path, sentinel); err != nil {
		return o, err
	}
	c.credentials(&o, u.User)
	if secure {
		o.TLSConfig = c.TLS
		if o.TLSConfig == nil {
			o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		}
	} else if c.TLS != nil {
		return o, fmt.Errorf("store URL: TLS is set but the scheme is %q; write %q", u.Scheme, strings.Replace(u.Scheme, "redis", "rediss", 1))
	}
	o.Sentinel.TLSConfig = o.TLSConfig
	return o, nil
}

// withoutURL keeps a password in a malformed URL out of the message.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

func addresses(hosts, port string) ([]string, error) {
	var list []string
	for host := range strings.SplitSeq(hosts, ",") {
		if host == "" {
			return nil, errors.New("store URL: a host is empty; write redis://host:port or redis://a:port,b:port")
		}
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), port)
		}
		list = append(list, host)
	}
	return list, nil
}

// path reads /db, or /master[/db] behind sentinels.
func (c *Config) path(o *rueidis.ClientOption, path string, sentinel bool) error {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if sentinel {
		if parts[0] == "" {
			return errors.New("store URL: the sentinels' name of the primary is missing; write redis+sentinel://host:port/mymaster")
		}
		o.Sentinel.MasterSet = parts[0]
		parts = parts[1:]
	}
	switch {
	case len(parts) == 0 || len(parts) == 1 && parts[0] == "":
		return nil
	case len(parts) > 1:
		return fmt.Errorf("store URL: path %q has too many parts", path)
	}
	db, err := strconv.Atoi(parts[0])
	if err != nil || db < 0 {
		return fmt.Errorf("store URL: database %q is not a whole number of 0 or more", parts[0])
	}
	o.SelectDB = db
	return nil
}

func (c *Config) credentials(o *rueidis.ClientOption, user *url.Userinfo) {
	if user != nil {
		o.Username = user.Username()
		o.Password, _ = user.Password()
	}
	if c.Username != "" {
		o.Username = c.Username
	}
	if c.Password != "" {
		o.Password = c.Password
	}
}
