package nodes

import (
	"context"
	"testing"

	"github.com/redquorum/go-redlock/redlocktest"
)

// startEmbedded starts n nodes in this process. The cleanup of the test ends them.
func startEmbedded(tb testing.TB, conf *config, n int) ([]driver, error) {
	tb.Helper()
	cluster, err := redlocktest.New(n)
	if err != nil {
		return nil, err
	}
	tb.Cleanup(cluster.Close)
	drivers := make([]driver, n)
	for i := range n {
		drivers[i] = &embedded{node: cluster.Node(i), persistent: conf.aof, running: true}
	}
	return drivers, nil
}

// An embedded is a node of redlocktest. That one keeps its data over a stop, so it is here that a node without
// an AOF forgets.
type embedded struct {
	node       *redlocktest.Node
	persistent bool // remembers its data in the next start

	wiped   bool // forgets its data in the next start all the same
	running bool
}

var _ driver = (*embedded)(nil)

func (e *embedded) addr() string { return e.node.Addr() }

func (e *embedded) start(context.Context) error {
	restart := e.node.RestartEmpty
	if e.persistent && !e.wiped {
		restart = e.node.Restart
	}
	if err := restart(); err != nil {
		return err
	}
	e.wiped, e.running = false, true
	return nil
}

// stop and kill are the same here: what a node has not executed yet is forgotten either way.
func (e *embedded) stop(context.Context) error {
	e.node.Stop()
	e.running = false
	return nil
}

func (e *embedded) kill(ctx context.Context) error { return e.stop(ctx) }

func (e *embedded) wipe(context.Context) error {
	e.wiped = true
	return nil
}

func (e *embedded) pause(context.Context) error {
	if !e.running {
		return errEnded
	}
	e.node.Hang()
	return nil
}

func (e *embedded) resume(context.Context) error {
	if !e.running {
		return errEnded
	}
	e.node.Resume()
	return nil
}

func (e *embedded) disconnect(context.Context) error { return errUnsupported }
func (e *embedded) reconnect(context.Context) error  { return errUnsupported }

// owns takes whatever answers for the node: it is in this very process.
func (e *embedded) owns(int) error {
	return nil
}

func (e *embedded) log() string { return "an embedded node keeps no log" }
