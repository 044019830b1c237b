//go:build unix

package integration_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/integration/nodes"
	"github.com/redquorum/go-redlock/redlock"
)

// pausedClient is the environment variable that makes the test binary play the
// client that gets paused; it holds the addresses of the nodes.
const pausedClient = "REDLOCK_TEST_PAUSED_CLIENT"

// sight is what that client sees when it goes on.
type sight struct {
	Validity time.Duration
	Lost     bool // Renew was refused with ErrLost
	Done     bool // and Done is closed
}

func TestMain(m *testing.M) {
	if addrs := os.Getenv(pausedClient); addrs != "" {
		if err := playPausedClient(strings.Split(addrs, ",")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if text := os.Getenv(fleetMember); text != "" {
		if err := playMember(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	status := m.Run()
	if commandDir != "" {
		_ = os.RemoveAll(commandDir) // of a temporary directory
	}
	os.Exit(status)
}

func playPausedClient(addrs []string) error {
	ctx := context.Background()
	l, err := redlock.New(addrs)
	if err != nil {
		return err
	}
	k, err := l.Acquire(ctx, "job", redlock.WithTTL(time.Second), redlock.WithAutoRenew(true))
	if err != nil {
		return err
	}
	fmt.Println("held")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	seen := sight{Validity: k.Validity()}
	seen.Lost = errors.Is(k.Renew(ctx), redlock.ErrLost)
	select {
	case <-k.Done():
		seen.Done = true
	case <-time.After(5 * time.Second):
	}
	return json.NewEncoder(os.Stdout).Encode(seen)
}

func TestAClientThatWasStoppedForLongerThanTheTTLSeesAtOnceThatItsLockIsGone(t *testing.T) {
	c := nodes.Start(t, 5)
	client := exec.CommandContext(t.Context(), os.Args[0])
	client.Env = append(os.Environ(), pausedClient+"="+strings.Join(c.URLs(), ","))
	client.Stderr = os.Stderr
	in, err := client.StdinPipe()
	require.NoError(t, err)
	out, err := client.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, client.Start())
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan())
	require.Equal(t, "held", lines.Text())

	require.NoError(t, client.Process.Signal(syscall.SIGSTOP))
	requireNoKeys(t, c.Nodes()...) // nobody renews: the TTL ends
	_, err = fmt.Fprintln(in, "look")
	require.NoError(t, err)
	require.NoError(t, client.Process.Signal(syscall.SIGCONT))

	require.True(t, lines.Scan())
	var seen sight
	require.NoError(t, json.Unmarshal(lines.Bytes(), &seen))
	assert.Equal(t, sight{Validity: 0, Lost: true, Done: true}, seen)
	require.NoError(t, client.Wait())
}
