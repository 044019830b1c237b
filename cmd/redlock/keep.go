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
		var failed error
		for ctx.Err() == nil {
			left := lock.Validity() - grace
			switch {
			case left <= 0:
				if lost := lock.Err(); lost != nil {
					cancel(lost)
				} else {
					cancel(runningOut(failed))
				}
				return
			case left <= patience:
				attempt, done := context.WithTimeout(ctx, left)
				failed = lock.Renew(attempt)
				done()
				pause(ctx, min(left, patience/4))
			default:
				failed = nil
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

func runningOut(failed error) error {
	if failed == nil { // renewed, if there was time for it, and yet not longer
		return fmt.Errorf("%w: it was held for the maximum, or not renewed in time", errRunningOut)
	}
	return fmt.Errorf("%w: %s", errRunningOut, strings.TrimPrefix(failed.Error(), "redlock: "))
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
