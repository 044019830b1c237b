// Command redlock works with a lock cluster: a majority of independent Redis
// masters that hold locks together.
//
//	redlock demo      see a lock survive the loss of nodes; needs no Redis
//
// The nodes are given with --nodes or in REDLOCK_NODES.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal asks for a clean end; the second has its usual effect.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args, os.Stdin, os.Stdout, os.Stderr, os.Environ()))
}
