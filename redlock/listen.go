package redlock

import (
	"math/bits"
	"sync"

	"github.com/redquorum/go-redlock/internal/quorum"
)

// channelPrefix is put before a key to make the channel on which its releases
// are announced.
const channelPrefix = reserved + "released:"

// ear hears on all nodes when keys are released. What it hears is a hint.
type ear struct {
	nodes    []nodeEar
	channels []string
	locker   *Locker

	// ready is closed when a quorum hears, or so many nodes cannot be heard
	// that no quorum will.
	ready chan struct{}
	// wake gets a value when a node announced a release, or may have done so
	// while it could not be heard. Its capacity is 1.
	wake chan struct{}
	// sure gets a value when the leading node or a quorum announced. Its
	// capacity is 1.
	sure chan struct{}
	lead int

	mu      sync.Mutex // guards what follows
	hearing uint64     // nodes that have confirmed
	deaf    uint64     // nodes that cannot be heard
	heard   uint64     // nodes that announced since the last forget
	before  uint64     // the same, of the time before it
	settled bool       // ready is closed
}

// nodeEar is the part of an ear that listens to one node.
type nodeEar struct {
	ear  *ear
	node int
}

// listen makes an ear for the keys. Whoever made it must close it.
func (l *Locker) listen(keys []string, lead int) *ear {
	e := &ear{
		nodes:    make([]nodeEar, len(l.pools)),
		channels: make([]string, len(keys)),
		locker:   l,
		ready:    make(chan struct{}),
		wake:     make(chan struct{}, 1),
		sure:     make(chan struct{}, 1),
		lead:     lead,
	}
	for i, key := range keys {
		e.channels[i] = channelPrefix + key
	}
	for node, p := range l.pools {
		e.nodes[node] = nodeEar{e, node}
		for _, channel := range e.channels {
			p.Listen(channel, &e.nodes[node])
		}
	}
	return e
}

func (e *ear) close() {
	for node, p := range e.locker.pools {
		for _, channel := range e.channels {
			p.Unlisten(channel, &e.nodes[node])
		}
	}
}

// Subscribed is called by the node's pool. For several keys the first that is
// confirmed counts: the others were sent with it.
func (n *nodeEar) Subscribed(err error) {
	e := n.ear
	e.mu.Lock()
	defer e.mu.Unlock()
	again := e.hearing&bit(n.node) != 0
	if err == nil {
		e.hearing |= bit(n.node)
		e.deaf &^= bit(n.node)
	} else {
		e.hearing &^= bit(n.node)
		e.deaf |= bit(n.node)
	}
	size := quorum.Size(len(e.nodes))
	if !e.settled && (bits.OnesCount64(e.hearing) >= size || bits.OnesCount64(e.deaf) > len(e.nodes)-size) {
		e.settled = true
		close(e.ready)
	}
	if again || err == nil && e.settled {
		signal(e.wake) // something may have been missed
	}
}

// Heard is called by the node's pool.
func (n *nodeEar) Heard(string, string) {
	e := n.ear
	e.mu.Lock()
	defer e.mu.Unlock()
	e.heard |= bit(n.node)
	signal(e.wake)
	if n.node == e.lead || bits.OnesCount64(e.heard) >= quorum.Size(len(e.nodes)) {
		signal(e.sure)
	}
}

// forget puts aside what was heard, before an attempt that will see for itself.
func (e *ear) forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.heard, e.before = 0, e.heard
	drain(e.wake)
	drain(e.sure)
}

// hears reports whether a quorum of nodes can be heard now.
func (e *ear) hears() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return bits.OnesCount64(e.hearing) >= quorum.Size(len(e.nodes))
}

// contradicts reports whether a quorum has announced a release, before the
// last forget or since, of which the leading node has not heard: it still
// holds a vote that the others gave back. A node publishes before it grants the
// key to the next, so this is not what the losers of a race see.
func (e *ear) contradicts() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	heard := e.heard | e.before
	return heard&bit(e.lead) == 0 && bits.OnesCount64(heard) >= quorum.Size(len(e.nodes))
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func drain(c chan struct{}) {
	select {
	case <-c:
	default:
	}
}
