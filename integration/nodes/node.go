package nodes

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
)

// A Node is one Redis server. Its address stays the same whatever is done to it.
//
// The methods that do something to it return when it is done, and may be called from any goroutine; when one
// fails, it marks the test as failed and returns.
type Node struct {
	cluster *Cluster
	index   int

	mu     sync.Mutex // one thing at a time is done to a node; guards driver's calls but addr
	driver driver
}

// adminPatience bounds each command of the harness itself. A paused node makes it wait that long.
const adminPatience = 5 * time.Second

// pollInterval is the pause between two questions whether a node is ready.
const pollInterval = 20 * time.Millisecond

// Addr returns "host:port", or "unix:///path" for a node started [WithUnixSocket].
func (n *Node) Addr() string {
	if n.cluster.config.unixSocket {
		return "unix://" + n.driver.addr()
	}
	return n.driver.addr()
}

// URL returns the address as redis://, rediss:// or unix://, with the credentials of [WithACL].
func (n *Node) URL() string {
	conf := n.cluster.config
	u := url.URL{Scheme: "redis", Host: n.driver.addr()}
	switch {
	case conf.unixSocket:
		u = url.URL{Scheme: "unix", Path: n.driver.addr()}
	case conf.tls:
		u.Scheme = "rediss"
	}
	if conf.user != "" {
		u.User = url.UserPassword(conf.user, conf.password)
	}
	return u.String()
}

// Start starts a stopped or killed node, and returns when it answers.
func (n *Node) Start() {
	n.cluster.tb.Helper()
	n.do("start", driver.start)
	n.WaitReady()
}

// Stop ends the server in the orderly way. Only with [WithAOF] does it know its keys after the next start.
func (n *Node) Stop() {
	n.cluster.tb.Helper()
	n.do("stop", driver.stop)
}

// Kill ends the server with SIGKILL.
func (n *Node) Kill() {
	n.cluster.tb.Helper()
	n.do("kill", driver.kill)
}

// RestartEmpty kills the server and starts it without any data, even [WithAOF]; it returns when the new one
// answers.
func (n *Node) RestartEmpty() {
	n.cluster.tb.Helper()
	n.do("restart empty", func(d driver, ctx context.Context) error {
		if err := d.kill(ctx); err != nil {
			return err
		}
		if err := d.wipe(ctx); err != nil {
			return err
		}
		return d.start(ctx)
	})
	n.WaitReady()
}

// Pause makes the server hang: connections are accepted (by the kernel), and nothing is answered or forgotten;
// what was sent meanwhile is executed after [Node.Resume].
func (n *Node) Pause() {
	n.cluster.tb.Helper()
	n.do("pause", driver.pause)
}

// Resume ends [Node.Pause], and returns when the server answers.
func (n *Node) Resume() {
	n.cluster.tb.Helper()
	n.do("resume", driver.resume)
	n.WaitReady()
}

// Disconnect takes a container off its network. What a client sees of it depends on the engine: connections
// that end, and new ones that are refused or reset. The server runs on and keeps its data.
func (n *Node) Disconnect() {
	n.cluster.tb.Helper()
	n.do("disconnect", driver.disconnect)
}

// Reconnect ends [Node.Disconnect], and returns when the server answers.
func (n *Node) Reconnect() {
	n.cluster.tb.Helper()
	n.do("reconnect", driver.reconnect)
	n.WaitReady()
}

// WaitReady waits until the node answers PING, or fails the test.
func (n *Node) WaitReady() {
	n.cluster.tb.Helper()
	if err := n.waitReady(); err != nil {
		n.cluster.tb.Error(err)
	}
}

// Do executes a command on a connection of its own, with all rights.
func (n *Node) Do(cmd string, args ...any) (any, error) {
	conn, err := n.dial(context.Background())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.Do(cmd, args...)
}

// Dial opens a connection with all rights. The caller closes it.
func (n *Node) Dial() (redis.Conn, error) { return n.dial(context.Background()) }

