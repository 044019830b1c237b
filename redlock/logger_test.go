package redlock_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/redlock"
)

func TestWhatNoErrorSaysIsLogged(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		var log bytes.Buffer
		c := newCluster(t, 3)
		l := newLocker(t, c, redlock.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		k := acquired(t, l, job, redlock.WithAutoRenew(true))
		require.Empty(t, log.String(), "there is nothing to say yet")

		for i := range 3 {
			c.Node(i).SetError("NOPERM no channel", "SUBSCRIBE")
		}
		for range 2 { // and it is said once
			_, err := l.Acquire(t.Context(), job, redlock.WithMaxAttempts(4))
			requireOutcome(t, err, redlock.ErrTaken)
			time.Sleep(5 * time.Minute)
		}
		synctest.Wait()
		require.Equal(t, 3, strings.Count(log.String(), "cannot announce releases"), log.String())

		c.Node(0).Stop()
		c.Node(1).Stop()
		<-k.Done()
		require.NoError(t, c.Node(0).Restart())
		time.Sleep(time.Minute)
		synctest.Wait()
		text := log.String()
		require.Equal(t, 1, strings.Count(text, `level=WARN msg="lock lost" names=[job] owner=`), text)
		require.Equal(t, 2, strings.Count(text, `level=WARN msg="node cannot be reached" node=`), text)
		require.Equal(t, 1, strings.Count(text, `level=INFO msg="node is back" node=node1.redlocktest:6379`), text)
		require.NotContains(t, text, k.Token())
	})
}
