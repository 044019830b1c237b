//go:build unix

package child_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/go-redlock/cmd/redlock/internal/child"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// Of package os/signal: it stays once signals have been asked for.
		goleak.IgnoreTopFunction("os/signal.signal_recv"), goleak.IgnoreTopFunction("os/signal.loop"))
}

// run runs a shell script. Its tests must not be parallel: signals are for the
// whole process.
func run(ctx context.Context, t *testing.T, script string, goOn func() bool) (child.Result, string) {
	t.Helper()
	signals, err := child.Listen()
	require.NoError(t, err)
	defer signals.Close()
	var out bytes.Buffer
	cmd := exec.Command("sh", "-c", script)
	cmd.Stdout = &out
	result, err := child.Run(ctx, cmd, child.Options{
		Grace:   time.Second,
		Signals: signals,
		MayGoOn: goOn,
		Trouble: func(err error) { t.Error(err) },
	})
	require.NoError(t, err)
	return result, out.String()
}

func always() bool { return true }
func never() bool  { return false }

func TestTheResultIsWhatAShellWouldSay(t *testing.T) {
	for script, want := range map[string]int{
		"exit 0": 0, "exit 3": 3, "exit 255": 255, "kill -TERM $$": 143, "kill -KILL $$": 137,
	} {
		result, _ := run(t.Context(), t, script, always)
		assert.Equal(t, child.Result{Status: want}, result, script)
	}
}

func TestWhoDoesNotEndWhenTheContextDoesIsKilledAfterTheGracePeriod(t *testing.T) {
	for script, want := range map[string]child.Result{
		"trap 'exit 4' TERM; while :; do sleep 0.1; done": {Status: 4, Stopped: true},
		"exec sleep 1000": {Status: 128 + 15, Stopped: true},
		"trap '' TERM; while :; do sleep 0.1; done": {Status: 128 + 9, Stopped: true},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		result, _ := run(ctx, t, script, always)
		cancel()
		assert.Equal(t, want, result, script)
	}
}

// The command stops itself, and SIGCONT is passed on to it, or not.
func TestAStoppedCommandIsContinuedOnlyIfItMayGoOn(t *testing.T) {
	for _, test := range []struct {
		goOn func() bool
		want string
	}{{always, "went on\n"}, {never, ""}} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		again := time.NewTicker(50 * time.Millisecond)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for ctx.Err() == nil {
				select {
				case <-again.C:
					_ = syscall.Kill(os.Getpid(), syscall.SIGCONT)
				case <-ctx.Done():
				}
			}
		}()
		_, out := run(ctx, t, "kill -STOP $$; echo went on", test.goOn)
		cancel()
		<-done
		again.Stop()
		assert.Equal(t, test.want, out)
	}
}

func TestACommandThatCannotBeStartedIsAnError(t *testing.T) {
	signals, err := child.Listen()
	require.NoError(t, err)
	defer signals.Close()
	_, err = child.Run(t.Context(), exec.Command("./no-such-command"), child.Options{Signals: signals})
	require.ErrorIs(t, err, os.ErrNotExist)
}
