package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v3"

	"github.com/redquorum/go-redlock/redlock"
)

// Exit statuses; see also exitNoQuorum.
const (
	exitOK     = 0
	exitFailed = 1 // what was asked for could not be done, or the answer is no
	exitUsage  = 2 // the command line makes no sense
)

// Exit statuses of redlock run, whose others are those of the command that it
// runs. They are above all 128 + n of signals (up to 192), below what systemd
// (200 to 245) and ssh (255) call their own, and none of the sysexits (64 to
// 78), nor of timeout (124, 125).
const (
	exitNotExecutable = 126 // as shells have it
	exitNotFound      = 127 // as shells have it
	exitSignal        = 128 // + the number of the signal
	exitTaken         = 193 // others hold the lock
	exitNoQuorum      = 194 // too few nodes answered; other subcommands have it, too
	exitLost          = 195 // the lock was lost, and the command stopped
	exitRunUsage      = 196 // the command line makes no sense
	exitRunFailed     = 197 // anything else that is not the command's doing
)

// exitError ends the program with a status of its own. Without a cause nothing
// is printed: the subcommand has said everything.
type exitError struct {
	status int
	cause  error
}

func (e *exitError) Error() string {
	if e.cause == nil {
		return fmt.Sprintf("exit status %d", e.status)
	}
	return e.cause.Error()
}

func (e *exitError) Unwrap() error { return e.cause }

func usage(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

func onUsageError(_ context.Context, _ *cli.Command, err error, _ bool) error {
	return &exitError{exitUsage, err}
}

func exitStatus(err error) (status int, silent bool) {
	var exit *exitError
	var interrupted *interruption
	switch {
	case err == nil:
		return exitOK, true
	case errors.As(err, &exit):
		// Who asks for status 0 (redlock run -E 0) does not want to be told.
		return exit.status, exit.cause == nil || exit.status == exitOK
	case errors.As(err, &interrupted):
		return interrupted.status(), false
	case errors.Is(err, redlock.ErrConfig):
		return exitUsage, false
	case unanswered(err):
		return exitNoQuorum, false
	}
	return exitFailed, false
}

// unanswered says whether too few nodes answered: also within the time that
// there was to wait, if none said that others hold the lock.
func unanswered(err error) bool {
	var failed *redlock.QuorumError
	timedOut := errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, redlock.ErrTaken) &&
		errors.As(err, &failed) && failed.Refused == 0
	return timedOut || errors.Is(err, redlock.ErrNoQuorum)
}
