package redsync

import "time"

// Option changes a mutex that is being made.
type Option interface {
	// Apply changes the mutex.
	Apply(m *Mutex)
}

// OptionFunc is a function that is an Option.
type OptionFunc func(m *Mutex)

// Apply calls f(m).
func (f OptionFunc) Apply(m *Mutex) { f(m) }

// WithExpiry sets when the lock ends if nobody extends it. Default 8 s. It is
// cut off to whole milliseconds; locking fails with [redlock.ErrConfig] if it is
// not between 10 ms and 366 days.
func WithExpiry(expiry time.Duration) Option {
	return OptionFunc(func(m *Mutex) { m.expiry = expiry })
}

// WithTries sets how often Lock tries, at the least, with the delays between
// them. Default 32. Lock fails with [ErrFailed] if it is not positive.
//
// Together they say how long Lock goes on, but 50 ms at the least: the last try
// is made when all delays are over. It makes more when it hears that the lock has been released, and
// fewer while it would hear of that.
func WithTries(tries int) Option {
	return OptionFunc(func(m *Mutex) { m.tries = tries })
}

// WithRetryDelay sets the delay between two tries. Default: at random from 50
// ms to 250 ms. Less than a millisecond counts as one.
func WithRetryDelay(delay time.Duration) Option {
	return WithRetryDelayFunc(func(int) time.Duration { return delay })
}

// A DelayFunc returns how long to wait after some number of tries, at least 1.
type DelayFunc func(tries int) time.Duration

// WithRetryDelayFunc sets a function for the delays. Lock calls it before it
// waits, for the delays of the next minute together, and waits at random between
// the shortest and the longest of them. It must return at once.
func WithRetryDelayFunc(delayFunc DelayFunc) Option {
	return OptionFunc(func(m *Mutex) { m.delayFunc = delayFunc })
}

// WithDriftFactor sets by what fraction the clocks of nodes and client may run
// at different rates; expiry × factor + 2 ms is taken off the time for which a
// lock is valid. Default 0.01. At least 0 and below 1.
func WithDriftFactor(factor float64) Option {
	return OptionFunc(func(m *Mutex) { m.driftFactor = factor })
}

// WithTimeoutFactor sets how long one try may take, as a fraction of the expiry,
// but 50 ms at the least: one that took longer has failed. Default 0.05. It must
// be positive. No try waits for a node for longer than the node's timeout, 500
// ms if nothing else was given to NewPool of package redigo.
func WithTimeoutFactor(factor float64) Option {
	return OptionFunc(func(m *Mutex) { m.timeoutFactor = factor })
}

// WithGenValueFunc sets the function that makes the value of the lock, 1 to 256
// bytes. Lock calls it for every try. Default: 128 random bits and the name of
// this process.
//
// No two tries of any client should have the same value. Mutexes with one value
// exclude each other as with different ones, but what a failed try may have left
// is undone by its value, and a value that others have, too, can then cost them
// their lock. A value that is the same as that of the mutex's
// try before gets random letters appended; [Mutex.Value] has what was made of
// it.
func WithGenValueFunc(genValueFunc func() (string, error)) Option {
	return OptionFunc(func(m *Mutex) { m.genValueFunc = genValueFunc })
}

// WithValue makes the mutex that of a lock which is held under this value:
// another mutex, here or in another process, can so be extended, asked whether
// it is valid, and unlocked. Lock and TryLock replace the value.
func WithValue(v string) Option {
	return OptionFunc(func(m *Mutex) { m.value = v })
}

// WithFailFast makes operations return as soon as their outcome is certain.
// Without it they then wait for the nodes that have not answered, so that these
// have the lock, too, and errors name them; but for no longer than 25 ms, or a
// twentieth of the expiry, and not for a node that is known to be sick.
func WithFailFast(b bool) Option {
	return OptionFunc(func(m *Mutex) { m.failFast = b })
}

// WithShufflePools makes each try ask the nodes in turn from a random one on,
// instead of from the first. All are asked at once, so it matters little.
func WithShufflePools(b bool) Option {
	return OptionFunc(func(m *Mutex) { m.shuffle = b })
}

// WithSetNXOnExtend makes Extend give the lock back to nodes that have lost it,
// by a restart without persistence for instance, if it has extended it on a
// quorum of the others. It does not bring back a lock that has expired, or that
// a majority has lost.
func WithSetNXOnExtend() Option {
	return OptionFunc(func(m *Mutex) { m.setNXOnExtend = true })
}
