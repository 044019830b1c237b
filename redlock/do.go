package redlock

import (
	"context"
	"errors"
	"fmt"
)

// Do acquires the lock on name as [Locker.Acquire] does, calls fn while holding
// it, and releases it when fn returns, panics or ends its goroutine. The lock
// is renewed in the background, unless WithAutoRenew(false) is given.
//
// fn's context ends when the lock is lost: fn should stop then, for others may
// hold the lock. Do returns fn's error, joined with ErrLost if the lock was
// lost before fn had returned, and with ErrNoQuorum if too few nodes confirmed
// the release of a lock with [WithMinHold], which others may then get earlier.
func (l *Locker) Do(ctx context.Context, name string, fn func(ctx context.Context, lock *Lock) error, opts ...LockOption) error {
	k, err := l.Acquire(ctx, name, append([]LockOption{WithAutoRenew(true)}, opts...)...)
	if err != nil {
		return err
	}
	return k.guard(ctx, fn)
}

// guard runs fn under the lock. There is no recover: a panic goes on to the
// caller with its own stack, past the release.
func (k *Lock) guard(ctx context.Context, fn func(ctx context.Context, lock *Lock) error) (err error) {
	guarded, cancel := k.Context(ctx)
	defer cancel()
	defer func() {
		// The node timeout bounds it, so a context that has ended must not.
		// A release that could not be confirmed is no error of fn's: nobody
		// else had the lock, and it ends with its TTL. Only of a minimum hold
		// that is too early.
		failed := k.Release(context.WithoutCancel(ctx))
		if errors.Is(failed, ErrLost) || k.config.minHold > 0 && errors.Is(failed, ErrNoQuorum) {
			if err != nil {
				failed = fmt.Errorf("%w; %w", err, failed)
			}
			err = failed
		}
	}()
	return fn(guarded, k)
}
