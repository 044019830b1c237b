package redlock

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redquorum/go-redlock/clock"
)

// Lock is a lock that was acquired. It is safe for concurrent use.
//
// It ends in one of two ways: Release ends it, or it is lost, because its
// deadline passed, its keys were deleted or taken, or it was held for the
// maximum. An ended lock never comes back.
type Lock struct {
	locker *Locker
	names  []string
	config *lockConfig
	number int64 // the fencing number
	claim

	mu        sync.Mutex    // guards what follows; no callback runs under it
	acquired  time.Duration // when the attempt that won began
	deadline  time.Duration // up to here the lock may be relied on
	ended     error         // why the lock ended; nil while it is held
	done      chan struct{} // made by Done
	followers map[*follower]struct{}
	timer     *time.Timer // fires at the next moment that matters, if anybody cares
	renewAt   time.Duration
	renewal   *renewal     // under way
	failure   *QuorumError // of the last renewal, without an outcome; nil if that went well
	releasing *release     // begun by the first Release
	handed    bool         // a caller has the lock, and an observer was told so

	// Added to with mu held, before Release has begun, which waits for both.
	sending sync.WaitGroup // renewals that have not been sent to all nodes yet
	telling sync.WaitGroup // calls of the observer about this lock
}

// follower is a context that ends with the lock.
type follower struct{ cancel context.CancelCauseFunc }

func (l *Locker) newLock(t *target, token string) *Lock {
	return &Lock{
		locker: l,
		names:  t.names,
		config: t.lockConfig,
		claim:  claim{keys: t.keys, token: token, ttl: t.ttl},
	}
}

// Name returns the name of the lock; the first in sorted order, if there are
// several.
func (k *Lock) Name() string { return k.names[0] }

// Names returns all names of the lock, sorted.
func (k *Lock) Names() []string { return append([]string(nil), k.names...) }

// Token returns the value that the keys hold. Anyone who knows it can release
// the lock: treat it as a secret.
func (k *Lock) Token() string { return k.token }

// Owner returns the label that the token carries.
func (k *Lock) Owner() string { return ownerOf(k.token) }

// Validity returns for how long the lock may still be relied on. It is never
// more than the truth, as long as clock rates differ by less than the drift
// factor, and 0 once the lock was released or lost.
func (k *Lock) Validity() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ended != nil {
		return 0
	}
	return max(k.leftLocked(), 0)
}

// Err returns nil while the lock is held, ErrReleased after Release, and
// otherwise an error that is ErrLost and says why.
func (k *Lock) Err() error {
	k.mu.Lock()
	end := k.expireLocked()
	err := k.ended
	k.mu.Unlock()
	end.tell()
	return err
}

// Done returns a channel that is closed when the lock is released or lost: at
// its deadline at the latest, even if no node answers.
func (k *Lock) Done() <-chan struct{} {
	k.mu.Lock()
	end := k.expireLocked()
	if k.done == nil {
		k.done = make(chan struct{})
		if k.ended != nil {
			close(k.done)
		}
		k.armLocked()
	}
	done := k.done
	k.mu.Unlock()
	end.tell()
	return done
}

// Context returns a context that is cancelled, with the lock's Err as its
// cause, when the lock is released or lost; and when parent or the returned
// function says so. Call that function when done.
func (k *Lock) Context(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	f := &follower{cancel}
	k.mu.Lock()
	end := k.expireLocked()
	err := k.ended
	if err == nil {
		if k.followers == nil {
			k.followers = make(map[*follower]struct{})
		}
		k.followers[f] = struct{}{}
		k.armLocked()
	}
	k.mu.Unlock()
	end.tell()
	if err != nil {
		cancel(err)
	}
	return ctx, func() {
		k.mu.Lock()
		delete(k.followers, f)
		k.mu.Unlock()
		cancel(context.Canceled)
	}
}

// hold begins the lease of the attempt that began at began.
func (k *Lock) hold(began time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.acquired = began
	k.extendLocked(began)
}

