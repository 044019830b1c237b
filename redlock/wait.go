package redlock

import (
	"context"
	"errors"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"time"

	"github.com/redquorum/go-redlock/clock"
)

// persist makes attempts until one succeeds or there is a reason to stop.
//
// Callers of one process queue up for a lock, and the first contends for it.
// After an attempt that found the lock held it listens for the release: it
// subscribes, tries once more, for the release may have come before the
// subscription, and only then sleeps. What wakes it is an announcement, the
// end of the holder's TTL, or the poll interval, for some holders announce
// nothing.
func (l *Locker) persist(ctx context.Context, t *target) (*Lock, error) {
	key := t.keys[0]
	if len(t.keys) > 1 {
		key = reserved + quoted(t.keys) // no single key begins like that
	}
	joined := l.clock.Elapsed()
	line := l.queues.join(ctx, key, l.closing)
	if line == nil {
		return nil, l.interrupted(ctx, t, nil)
	}
	defer l.queues.leave(key, line)

	p := patience{target: t, locker: l, roundTrip: minRoundTrip}
	// An outage that those before us have met is ours, too, from the moment
	// we came: they must not spend their tolerance one after another.
	p.outage, p.since = line.outage, max(line.since, joined)
	how := together
	if rest := line.held - l.clock.Elapsed(); rest > 0 && line.ear != nil && line.ear.hears() {
		// The head before us holds the lock, and we would have heard of its
		// release.
		how = p.awaitRelease(ctx, line.ear, min(quietPolls*p.poll(), rest))
		how.repeats = true
	}
	line.held = 0
	var last *QuorumError // the last attempt that came to an outcome
	for {
		if ctx.Err() != nil || l.isClosed() {
			return nil, l.interrupted(ctx, t, last)
		}
		if line.ear != nil {
			line.ear.forget()
		}
		if p.maxAttempts > 0 && p.attempts+1 >= p.maxAttempts {
			how.leads = false // the last word is not one node's
		}
		began := l.clock.Elapsed()
		k, err := l.attempt(ctx, t, how)
		if err == nil {
			line.held, line.outage = began+t.ttl+time.Millisecond, false
			return k, nil
		}
		var failed *QuorumError
		if !errors.As(err, &failed) {
			return nil, err
		}
		if failed.ended != nil && last != nil {
			// Cut short, it has found out nothing; the one before has.
			return nil, l.interrupted(ctx, t, last)
		}
		last = failed
		exhausted := p.exhausted(failed)
		line.outage, line.since = p.outage, p.since
		if exhausted {
			return nil, err
		}
		p.roundTrip = min(max(l.clock.Elapsed()-began, minRoundTrip), l.timeout)
		how = p.wait(ctx, line, failed, how)
		how.repeats = true
	}
}

// wait returns when it is time for the next attempt, and how that is to be
// made.
func (p *patience) wait(ctx context.Context, line *line, failed *QuorumError, how approach) approach {
	l := p.locker
	if !how.leads {
		p.ends = l.clock.Elapsed() + min(failed.wait, clock.Longest)
	}
	switch {
	case !p.held(failed):
		l.await(ctx, nil, p.backOff(failed))
	case line.ear == nil:
		line.ear = l.listen(p.keys, l.leading(p.keys))
		l.await(ctx, line.ear.ready, p.sleep(failed, 1))
	case !line.ear.hears():
		l.await(ctx, line.ear.wake, p.sleep(failed, 1))
	case how.leads && line.ear.contradicts():
		l.await(ctx, nil, rand.N(p.roundTrip))
	case failed.Granted > 0 || failed.silent || how.leads:
		// We may never hear of this one: some votes belong to nobody's lock,
		// or the holder's library announces nothing, or only one node was asked.
		return p.awaitRelease(ctx, line.ear, p.sleep(failed, 1))
	default:
		return p.awaitRelease(ctx, line.ear, p.sleep(failed, quietPolls))
	}
	return together
}

// awaitRelease waits for announcements, for d at the most. After the first
// there is a pause of a few round trips for that of the leading node, or of a
// quorum, to follow: it may be a late one of a release that others have long
// made use of.
//
// What the leading node says is not believed for longer than a poll interval,
// however many announcements come: it may hold a vote that nobody undoes.
func (p *patience) awaitRelease(ctx context.Context, e *ear, d time.Duration) approach {
	if !p.locker.await(ctx, e.wake, d) {
		p.askAll = 0
		return together
	}
	p.locker.await(ctx, e.sure, lateness*p.roundTrip)
	now := p.locker.clock.Elapsed()
	if p.askAll == 0 {
		p.askAll = now + p.poll()
	} else if now >= p.askAll {
		p.askAll = 0
		return together
	}
	return approach{leads: true, lead: e.lead, patience: min(2*p.roundTrip, p.locker.timeout/2)}
}

