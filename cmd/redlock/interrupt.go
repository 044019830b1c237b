package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// interruption is the cause of a context that a signal has ended.
type interruption struct{ signal os.Signal }

func (i *interruption) Error() string { return i.signal.String() }

// status is what a shell says of a program that the signal has ended.
func (i *interruption) status() int {
	if n, ok := i.signal.(syscall.Signal); ok {
		return exitSignal + int(n)
	}
	return exitFailed
}

// interruptible returns a context that ends, with an interruption as its
// cause, when the program is asked to end. The first signal asks for a clean
// end; the second has its usual effect. Signals that were to be ignored when
// the program was started (nohup, a script's background jobs) stay ignored.
func interruptible(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
	go func() {
		defer signal.Stop(signals)
		select {
		case s := <-signals:
			cancel(&interruption{s})
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(context.Canceled) }
}
