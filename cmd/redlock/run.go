package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/redquorum/go-redlock/cmd/redlock/internal/child"
	"github.com/redquorum/go-redlock/redlock"
)

const (
	runTTL   = 30 * time.Second
	runGrace = 5 * time.Second
)

func newRun(given invocation) *cli.Command {
	return &cli.Command{
		Name:      "run",
		Usage:     "run a command under a lock",
		ArgsUsage: "NAME… -- CMD [ARG…]",
		Description: `Waits for the lock on NAME, runs CMD while renewing it, and releases it when CMD
has ended. Several names are locked together, all or none.

CMD has the standard input and output of this command, gets every signal that
is sent to it, and finds in its environment REDLOCK_NAME (several names are
separated by newlines), REDLOCK_TOKEN, and with --fence REDLOCK_FENCING_TOKEN.

When the lock is lost, CMD and all that it has started in its process group get
SIGTERM, and after the grace period SIGKILL. If the lock cannot be renewed that
begins so early that they are gone when it ends.

The exit status is that of CMD, or

   126     CMD cannot be executed
   127     CMD was not found
   128+n   signal n ended CMD, or this command while it waited for the lock
   193     others hold the lock, and --try or --wait set a limit (see -E)
   194     too few nodes answered
   195     the lock was lost or could not be renewed, and CMD was stopped
   196     the command line makes no sense
   197     any other failure that is not CMD's`,
		Flags: []cli.Flag{
			&cli.DurationFlag{Name: "ttl", Usage: "how long the lock outlives this command if that is killed", Value: runTTL},
			&cli.DurationFlag{Name: "wait", Usage: "wait no longer than this for the lock (default: for as long as it takes)", HideDefault: true},
			&cli.BoolFlag{Name: "try", Usage: "do not wait for the lock: make one attempt"},
			&cli.DurationFlag{
				Name: "outage-tolerance", Usage: "go on waiting for so long while too few nodes answer",
				Value: redlock.DefaultOutageTolerance,
			},
			&cli.BoolFlag{Name: "fence", Usage: "draw a fencing token"},
			&cli.DurationFlag{Name: "min-hold", Usage: "keep others out until so long after the lock was acquired, even if CMD ends earlier", HideDefault: true},
			&cli.DurationFlag{Name: "max-hold", Usage: "stop CMD so that the lock is held for no longer than this", HideDefault: true},
			&cli.DurationFlag{
				Name: "grace", HideDefault: true,
				Usage: "what CMD has from SIGTERM to SIGKILL (default: 5s, or a third of --ttl or --max-hold if that is less)",
			},
			&cli.BoolFlag{Name: "events", Usage: "announce that the lock was acquired and renewed, so that redlock watch sees it at once"},
			&cli.StringFlag{Name: "owner", Usage: "the label that tells people who holds the lock (default: host:pid)"},
			&cli.IntFlag{
				Name: "conflict-exit-code", Aliases: []string{"E"}, Value: exitTaken,
				Usage: "the exit status when others hold the lock; with 0 nothing is printed",
			},
		},
		OnUsageError: func(_ context.Context, _ *cli.Command, err error, _ bool) error {
			return &exitError{exitRunUsage, err}
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			r, err := newRunner(c, given)
			if err == nil {
				err = r.run(ctx)
			}
			return r.exit(err)
		},
	}
}

// runner is one execution of redlock run.
type runner struct {
	*cli.Command
	log   *slog.Logger
	names []string
	child *exec.Cmd
	env   environ
	grace time.Duration
}

// newRunner returns a runner even if it returns an error.
func newRunner(c *cli.Command, given invocation) (*runner, error) {
	r := &runner{Command: c, log: logger(c), names: c.Args().Slice(), env: given.env}
	ttl, longest := c.Duration("ttl"), c.Duration("max-hold")
	r.grace = c.Duration("grace")
	if !c.IsSet("grace") {
		r.grace = min(runGrace, ttl/3)
		if longest > 0 {
			r.grace = min(r.grace, longest/3)
		}
	}
	code := c.Int("conflict-exit-code")
	switch {
	case len(r.names) == 0:
		return r, usage("run: no name to lock")
	case given.rest == nil:
		return r, usage(`run: no command: put "--" before it`)
	case len(given.rest) == 0:
		return r, usage(`run: no command after "--"`)
	case c.Bool("try") && c.IsSet("wait"):
		return r, usage("run: --try does not --wait")
	case c.IsSet("wait") && c.Duration("wait") <= 0:
		return r, usage("run: --wait %v: want more than 0; --try makes one attempt", c.Duration("wait"))
	case ttl <= 0:
		return r, usage("run: --ttl %v: want more than 0", ttl)
	case r.grace < 0 || r.grace > ttl/2:
		return r, usage("run: --grace %v: want 0 to half of --ttl %v, so that there is time to renew before", r.grace, ttl)
	case longest > 0 && r.grace >= longest:
		return r, usage("run: --grace %v: want less than --max-hold %v", r.grace, longest)
	case code < 0 || code > 255:
		return r, usage("run: --conflict-exit-code %d: want 0 to 255", code)
	}
	r.child = exec.Command(given.rest[0], given.rest[1:]...)
	r.child.Stdin, r.child.Stdout, r.child.Stderr = c.Root().Reader, c.Root().Writer, c.Root().ErrWriter
	// Now, for nobody should wait for a lock and then find a spelling mistake.
	_, err := exec.LookPath(given.rest[0])
	return r, startable(err)
}