// leading returns the node that contenders for the keys ask first: the same
// for all clients with the same list of nodes, but not the same for all keys.
func (l *Locker) leading(keys []string) int {
	h := fnv.New32a()
	_, _ = io.WriteString(h, keys[0]) // never fails
	first := int(h.Sum32() % uint32(len(l.order)))
	for i := range l.order {
		if node := l.order[(first+i)%len(l.order)]; !l.pools[node].Suspect() {
			return node
		}
	}
	return l.order[first]
}

// interrupted returns the error of a wait that ctx or Close has ended, with
// what the last attempt met.
func (l *Locker) interrupted(ctx context.Context, t *target, last *QuorumError) error {
	ended := contextError(ctx)
	if ended == nil {
		return ErrClosed
	}
	if last == nil {
		return l.nothingSent("acquire", t.names, ended)
	}
	last.ended = ended
	return last
}

// await returns when c says so, after d, or when ctx ends or the Locker is
// closed. It reports whether it was c.
func (l *Locker) await(ctx context.Context, c <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-c:
		return true
	case <-timer.C:
	case <-ctx.Done():
	case <-l.closing:
	}
	return false
}

// quietPolls is how much less often Acquire polls while a quorum of nodes
// would announce the release.
const quietPolls = 10

// minRoundTrip stands in for a round trip that is not known, or was cut short.
const minRoundTrip = 250 * time.Microsecond

// patience decides whether and when Acquire tries again.
type patience struct {
	*target
	locker *Locker

	roundTrip time.Duration // as the last attempt shows it, which may have taken several
	attempts  int
	outage    bool          // the last attempt found no quorum
	since     time.Duration // the outage began
	ends      time.Duration // when a quorum will be free, by the last attempt that asked all nodes
	splits    int           // attempts in a row that won some votes, not enough
	askAll    time.Duration // when the leading node must not be the only one to be asked; 0: open
}

// exhausted reports whether the attempt that failed was the last.
func (p *patience) exhausted(failed *QuorumError) bool {
	p.attempts++
	outage := errors.Is(failed, ErrNoQuorum)
	if outage && !p.outage {
		p.since = p.locker.clock.Elapsed()
	}
	p.outage = outage
	switch {
	case failed.ended != nil, failed.fatal, errors.Is(failed, ErrClosed):
		return true
	case p.maxAttempts > 0 && p.attempts >= p.maxAttempts:
		return true
	}
	return outage && p.locker.clock.Elapsed()-p.since >= p.outageTolerance
}

// maxSplits is how many attempts in a row may win some votes, but not enough,
// before somebody is taken to hold the rest: a lock may have been acquired on a
// bare quorum. It also bounds the back-off, to 2^4 round trips.
const maxSplits = 4

// held reports whether an attempt failed because somebody holds the lock,
// rather than because contenders took the votes from each other or nodes did
// not answer.
func (p *patience) held(failed *QuorumError) bool {
	switch {
	case !errors.Is(failed, ErrTaken):
		p.splits = 0
		return false
	case failed.Granted == 0:
		p.splits = 0
		return true
	}
	p.splits++
	return p.splits > maxSplits
}

// sleep returns how long to wait while others hold the lock, if nothing is
// heard: the poll interval, times slower, but not beyond the end of the
// holder's TTL.
func (p *patience) sleep(failed *QuorumError, slower int) time.Duration {
	d := time.Duration(slower) * p.poll()
	// One node alone may have a vote that nobody undoes, and know nothing of
	// what the others said before.
	left := min(failed.wait, max(0, p.ends-p.locker.clock.Elapsed()))
	// Redis expires keys with a precision of a millisecond.
	return min(d, left+time.Millisecond)
}

func (p *patience) poll() time.Duration { return p.minDelay + rand.N(p.maxDelay-p.minDelay+1) }

// backOff returns how long to wait after an attempt that found no holder.
// Contenders for split votes that try again one after another, rather than all
// at once, get it within a few round trips, so the unit is the round trip and
// not a fixed time.
func (p *patience) backOff(failed *QuorumError) time.Duration {
	if !errors.Is(failed, ErrTaken) {
		// The retry delay is about holders that announce nothing; nodes can be
		// back at any time.
		rest := p.since + p.outageTolerance - p.locker.clock.Elapsed()
		return min(p.poll(), DefaultMinRetryDelay+rand.N(DefaultMaxRetryDelay-DefaultMinRetryDelay), max(0, rest))
	}
	return min(rand.N(p.roundTrip<<p.splits), max(p.maxDelay, 4*p.roundTrip))
}
