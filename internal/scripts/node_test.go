package scripts_test

import (
	"crypto/rand"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/internal/scripts"
	"github.com/redquorum/go-redlock/redlocktest"
)

// realNode names the environment variable with the host:port of a Redis server
// to run the scenes against, beside the embedded node: miniredis is not Redis,
// and its Lua is another interpreter. The scenes touch only keys, channels and
// one ACL user with random names, and leave none of them behind.
const realNode = "REDLOCK_SCRIPTS_NODE"

// A scene is one call of one script.
//
// Keys go by short names. One that ends in # is a fencing counter. What they
// hold is written "value for 1h0m0s", "value for ever" or "a list"; a key that
// is not there is not in the map. A TTL is rounded up to ten minutes when it is
// read, so that the scenes, whose TTLs are multiples of that, need not look at
// their watches.
type scene struct {
	name  string
	given map[string]string
	mute  bool // the caller may not publish
	call  func(keys func(...string) []string) *scripts.Call
	want  any               // what the reply is parsed to
	err   string            // instead: what the error contains
	then  map[string]string // nil: as given, nothing has changed
	said  []string          // release notices: "key: message"
}

// play runs scenes on an embedded node and on a real one, if there is one.
func play(t *testing.T, scenes []scene) {
	t.Helper()
	onNodes(t, func(n *node) {
		for _, s := range scenes {
			n.t.Run(s.name, func(t *testing.T) { s.play(n.forTest(t)) })
		}
	})
}

func onNodes(t *testing.T, test func(*node)) {
	t.Helper()
	t.Run("embedded", func(t *testing.T) {
		embedded := redlocktest.Start(t, 1).Node(0)
		test(newNode(t, embedded.Addr(), embedded))
	})
	if addr := os.Getenv(realNode); addr != "" {
		t.Run("real", func(t *testing.T) { test(newNode(t, addr, nil)) })
	}
}

// A node is a Redis server with the scripts loaded.
type node struct {
	t        *testing.T
	addr     string
	embedded *redlocktest.Node // nil for a real one
	conn     redis.Conn
	hashes   [scripts.Count]string

	prefix string            // of this test's keys
	names  map[string]string // short names of the keys in use
}

func newNode(t *testing.T, addr string, embedded *redlocktest.Node) *node {
	t.Helper()
	n := &node{t: t, addr: addr, embedded: embedded}
	n.conn = n.dial()
	for _, script := range scripts.All() {
		hash, err := redis.String(n.conn.Do("SCRIPT", "LOAD", script.Source()))
		require.NoError(t, err, script.Name())
		n.hashes[script.Index()] = hash
	}
	return n
}

// forTest returns the node for one test, with keys of its own.
func (n *node) forTest(t *testing.T) *node {
	t.Helper()
	one := *n
	one.t = t
	one.prefix = "redlock-scripts-test:" + rand.Text() + ":"
	one.names = map[string]string{}
	t.Cleanup(func() {
		for key := range one.names {
			one.do("DEL", key)
		}
	})
	return &one
}

func (n *node) dial() redis.Conn {
	n.t.Helper()
	conn, err := redis.DialContext(n.t.Context(), "tcp", n.addr,
		redis.DialConnectTimeout(10*time.Second), redis.DialReadTimeout(10*time.Second), redis.DialWriteTimeout(10*time.Second))
	require.NoError(n.t, err, "the node cannot be reached")
	n.t.Cleanup(func() { assert.NoError(n.t, conn.Close()) })
	return conn
}

func (n *node) do(command string, args ...any) any {
	n.t.Helper()
	reply, err := n.conn.Do(command, args...)
	require.NoError(n.t, err, "%s %v", command, args)
	return reply
}

func (n *node) keys(names ...string) []string {
	keys := make([]string, len(names))
	for i, name := range names {
		keys[i] = n.prefix + name
		n.names[keys[i]] = name
	}
	return keys
}

const alist = "a list"

func (n *node) prepare(given map[string]string) {
	n.t.Helper()
	for name, content := range given {
		key := n.keys(name)[0]
		if content == alist {
			n.do("RPUSH", key, "element")
			continue
		}
		value, ttl, ok := strings.Cut(content, " for ")
		require.True(n.t, ok, "%q", content)
		n.do("SET", key, value)
		if ttl != "ever" {
			d, err := time.ParseDuration(ttl)
			require.NoError(n.t, err)
			n.do("PEXPIRE", key, d.Milliseconds())
		}
	}
}

