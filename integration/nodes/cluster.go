package nodes

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// startPatience bounds every step that waits for a node: its start, its stop, its first answer. It is for machines
// that have much else to do; a server that has ended is noticed at once.
const startPatience = time.Minute

// A Cluster is a set of nodes that know nothing of each other.
type Cluster struct {
	tb     testing.TB
	kind   Kind
	config *config
	nodes  []*Node
}

// Start starts n nodes, waits until each of them answers, and ends them when the test ends. It fails the test
// when that cannot be had, and skips it when the options ask for what the kind of nodes at hand does not have.
func Start(tb testing.TB, n int, opts ...Option) *Cluster {
	tb.Helper()
	c, err := chosen()
	if err != nil {
		tb.Fatal(err)
	}
	announce()
	return start(tb, c, n, opts...)
}

func start(tb testing.TB, c choice, n int, opts ...Option) *Cluster {
	tb.Helper()
	conf, err := newConfig(opts)
	if err != nil {
		tb.Fatal(err)
	}
	if why := conf.unavailable(c.kind); why != "" {
		tb.Skip("nodes: " + why)
	}
	drivers, err := newDrivers(tb, c, conf, n)
	if err != nil {
		tb.Fatalf("nodes: %d nodes of kind %s: %v", n, c.kind, err)
	}
	cluster := &Cluster{tb: tb, kind: c.kind, config: conf}
	for i, d := range drivers {
		cluster.nodes = append(cluster.nodes, &Node{cluster: cluster, index: i, driver: d})
	}
	if err := cluster.each(func(n *Node) error { return n.waitReady() }); err != nil {
		tb.Fatal(err)
	}
	return cluster
}

// newDrivers starts the servers. What it started ends with the test, even when it returns an error.
func newDrivers(tb testing.TB, c choice, conf *config, n int) ([]driver, error) {
	tb.Helper()
	switch c.kind {
	case Container:
		return startContainers(tb, c.image, conf, n)
	case Process:
		return startProcesses(tb, c.binary, conf, n)
	case Embedded:
		return startEmbedded(tb, conf, n)
	default:
		return nil, fmt.Errorf("unknown kind %q", c.kind)
	}
}

// Kind returns what the nodes are made of.
func (c *Cluster) Kind() Kind { return c.kind }

// Len returns the number of nodes.
func (c *Cluster) Len() int { return len(c.nodes) }

// Node returns node i, counted from 0.
func (c *Cluster) Node(i int) *Node { return c.nodes[i] }

// Nodes returns all nodes.
func (c *Cluster) Nodes() []*Node { return append([]*Node(nil), c.nodes...) }

// Addrs returns the address of every node; see [Node.Addr].
func (c *Cluster) Addrs() []string {
	addrs := make([]string, len(c.nodes))
	for i, n := range c.nodes {
		addrs[i] = n.Addr()
	}
	return addrs
}

// URLs returns the URL of every node; see [Node.URL].
func (c *Cluster) URLs() []string {
	urls := make([]string, len(c.nodes))
	for i, n := range c.nodes {
		urls[i] = n.URL()
	}
	return urls
}

// TLSConfig returns what a client needs to speak with nodes started [WithTLS]; nil for others. The caller may
// change it.
func (c *Cluster) TLSConfig() *tls.Config { return c.config.clientTLS() }

// Supports says whether the nodes can have the fault.
func (c *Cluster) Supports(f Fault) bool { return supported[c.kind][f] }

// Require skips the test unless the nodes can have all of the faults.
func (c *Cluster) Require(faults ...Fault) {
	c.tb.Helper()
	for _, f := range faults {
		if !c.Supports(f) {
			c.tb.Skipf("nodes: nodes of kind %s cannot have the fault %q", c.kind, f)
		}
	}
}

// each does something to all nodes at once, and returns all errors.
func (c *Cluster) each(do func(*Node) error) error {
	return parallel(len(c.nodes), func(i int) error { return do(c.nodes[i]) })
}

// parallel calls do for 0 … n-1 at once, waits for all of them and joins their errors.
func parallel(n int, do func(i int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = do(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// A Fault is something that happens to a node.
type Fault string

// The faults. Not every kind of node can have each of them; see [Cluster.Supports].
const (
	// Stopping is [Node.Stop] and [Node.Start].
	Stopping Fault = "stop"
	// Killing is [Node.Kill].
	Killing Fault = "kill"
	// Forgetting is [Node.RestartEmpty].
	Forgetting Fault = "restart empty"
	// Pausing is [Node.Pause] and [Node.Resume].
	Pausing Fault = "pause"
	// Disconnecting is [Node.Disconnect] and [Node.Reconnect]. Only containers have a network of their own to
	// be taken off; in front of other nodes, package proxy can stall or cut connections.
	Disconnecting Fault = "disconnect"
)

var supported = map[Kind]map[Fault]bool{
	Container: {Stopping: true, Killing: true, Forgetting: true, Pausing: true, Disconnecting: true},
	Process:   {Stopping: true, Killing: true, Forgetting: true, Pausing: true},
	Embedded:  {Stopping: true, Killing: true, Forgetting: true, Pausing: true},
}

// A driver is one server of one kind. Its methods return when the thing is done; none waits for the server to
// answer, which is the same for all kinds and so is done above them. The methods of one driver are never called
// concurrently: Node sees to it.
type driver interface {
	// addr is host:port or the path of a Unix socket; it never changes.
	addr() string
	start(ctx context.Context) error
	stop(ctx context.Context) error
	kill(ctx context.Context) error
	// wipe forgets all data of a server that is down.
	wipe(ctx context.Context) error
	pause(ctx context.Context) error
	resume(ctx context.Context) error
	disconnect(ctx context.Context) error
	reconnect(ctx context.Context) error
	// owns says whether the server that answers at the address, with the process id it reports, may be this
	// one, and fails when this one is known to have ended.
	owns(processID int) error
	// log is the end of what the server printed, for error messages.
	log() string
}

// oneLine makes the text of an error fit for a sentence.
func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}

// hostPort also brackets IPv6 addresses.
func hostPort(host string, port int) string {
	return net.JoinHostPort(host, fmt.Sprint(port))
}
