// Command redlock works with a lock cluster: a majority of independent Redis
// masters that hold locks together.
//
//	redlock run NAME -- CMD   run a command under a lock
//	redlock inspect NAME      show who holds a lock, node by node
//	redlock list              list the locks that are held
//	redlock watch             watch locks come and go
//	redlock break NAME        take a lock away from its holder
//	redlock check             examine whether the nodes are fit to hold locks
//	redlock bench             how fast this cluster is, as seen from here
//	redlock demo              see a lock survive the loss of nodes; needs no Redis
//
// The nodes are given with --nodes or in REDLOCK_NODES.
package main

import (
	"context"
	"os"
)

func main() {
	ctx, stop := interruptible(context.Background())
	status := run(ctx, os.Args, os.Stdin, os.Stdout, os.Stderr, os.Environ())
	stop()
	os.Exit(status)
}
