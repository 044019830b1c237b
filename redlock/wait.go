package redlock

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/redquorum/go-redlock/clock"
	"github.com/redquorum/go-redlock/internal/scripts"
)

// persist makes attempts until one succeeds or there is a reason to stop.
func (l *Locker) persist(ctx context.Context, t *target) (*Lock, error) {
	p := patience{target: t, clock: l.clock}
	for {
		began := l.clock.Elapsed()
		k, err := l.attempt(ctx, t)
		if err == nil {
			return k, nil
		}
		var failed *QuorumError
		if !errors.As(err, &failed) || p.exhausted(failed) {
			return nil, err
		}
		l.pause(ctx, p.delay(failed, l.clock.Elapsed()-began))
		if failed.ended = contextError(ctx); failed.ended != nil {
			return nil, failed
		}
		if l.isClosed() {
			return nil, ErrClosed
		}
	}
}

// pause returns after d, or earlier if ctx ends or the Locker is closed.
func (l *Locker) pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-l.closing:
	}
}

// patience decides whether and when Acquire tries again.
type patience struct {
	*target
	clock clock.Clock

	attempts int
	outage   bool          // the last attempt found no quorum
	since    time.Duration // the outage began
	splits   int           // attempts in a row that won some votes, not enough
}

// exhausted reports whether the attempt that failed was the last.
func (p *patience) exhausted(failed *QuorumError) bool {
	p.attempts++
	outage := errors.Is(failed, ErrNoQuorum)
	if outage && !p.outage {
		p.since = p.clock.Elapsed()
	}
	p.outage = outage
	switch {
	case failed.ended != nil, failed.fatal, errors.Is(failed, ErrClosed):
		return true
	case p.maxAttempts > 0 && p.attempts >= p.maxAttempts:
		return true
	}
	return outage && p.clock.Elapsed()-p.since >= p.outageTolerance
}

// maxSplits stops the back-off of split votes from growing: 2^6 round trips
// are enough to tell many contenders apart.
const maxSplits = 6

// delay returns how long to wait after an attempt that failed and took took.
func (p *patience) delay(failed *QuorumError, took time.Duration) time.Duration {
	if failed.Granted > 0 && errors.Is(failed, ErrTaken) {
		// A split vote: nobody need hold the lock. Contenders that try again
		// one after another, rather than all at once, get it within a few round
		// trips, so the unit is the round trip and not a fixed time.
		p.splits = min(p.splits+1, maxSplits)
		return min(rand.N(max(took, time.Microsecond)<<p.splits), p.maxDelay)
	}
	p.splits = 0
	d := p.minDelay + rand.N(p.maxDelay-p.minDelay+1)
	if failed.wait > 0 && failed.wait < scripts.Forever {
		// Redis expires keys with a precision of a millisecond.
		d = min(d, failed.wait+time.Millisecond)
	}
	return d
}
