package demo

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/go-redlock/pool"
	"github.com/redquorum/go-redlock/redlock"
	"github.com/redquorum/go-redlock/redlocktest"
)

// node is one node that can be made to fail.
type node interface {
	Kill()
	Revive() error // after Kill; the data is still there
	Hang()
	Resume() // after Hang
}

// cluster is the nodes and the way to them.
type cluster struct {
	kind    string // for people
	addrs   []string
	options []redlock.Option // for New
	nodes   []node
	// left returns how many nodes still have a key. All nodes must be up.
	left  func(ctx context.Context, key string) (int, error)
	close func()
}

// defaultNodes is how many nodes are embedded.
const defaultNodes = 5

// newCluster returns the named nodes behind proxies, or embedded ones.
func newCluster(ctx context.Context, addrs []string) (*cluster, error) {
	if len(addrs) == 0 {
		return newEmbedded(defaultNodes)
	}
	return newProxied(ctx, addrs)
}

// embedded is a node in this process.
type embedded struct{ *redlocktest.Node }

var _ node = embedded{}

func (e embedded) Kill()         { e.Stop() }
func (e embedded) Revive() error { return e.Restart() }

func newEmbedded(n int) (*cluster, error) {
	nodes, err := redlocktest.New(n)
	if err != nil {
		return nil, err
	}
	c := &cluster{
		kind:  "embedded",
		addrs: nodes.Addrs(),
		left: func(_ context.Context, key string) (int, error) {
			left := 0
			for _, n := range nodes.Holders(key) {
				left += n
			}
			return left, nil
		},
		close: nodes.Close,
	}
	for i := range n {
		c.nodes = append(c.nodes, embedded{nodes.Node(i)})
	}
	return c, nil
}

var _ node = (*proxy)(nil)

// newProxied puts proxies in front of real nodes. The Lockers keep the nodes'
// own addresses, for errors and certificates; only their connections are led
// through the proxies.
func newProxied(ctx context.Context, addrs []string) (_ *cluster, err error) {
	// What New refuses is refused in its words, before anything is started.
	probe, err := redlock.New(addrs)
	if err != nil {
		return nil, err
	}
	if err := probe.Close(); err != nil {
		return nil, err
	}
	if len(addrs) < 3 {
		return nil, errors.New("a single node has no minority that could fail: want 3 or more")
	}

	c := &cluster{kind: "real", addrs: addrs}
	proxies := make(map[string]*proxy, len(addrs))
	c.close = func() {
		for _, p := range proxies {
			p.close()
		}
	}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	var targets []pool.Address
	for _, addr := range addrs {
		target, err := pool.ParseAddress(addr)
		if err != nil {
			return nil, err
		}
		p, err := newProxy(target.Network, target.Endpoint)
		if err != nil {
			return nil, fmt.Errorf("proxy for %v: %w", target, err)
		}
		targets = append(targets, target)
		proxies[target.Network+":"+target.Endpoint] = p
		c.nodes = append(c.nodes, p)
	}
	c.options = []redlock.Option{redlock.WithDialer(func(ctx context.Context, network, address string) (net.Conn, error) {
		p := proxies[network+":"+address]
		if p == nil {
			return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.EHOSTUNREACH}
		}
		return p.dial(ctx)
	})}
	c.left = func(ctx context.Context, key string) (int, error) { return countKey(ctx, targets, key) }

	// The demo takes a minority away. If another is missing already, it would
	// show nothing but an outage.
	if _, err := c.left(ctx, "redlock-demo"); err != nil {
		return nil, fmt.Errorf("all nodes must be up when the demo begins: %w", err)
	}
	return c, nil
}

// countKey returns how many nodes have the key. It goes straight to them.
func countKey(ctx context.Context, nodes []pool.Address, key string) (int, error) {
	left := 0
	for _, n := range nodes {
		found, err := hasKey(ctx, n, key)
		if err != nil {
			return left, fmt.Errorf("%v: %w", n, err)
		}
		if found {
			left++
		}
	}
	return left, nil
}

func hasKey(ctx context.Context, n pool.Address, key string) (found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	options := []redis.DialOption{redis.DialDatabase(n.Database)}
	if n.Password != "" {
		options = append(options, redis.DialUsername(n.User), redis.DialPassword(n.Password))
	}
	if n.TLS {
		host, _, _ := net.SplitHostPort(n.Endpoint)
		options = append(options, redis.DialUseTLS(true), redis.DialTLSConfig(&tls.Config{ServerName: host}))
	}
	conn, err := redis.DialContext(ctx, n.Network, n.Endpoint, options...)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	// GET and not EXISTS: a user who may lock may do it.
	reply, err := redis.DoContext(conn, ctx, "GET", key)
	return reply != nil, err
}