func (n *node) state() map[string]string {
	n.t.Helper()
	state := map[string]string{}
	for key, name := range n.names {
		switch kind := n.do("TYPE", key).(string); kind {
		case "none":
		case "string":
			value, err := redis.String(n.do("GET", key), nil)
			require.NoError(n.t, err)
			left, ok := n.do("PTTL", key).(int64)
			require.True(n.t, ok)
			if left < 0 {
				state[name] = value + " for ever"
			} else {
				state[name] = fmt.Sprintf("%s for %v", value, roundUp(time.Duration(left)*time.Millisecond))
			}
		default:
			state[name] = "a " + kind
		}
	}
	return state
}

func roundUp(d time.Duration) time.Duration {
	const unit = 10 * time.Minute
	if rest := d % unit; rest > 0 {
		d += unit - rest
	}
	return d
}

func (n *node) eval(conn redis.Conn, call *scripts.Call) (any, error) {
	n.t.Helper()
	return conn.Do("EVALSHA", append([]any{n.hashes[call.Script.Index()]}, call.Args...)...)
}

// parse hands a reply to the parser for the call.
func parse(call *scripts.Call, reply any) (any, error) {
	n, _ := call.Args[0].(int)
	locks := 0
	for _, key := range call.Args[1 : 1+n] {
		if s, ok := key.(string); ok && !strings.HasSuffix(s, "#") {
			locks++
		}
	}
	switch name := call.Script.Name(); name {
	case "acquire":
		acquired, err := scripts.ParseAcquire(reply, locks)
		if acquired.Wait != scripts.Forever {
			acquired.Wait = roundUp(acquired.Wait)
		}
		return acquired, err
	case "renew":
		return scripts.ParseRenew(reply)
	case "release":
		return scripts.ParseRelease(reply, locks)
	case "confirm":
		return scripts.ParseConfirm(reply)
	case "inspect":
		all, err := scripts.ParseInspect(reply, locks)
		for i := range all {
			if all[i].TTL != scripts.Forever {
				all[i].TTL = roundUp(all[i].TTL)
			}
		}
		return all, err
	default:
		return nil, fmt.Errorf("no script is called %s", name)
	}
}

func (s *scene) play(n *node) {
	n.prepare(s.given)
	require.Equal(n.t, orEmpty(s.given), n.state())
	call := s.call(n.keys)
	notices := n.listen()
	caller := n.conn
	unmute := func() {}
	if s.mute {
		caller, unmute = n.muted()
	}

	reply, err := n.eval(caller, call)
	unmute()
	if s.err != "" {
		require.ErrorContains(n.t, err, s.err)
	} else {
		require.NoError(n.t, err)
		got, err := parse(call, reply)
		require.NoError(n.t, err)
		assert.Equal(n.t, s.want, got)
	}
	if s.then == nil {
		s.then = orEmpty(s.given)
	}
	assert.Equal(n.t, s.then, n.state())
	assert.Equal(n.t, s.said, notices())
}

func orEmpty(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

// listen subscribes to the release channels of all keys in use. What it returns
// tells what has been published until then.
func (n *node) listen() (notices func() []string) {
	n.t.Helper()
	const channel = "redlock:released:" // part of the wire format
	end := n.prefix + "end"
	sub := redis.PubSubConn{Conn: n.dial()}
	for _, c := range []string{channel + n.prefix + "*", end} {
		require.NoError(n.t, sub.PSubscribe(c))
		require.IsType(n.t, redis.Subscription{}, sub.Receive())
	}
	return func() (said []string) {
		n.t.Helper()
		n.do("PUBLISH", end, "")
		for {
			switch message := sub.Receive().(type) {
			case redis.Message:
				if message.Channel == end {
					return said
				}
				said = append(said, strings.TrimPrefix(message.Channel, channel+n.prefix)+": "+string(message.Data))
			case error:
				require.NoError(n.t, message)
			}
		}
	}
}

// muted returns a connection that may not publish.
func (n *node) muted() (conn redis.Conn, unmute func()) {
	n.t.Helper()
	if n.embedded != nil {
		n.embedded.SetError("ERR no permission to publish", "PUBLISH")
		return n.conn, func() { n.embedded.SetError("") }
	}
	return n.login("~*", "resetchannels", "+@all"), func() {}
}

// login makes a user with these rules, and a connection of theirs. Only for
// real nodes.
func (n *node) login(rules ...any) redis.Conn {
	n.t.Helper()
	user, password := "redlock-scripts-test-"+rand.Text(), rand.Text()
	n.do("ACL", append([]any{"SETUSER", user, "on", ">" + password}, rules...)...)
	n.t.Cleanup(func() { n.do("ACL", "DELUSER", user) })
	conn := n.dial()
	_, err := conn.Do("AUTH", user, password)
	require.NoError(n.t, err)
	return conn
}
