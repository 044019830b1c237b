package redlock

import (
	"sync"
	"time"
)

// maxHints bounds the names that wait to be looked at. Beyond that all locks
// are listed instead.
const maxHints = 1 << 12

// hints are the names of which something was heard since the last look.
type hints struct {
	locker  *Locker
	pattern string
	nodes   []nodeHints
	wake    chan struct{} // gets a value when there is something; capacity 1

	mu     sync.Mutex // guards what follows
	byName map[string]hint
	lost   bool // there were too many
}

// hint is what was heard of one name.
type hint struct {
	acquired bool
	released uint64        // nodes that announced it
	by       string        // whose release it was
	since    time.Duration // when the first of these announcements was heard
}

// nodeHints is the part that listens to one node.
type nodeHints struct {
	hints *hints
	node  int
}

// follow begins to listen; whoever began must close.
func (l *Locker) follow(pattern string) *hints {
	h := &hints{locker: l, pattern: pattern, wake: make(chan struct{}, 1), nodes: make([]nodeHints, len(l.pools))}
	for node, p := range l.pools {
		h.nodes[node] = nodeHints{h, node}
		p.Follow(reserved+"*", &h.nodes[node])
	}
	return h
}

func (h *hints) close() {
	for node, p := range h.locker.pools {
		p.Unfollow(reserved+"*", &h.nodes[node])
	}
}

// Subscribed is of no interest: what was missed shows in the next listing.
func (n *nodeHints) Subscribed(error) {}

// Heard takes one announcement. Anybody may publish, and messages get lost, so
// it is a reason to look and no more.
func (n *nodeHints) Heard(channel, owner string) {
	h := n.hints
	what, key, ok := announced(channel)
	name, ours := h.locker.nameOf(key, h.pattern)
	if !ok || !ours || len(owner) > maxToken {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	one, known := h.byName[name]
	if !known && len(h.byName) >= maxHints {
		h.lost = true
		signal(h.wake)
		return
	}
	switch what {
	case toldAcquired:
		one.acquired = true
	case toldReleased:
		if one.by != owner {
			one.released, one.by = 0, owner
		}
		if one.released == 0 {
			one.since = h.locker.clock.Elapsed()
		}
		one.released |= bit(n.node)
	case toldRenewed:
	default:
		return
	}
	if h.byName == nil {
		h.byName = make(map[string]hint)
	}
	h.byName[name] = one
	signal(h.wake)
}

// take returns what was heard, and whether that is not all.
func (h *hints) take() (byName map[string]hint, lost bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	drain(h.wake)
	byName, lost = h.byName, h.lost
	h.byName, h.lost = nil, false
	return byName, lost
}
