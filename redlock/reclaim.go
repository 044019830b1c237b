package redlock

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redquorum/go-redlock/internal/scripts"
	"github.com/redquorum/go-redlock/pool"
)

// Pauses between two tries to undo a claim on one node.
const (
	minReclaimPause = 25 * time.Millisecond
	maxReclaimPause = time.Second
)

// maxDoubt bounds how long an old command may still be on its way to a node
// that nobody reaches: a kernel gives up sending after about that long.
const maxDoubt = 15 * time.Minute

// maxLeftovers bounds the memory for what could not be undone yet, for each
// node. Calls to a sick node fail without being sent, so only what was under
// way when it fell sick gets here, which its pool bounds to as many. One that
// falls sick again and again can exceed that.
const maxLeftovers = 1 << 14

// reclaims undoes the votes that nobody wants. No caller waits for it, and no
// caller's context reaches it.
type reclaims struct {
	locker *Locker

	mu      sync.Mutex // guards what follows
	open    map[*leftover]struct{}
	out     int  // answers to releases that have not come yet
	closing bool // close waits for what is due
	closed  bool
	empty   chan struct{} // closed when nothing is open or out; made by close
}

// leftover is a claim on one node that must be undone. Its keys hold the token
// until a release has been answered, with two qualifications:
//
//   - The keys expire by themselves, so trying ends with the TTL.
//   - If a command that sets the keys is in doubt, the node may execute it
//     after the release. Then only a release that found the keys is proof, and
//     it is repeated until one does, or until the node, reachable again, has
//     had the length of the TTL to execute what it still had.
type leftover struct {
	*claim
	reclaims *reclaims
	node     int
	call     *scripts.Call
	began    time.Duration // when it became a leftover
	heard    time.Duration // when the node first answered; 0: not yet
	pause    time.Duration
	timer    *time.Timer // guarded by reclaims.mu
	later    bool        // guarded by reclaims.mu: its time has not come
}

// undo releases a claim on a node.
func (r *reclaims) undo(c *claim, node int, call *scripts.Call) {
	if o := r.add(c, node, call); o != nil {
		o.send()
	}
}

func (r *reclaims) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.open)
}

// expect makes close wait for n answers to a release: it returns when a quorum
// has answered, and a program that then closes and exits must not leave the
// keys on the slower nodes.
func (r *reclaims) expect(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.out += n
}

// received takes one of the answers off, after what is to be redone for it has
// been added.
func (r *reclaims) received() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.out--
	r.checkLocked()
}

// redo takes over from a release that went to a node already.
func (r *reclaims) redo(c *claim, node int, call *scripts.Call, first pool.Result) {
	if c.undone(node, first) {
		return
	}
	if o := r.add(c, node, call); o != nil {
		o.Deliver(node, first)
	}
}

// undoLater releases a claim on a node after d. Close does not wait for it.
func (r *reclaims) undoLater(c *claim, node int, call *scripts.Call, d time.Duration) {
	o := r.add(c, node, call)
	if o == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closing {
		r.removeLocked(o)
		return
	}
	o.began += d
	o.later = true
	o.timer = time.AfterFunc(d, o.send)
}

// add returns nil if the Locker has been closed, or there is no room: then the
// keys end with their TTL.
func (r *reclaims) add(c *claim, node int, call *scripts.Call) *leftover {
	o := &leftover{
		claim:    c,
		reclaims: r,
		node:     node,
		call:     call,
		began:    r.locker.clock.Elapsed(),
		pause:    minReclaimPause,
	}
	r.mu.Lock()
	closed, full := r.closed, len(r.open) >= maxLeftovers*len(r.locker.pools)
	if !closed && !full {
		if r.open == nil {
			r.open = make(map[*leftover]struct{})
		}
		r.open[o] = struct{}{}
	}
	r.mu.Unlock()
	switch {
	case closed:
		return nil
	case full:
		o.tell(0, false)
		return nil
	}
	return o
}

func (o *leftover) send() {
	r := o.reclaims
	r.mu.Lock()
	_, open := r.open[o]
	o.later = false
	r.mu.Unlock()
	if !open {
		return // Close was faster than the timer
	}
	r.locker.pools[o.node].Start(&pool.Call{
		Script: o.call,
		To:     o,
		Node:   o.node,
		Began:  r.locker.clock.Elapsed(),
	})
}

// Wanted is for calls that grant; a release does not.
func (o *leftover) Wanted() bool { return true }

// Deliver takes the answer to a release.
func (o *leftover) Deliver(node int, result pool.Result) {
	now := o.reclaims.locker.clock.Elapsed()
	if o.heard == 0 && result.Sent == pool.Answered {
		o.heard = now
	}
	undone := o.undone(node, result)
	if undone || now > o.deadline() {
		o.reclaims.remove(o)
		o.tell(max(now-o.began, 0), undone)
		return
	}
	o.reclaims.again(o)
}

func (o *leftover) tell(took time.Duration, undone bool) {
	if l := o.reclaims.locker; l.witness.on() {
		l.witness.tell(Reclaimed{Node: l.pools[o.node].Name(), Took: took, Undone: undone})
	}
}

// deadline returns when there is nothing left to undo, or no point in trying.
func (o *leftover) deadline() time.Duration {
	switch {
	case o.doubt.Load()&bit(o.node) == 0:
		return o.began + o.ttl
	case o.heard == 0:
		return o.began + max(o.ttl, maxDoubt)
	}
	return o.heard + o.ttl
}

// undone reports whether the answer to a release proves that the node holds
// nothing of the claim, now and later.
func (c *claim) undone(node int, result pool.Result) bool {
	if c.clean.Load()&bit(node) != 0 {
		return true // whatever became of the release
	}
	if result.Err != nil {
		return false
	}
	deleted, err := scripts.ParseRelease(result.Reply, len(c.keys))
	return err == nil && (deleted == len(c.keys) || c.doubt.Load()&bit(node) == 0)
}

// again tries once more, after a pause.
func (r *reclaims) again(o *leftover) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		r.removeLocked(o)
		return
	}
	pause := o.pause/2 + rand.N(o.pause/2)
	o.pause = min(2*o.pause, maxReclaimPause)
	if o.timer == nil {
		o.timer = time.AfterFunc(pause, o.send)
	} else {
		o.timer.Reset(pause)
	}
}

func (r *reclaims) remove(o *leftover) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.removeLocked(o)
}

func (r *reclaims) removeLocked(o *leftover) {
	delete(r.open, o)
	r.checkLocked()
}

func (r *reclaims) checkLocked() {
	if r.empty != nil && len(r.open) == 0 && r.out == 0 {
		close(r.empty)
		r.empty = nil
	}
}

// close waits until everything is undone, for as long as bound at the most,
// and ends what is left.
func (r *reclaims) close(bound time.Duration) {
	r.mu.Lock()
	r.closing = true
	empty := make(chan struct{})
	for o := range r.open {
		if o.later && o.timer.Stop() {
			delete(r.open, o)
		}
	}
	r.empty = empty
	r.checkLocked()
	r.mu.Unlock()

	timer := time.NewTimer(bound)
	defer timer.Stop()
	select {
	case <-empty:
	case <-timer.C:
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for o := range r.open {
		if o.timer != nil {
			o.timer.Stop()
		}
	}
	clear(r.open)
}