// exit gives an error the status that it has in this subcommand.
func (r *runner) exit(err error) error {
	if err == nil {
		return nil
	}
	var interrupted *interruption
	var exit *exitError
	status := exitRunFailed
	switch {
	case errors.As(err, &exit):
		if exit.status != exitUsage {
			return err
		}
		status = exitRunUsage
	case errors.Is(err, redlock.ErrConfig):
		status = exitRunUsage
	case errors.As(err, &interrupted):
		status = interrupted.status()
	case errors.Is(err, redlock.ErrLost), errors.Is(err, errRunningOut):
		status = exitLost
	case unanswered(err):
		status = exitNoQuorum
	case errors.Is(err, redlock.ErrTaken), errors.Is(err, context.DeadlineExceeded):
		status = r.Int("conflict-exit-code")
	}
	return &exitError{status, err}
}

func (r *runner) run(ctx context.Context) error {
	// From here on, so that no signal is lost between the wait and the start.
	signals, err := child.Listen()
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	defer signals.Close()
	locker, err := r.connect()
	if err != nil {
		return err
	}
	defer func() { _ = locker.Close() }() // what it could not do ends with the TTL
	lock, err := r.acquire(ctx, locker)
	if err != nil {
		return err
	}
	// From here on signals are CMD's to answer: they end neither the hold nor
	// the release.
	ctx = context.WithoutCancel(ctx)
	result, err := r.attend(ctx, lock, signals)
	released := lock.Release(ctx)
	switch {
	case err != nil:
		return err
	case errors.Is(released, redlock.ErrLost):
		return fmt.Errorf("%w; the command had ended with status %d", released, result.Status)
	case released != nil:
		r.log.Warn("release not confirmed; the lock ends with its TTL at the latest", "names", r.names, "reason", released)
	default:
		r.log.Info("released", "names", r.names)
	}
	if result.Status != exitOK {
		return &exitError{status: result.Status}
	}
	return nil
}

func (r *runner) connect() (*redlock.Locker, error) {
	opts := []redlock.Option{
		redlock.WithAutoRenew(true),
		redlock.WithTTL(r.Duration("ttl")),
		redlock.WithOutageTolerance(r.Duration("outage-tolerance")),
		redlock.WithFencing(r.Bool("fence")),
		redlock.WithEvents(r.Bool("events")),
		redlock.WithMinHold(r.Duration("min-hold")),
		redlock.WithMaxHold(r.Duration("max-hold")),
	}
	if r.IsSet("owner") {
		opts = append(opts, redlock.WithOwner(r.String("owner")))
	}
	return connect(r.Command, r.log, opts...)
}

func (r *runner) acquire(ctx context.Context, locker *redlock.Locker) (*redlock.Lock, error) {
	if r.Bool("try") {
		return locker.TryAcquireAll(ctx, r.names)
	}
	if r.IsSet("wait") {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.Duration("wait"))
		defer cancel()
	}
	return locker.AcquireAll(ctx, r.names)
}

// attend runs the command under the lock. It returns an error if that could
// not be started, or had to be stopped.
func (r *runner) attend(ctx context.Context, lock *redlock.Lock, signals *child.Signals) (child.Result, error) {
	r.log.Info("acquired", "names", lock.Names(), "owner", lock.Owner(), "fencing_token", lock.FencingToken())
	r.child.Env = r.environment(lock)
	// Twice the node timeout is one attempt that fails and another; and it
	// must not reach back to where the lock renews itself.
	patience := min(2*r.Duration(flagNodeTimeout), r.Duration("ttl")/8)
	held, done := keep(ctx, lock, r.grace, patience)
	defer done()
	context.AfterFunc(held, func() {
		if cause := context.Cause(held); !errors.Is(cause, context.Canceled) {
			r.log.Warn("stopping the command", "names", lock.Names(), "grace", r.grace, "reason", cause)
		}
	})
	// A pause between the acquisition and here may have been a long one.
	if held.Err() != nil || lock.Validity() <= r.grace {
		return child.Result{}, fmt.Errorf("%w; the command was not started", cmp.Or(context.Cause(held), errRunningOut))
	}
	result, err := child.Run(held, r.child, child.Options{
		Grace:   r.grace,
		Signals: signals,
		MayGoOn: func() bool { return held.Err() == nil && lock.Validity() > r.grace },
		Trouble: func(err error) { r.log.Error("the command cannot be told", "reason", err) },
	})
	switch {
	case err != nil:
		return result, startable(err)
	case result.Stopped:
		return result, fmt.Errorf("%w; the command was stopped", context.Cause(held))
	}
	return result, nil
}

// environment is what the command finds. A lock that this command itself runs
// under is not the one that it holds.
func (r *runner) environment(lock *redlock.Lock) []string {
	const name, token, fence = "REDLOCK_NAME", "REDLOCK_TOKEN", "REDLOCK_FENCING_TOKEN"
	env := append(r.env.without(name, token, fence),
		name+"="+strings.Join(lock.Names(), "\n"),
		token+"="+lock.Token())
	if r.Bool("fence") {
		env = append(env, fence+"="+strconv.FormatUint(lock.FencingToken(), 10))
	}
	return env
}

// startable gives the error of a command that cannot be started its status, as
// shells have it.
func startable(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return &exitError{exitNotFound, fmt.Errorf("run: %w", err)}
	}
	return &exitError{exitNotExecutable, fmt.Errorf("run: %w", err)}
}