// Keys returns all keys of the node, sorted.
func (n *Node) Keys() []string {
	n.cluster.tb.Helper()
	keys, err := redis.Strings(n.Do("KEYS", "*"))
	if err != nil {
		n.cluster.tb.Errorf("nodes: keys of %s: %v", n, err)
	}
	slices.Sort(keys)
	return keys
}

// String names the node in messages.
func (n *Node) String() string {
	return fmt.Sprintf("node %d (%s, %s)", n.index, n.cluster.kind, n.Addr())
}

// do runs one step of the driver's.
func (n *Node) do(what string, step func(driver, context.Context) error) {
	n.cluster.tb.Helper()
	// Not the test's context: that one is over in cleanups, which may well heal nodes.
	ctx, cancel := context.WithTimeout(context.Background(), startPatience)
	defer cancel()
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := step(n.driver, ctx); err != nil {
		n.cluster.tb.Errorf("nodes: %s %s: %v", what, n, err)
	}
}

func (n *Node) waitReady() error {
	ctx, cancel := context.WithTimeout(context.Background(), startPatience)
	defer cancel()
	if err := awaitAnswer(ctx, n.cluster.config, n.driver); err != nil {
		return fmt.Errorf("nodes: %s is not ready: %w\n%s", n, err, n.driver.log())
	}
	return nil
}

func (n *Node) dial(ctx context.Context) (redis.Conn, error) {
	return dial(ctx, n.cluster.config, n.driver.addr())
}

// dial opens the harness's own connection to a server.
func dial(ctx context.Context, conf *config, addr string) (redis.Conn, error) {
	network := "tcp"
	if conf.unixSocket {
		network = "unix"
	}
	opts := []redis.DialOption{
		redis.DialConnectTimeout(adminPatience),
		redis.DialReadTimeout(adminPatience),
		redis.DialWriteTimeout(adminPatience),
	}
	if conf.adminUser != "" {
		opts = append(opts, redis.DialUsername(conf.adminUser), redis.DialPassword(conf.adminPassword))
	}
	if conf.tls {
		opts = append(opts, redis.DialUseTLS(true), redis.DialTLSConfig(conf.clientTLS()))
	}
	return redis.DialContext(ctx, network, addr, opts...)
}

// errEnded says that a server is known to be down, so that nobody need wait for it any longer.
var errEnded = errors.New("the server has ended")

// awaitAnswer asks until the driver's server answers, it is known to be down, or ctx ends.
func awaitAnswer(ctx context.Context, conf *config, d driver) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		err := ask(ctx, conf, d)
		if err == nil || errors.Is(err, errEnded) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; the last answer was: %w", ctx.Err(), err)
		case <-ticker.C:
		}
	}
}

// ask returns nil when the server answers, and is the right one.
func ask(ctx context.Context, conf *config, d driver) error {
	if err := d.owns(0); err != nil {
		return err
	}
	conn, err := dial(ctx, conf, d.addr())
	if err != nil {
		return err
	}
	defer conn.Close()
	// Before PING is asked for, as PING may be answered by a stranger who took the port before our server could.
	info, err := redis.String(conn.Do("INFO", "server"))
	if err != nil {
		return err
	}
	if err := d.owns(processID(info)); err != nil {
		return err
	}
	_, err = conn.Do("PING")
	return err
}

// processID finds the process id in the reply of INFO; 0 when it is not there.
func processID(info string) int {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, "process_id:"); ok {
			id, _ := strconv.Atoi(strings.TrimSpace(value))
			return id
		}
	}
	return 0
}

// tail returns the last lines of a log.
func tail(log string) string {
	const lines = 15
	var last []string
	scanner := bufio.NewScanner(strings.NewReader(log))
	for scanner.Scan() {
		last = append(last, scanner.Text())
	}
	if len(last) > lines {
		last = last[len(last)-lines:]
	}
	return strings.Join(last, "\n")
}
