package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/redlocktest"
)

const eventually = 10 * time.Second

func TestTheLockIsHeldForAsLongAsTheWorkTakes(t *testing.T) {
	cluster := redlocktest.Start(t, 3)
	ended := make(chan error, 1)
	go func() { ended <- run(t.Context(), cluster.Addrs()) }()
	held := func() bool { return len(cluster.Holders("quickstart")) > 0 }
	require.Eventually(t, held, eventually, time.Millisecond)
	require.NoError(t, <-ended)
	require.Eventually(t, func() bool { return !held() }, eventually, time.Millisecond)
}

func TestItRunsWithoutNodesOfItsOwn(t *testing.T) {
	t.Setenv("REDLOCK_NODES", "")
	require.NoError(t, run(t.Context(), nil))
}
