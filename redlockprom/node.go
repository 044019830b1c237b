package redlockprom

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/redquorum/go-redlock/redlock"
)

// disabledFor is how long a node counts as unable to grant after it has answered
// an attempt with an error. A vote that is no error ends it sooner; but a node
// that is the slowest of all is hardly ever heard before the outcome is certain.
const disabledFor = 5 * time.Minute

// nodes are those that a Locker has, as far as they have shown.
type nodes struct {
	vectors                           *vectors
	began                             time.Time
	up, quarantined, configured, left *prometheus.Desc

	mu   sync.RWMutex // guards what follows
	seen map[string]*node
	size int // how many there are; 0: not known yet
}

// node is what is known of a node.
type node struct {
	votes    [redlock.VoteUnknown + 1]prometheus.Counter
	errors   [len(kinds)]prometheus.Counter
	reclaims [2]prometheus.Counter // undone, expired

	state    atomic.Uint32
	grants   atomic.Int64 // when the quarantine ends, by nodes.now
	disabled atomic.Int64 // until when its last error counts, likewise; 0: not
}

// The states of a node.
const (
	stateUnknown = iota
	stateUp
	stateDown
)

func (n *nodes) init(own prometheus.Labels, v *vectors) {
	n.vectors, n.began, n.seen = v, time.Now(), make(map[string]*node)
	n.up = prometheus.NewDesc("redlock_node_up", "0 if calls to the node fail at once.", []string{"node"}, own)
	n.quarantined = prometheus.NewDesc("redlock_node_quarantined", "1 if the restart guard keeps the node from granting.", []string{"node"}, own)
	n.configured = prometheus.NewDesc("redlock_nodes", "Nodes that the Locker is configured with.", nil, own)
	n.left = prometheus.NewDesc("redlock_quorum_margin", "Nodes that can fail before nothing can be acquired.", nil, own)
}

// now is the time since the beginning.
func (n *nodes) now() time.Duration { return time.Since(n.began) }

func (n *nodes) get(name string) *node {
	n.mu.RLock()
	found := n.seen[name]
	n.mu.RUnlock()
	if found != nil {
		return found
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.getLocked(name)
}

func (n *nodes) getLocked(name string) *node {
	found := n.seen[name]
	if found == nil {
		found = n.vectors.node(name)
		n.seen[name] = found
	}
	return found
}

// node makes the time series of a node, all of them with 0.
func (v *vectors) node(name string) *node {
	n := &node{reclaims: [2]prometheus.Counter{
		v.reclaims.WithLabelValues(name, "undone"), v.reclaims.WithLabelValues(name, "expired"),
	}}
	for i := range n.votes {
		n.votes[i] = v.votes.WithLabelValues(name, redlock.Vote(i).String())
	}
	for i, kind := range kinds {
		n.errors[i] = v.errors.WithLabelValues(name, kind)
	}
	return n
}

// attempted counts the votes of an attempt to acquire.
func (n *nodes) attempted(votes []redlock.NodeVote) {
	n.voted(votes)
	for i := range votes {
		n.get(votes[i].Node).tested(&votes[i], n.now())
	}
}

// voted counts votes. Each event about votes has one of every node.
func (n *nodes) voted(votes []redlock.NodeVote) {
	n.mu.RLock()
	known := n.size != 0
	n.mu.RUnlock()
	if !known {
		n.mu.Lock()
		n.size = len(votes)
		n.mu.Unlock()
	}
	for i := range votes {
		v, node := &votes[i], n.get(votes[i].Node)
		node.votes[v.Vote].Inc()
		if v.Vote == redlock.VoteFailed || v.Vote == redlock.VoteUnknown {
			node.errors[kindOf(v.Err)].Inc()
		}
	}
}

// tested learns from a vote in an attempt whether the node can grant. Votes in
// renewals and releases do not tell: those work under OOM, for example.
func (n *node) tested(v *redlock.NodeVote, at time.Duration) {
	switch v.Vote {
	case redlock.VoteGranted, redlock.VoteRefused:
		n.disabled.Store(0)
	case redlock.VoteFailed:
		if kindOf(v.Err).disables() {
			n.disabled.Store(int64(at + disabledFor))
		}
	case redlock.VotePending, redlock.VoteUnknown:
	}
}

func (n *node) reclaimed(undone bool) {
	if undone {
		n.reclaims[0].Inc()
	} else {
		n.reclaims[1].Inc()
	}
}

func (n *node) setUp(up bool) {
	if up {
		n.state.Store(stateUp)
	} else {
		n.state.Store(stateDown)
	}
}

func (n *node) quarantine(end time.Duration) { n.grants.Store(int64(end)) }

func (n *node) isQuarantined(at time.Duration) bool { return time.Duration(n.grants.Load()) > at }

// able reports whether the node can grant, as far as is known.
func (n *node) able(at time.Duration) bool {
	return n.state.Load() != stateDown && !n.isQuarantined(at) && time.Duration(n.disabled.Load()) <= at
}

func (n *nodes) describe(ch chan<- *prometheus.Desc) {
	ch <- n.up
	ch <- n.quarantined
	ch <- n.configured
	ch <- n.left
}

func (n *nodes) collect(ch chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, value int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(value), labels...)
	}
	at, able := n.now(), 0
	seen, size := n.snapshot()
	for name, node := range seen {
		if state := node.state.Load(); state != stateUnknown {
			gauge(n.up, oneIf(state == stateUp), name)
		}
		gauge(n.quarantined, oneIf(node.isQuarantined(at)), name)
		able += oneIf(node.able(at))
	}
	if size > 0 {
		gauge(n.configured, size)
		gauge(n.left, able-(size/2+1))
	}
}

// snapshot is for sending metrics without holding the mutex.
func (n *nodes) snapshot() (map[string]*node, int) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return maps.Clone(n.seen), n.size
}

func oneIf(yes bool) int {
	if yes {
		return 1
	}
	return 0
}