// keep begins to renew the lock, if that is wanted. Not before it is certain
// that the attempt has won: a timer would outlive one that failed, and renew
// what is being undone.
func (k *Lock) keep() {
	if !k.config.autoRenew {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.armLocked()
}

// extendLocked moves the deadline to where a quorum of leases that were asked
// for at began puts it, and never back.
func (k *Lock) extendLocked(began time.Duration) {
	deadline := clock.Deadline(began, k.ttl, k.config.driftFactor)
	if most := k.config.maxHold; most > 0 {
		deadline = min(deadline, k.acquired+most)
	}
	k.deadline = max(k.deadline, deadline)
	// A third of the TTL leaves time for two more tries. Locks acquired
	// together do not stay together.
	third := k.ttl / 3
	k.renewAt = began + third - rand.N(third/8+1)
}

// left returns how much validity is left; it may be negative.
func (k *Lock) left() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.leftLocked()
}

func (k *Lock) leftLocked() time.Duration {
	return k.deadline - k.locker.clock.Elapsed()
}

// ending is what is left to do about the end of a lock once its mutex is free.
type ending struct {
	lock      *Lock
	why       error
	followers map[*follower]struct{}
	held      time.Duration
	observed  bool
}

// tell tells everybody who wants to know. A nil ending has nothing to tell.
func (e *ending) tell() {
	if e == nil {
		return
	}
	for f := range e.followers {
		f.cancel(e.why)
	}
	if e.observed {
		e.observe()
	}
	if errors.Is(e.why, ErrLost) {
		e.lock.locker.logger.Warn("lock lost", "names", e.lock.names, "owner", e.lock.Owner(), "reason", e.why)
	}
}

// expireLocked ends the lock if its deadline has passed.
func (k *Lock) expireLocked() *ending {
	if k.ended != nil || k.leftLocked() > 0 {
		return nil
	}
	kind, reason := LossExpired, "expired"
	if most := k.config.maxHold; most > 0 && k.deadline == k.acquired+most {
		kind, reason = LossMaxHold, "held for the maximum of "+most.String()
	}
	lost := &lossError{names: k.names, kind: kind, reason: reason}
	if k.failure != nil {
		lost.cause = k.failure // which nodes did not renew it
	}
	return k.endLocked(lost)
}

// endLocked ends the lock for good.
func (k *Lock) endLocked(why error) *ending {
	k.ended = why
	if k.done != nil {
		close(k.done)
	}
	if k.timer != nil {
		k.timer.Stop()
		k.locker.watch.remove(k)
	}
	end := &ending{lock: k, why: why, followers: k.followers}
	if k.handed && why != ErrReleased { //nolint:errorlint // it is one of ours
		end.held = min(k.locker.clock.Elapsed(), k.deadline) - k.acquired
		end.observed = k.tellsLocked()
	}
	k.followers = nil
	return end
}

// armLocked sets the timer to the next moment that matters: the deadline, or
// the next renewal. A lock that nobody watches and nobody renews needs none.
func (k *Lock) armLocked() {
	watched := k.done != nil || len(k.followers) > 0 || k.handed
	if k.ended != nil || !watched && !k.config.autoRenew {
		return
	}
	next := k.deadline
	if k.renewsLocked() {
		next = min(next, k.renewAt)
	}
	d := next - k.locker.clock.Elapsed()
	if k.timer == nil {
		k.timer = time.AfterFunc(d, k.tick)
		k.locker.watch.add(k)
	} else {
		k.timer.Reset(d)
	}
}

// renewsLocked reports whether the next renewal is the timer's to begin.
func (k *Lock) renewsLocked() bool {
	return k.ended == nil && k.config.autoRenew && k.renewal == nil && !k.locker.isClosed()
}

// tick does what the moment asks for.
func (k *Lock) tick() {
	k.mu.Lock()
	end := k.expireLocked()
	var r *renewal
	if k.renewsLocked() && k.locker.clock.Elapsed() >= k.renewAt && k.locker.enter() {
		r = k.newRenewalLocked()
	}
	k.armLocked()
	k.mu.Unlock()
	end.tell()
	if r != nil {
		r.send()
		k.locker.calls.Done()
	}
}
