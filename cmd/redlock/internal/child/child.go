// Package child runs a command that must not outlive its right to run: in a
// process group of its own, which is stopped as a whole when the time has come.
//
// Apart from that the command should not notice that somebody stands between
// it and its caller: it has the caller's standard input and output, gets every
// signal once, and can be stopped and continued from the terminal.
package child

import (
	"errors"
	"time"
)

// ErrUnsupported is returned by [Listen] and [Run] where there are no process groups and no
// signals to stop a command and all that it has started: on Windows.
var ErrUnsupported = errors.New("this system has no process groups: a command and what it has started could not be stopped")

// Options of [Run].
type Options struct {
	// Grace is how long the group has between SIGTERM and SIGKILL.
	Grace time.Duration
	// Signals are passed on to the group.
	Signals *Signals
	// MayGoOn is asked before a group that was stopped from the terminal is
	// continued. If it says no, the group stays stopped until the context of
	// Run has ended, and is ended then.
	MayGoOn func() bool
	// Trouble is told when the group cannot be sent a signal.
	Trouble func(error)
}

// Result says how a command ended.
type Result struct {
	// Status is the exit status of the command, or 128 + n if signal n ended
	// it.
	Status int
	// Stopped says that the context had ended before the command had.
	Stopped bool
}
