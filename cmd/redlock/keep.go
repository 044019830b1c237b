package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redquorum/go-redlock/redlock"
)

// errRunningOut is the cause of a context that ended before the lock did, so
// that what runs under the lock is gone by then.
var errRunningOut = errors.New("the lock is running out")

// Why it does, when no renewal has failed.
var (
	errMaximum    = errors.New("it was held for the maximum")
	errNotRenewed = errors.New("it was not renewed in time") // this process was paused
)

// keep returns a context of parent that ends when what runs under the lock has to stop:
// at once when the lock is lost, and otherwise when it can only be renewed for
// grace any more. Call the returned function when done.
//
// The lock renews itself well before that. Within patience of the end this
// tries, too, for the sake of the reason: on-call people will ask for it.
func keep(parent context.Context, lock *redlock.Lock, grace, patience time.Duration) (context.Context, context.CancelFunc) {
	lost, release := lock.Context(parent)
	ctx, cancel := context.WithCancelCause(lost)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		why := errNotRenewed // unless that is tried
		for ctx.Err() == nil {
			left := lock.Validity() - grace
			switch {
			case left <= 0:
				lost := lock.Err()
				if lost == nil {
					lost = fmt.Errorf("%w: %s", errRunningOut, strings.TrimPrefix(why.Error(), "redlock: "))
				}
				cancel(lost)
				return
			case left <= patience:
				attempt, done := context.WithTimeout(ctx, left)
				if why = lock.Renew(attempt); why == nil {
					why = errMaximum // if it is no longer than before
				}
				done()
				pause(ctx, min(left, patience/4))
			default:
				why = errNotRenewed
				pause(ctx, left-patience)
			}
		}
	}()
	return ctx, func() {
		cancel(context.Canceled)
		<-watched
		release()
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
