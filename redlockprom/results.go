package redlockprom

import (
	"context"
	"errors"

	"github.com/redquorum/go-redlock/redlock"
)

// result is what came of an attempt or an acquisition.
type result uint8

const (
	acquired result = iota
	taken
	noQuorum
	givenUp
	lost
	closed
	failed
)

var results = [...]string{"acquired", "taken", "no_quorum", "given_up", "lost", "closed", "error"}

// resultOf sorts an error. One can be of several kinds: a wait that the context
// ended says what the last attempt met, too. That there was no quorum is the
// cause; that others held the lock is what one waits for.
func resultOf(err error) result {
	switch {
	case err == nil:
		return acquired
	case errors.Is(err, redlock.ErrNoQuorum):
		return noQuorum
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return givenUp
	case errors.Is(err, redlock.ErrTaken):
		return taken
	case errors.Is(err, redlock.ErrLost):
		return lost
	case errors.Is(err, redlock.ErrClosed):
		return closed
	}
	return failed
}

// upkeep is what came of a renewal or a release.
type upkeep uint8

const (
	upkeepDone upkeep = iota
	upkeepNoQuorum
	upkeepLost
	upkeepFailed
)

var (
	renewalResults = [...]string{"renewed", "no_quorum", "lost", "error"}
	releaseResults = [...]string{"released", "no_quorum", "lost", "error"}
)

func upkeepOf(err error) upkeep {
	switch {
	case err == nil:
		return upkeepDone
	case errors.Is(err, redlock.ErrLost): // before ErrNoQuorum, which can be why
		return upkeepLost
	case errors.Is(err, redlock.ErrNoQuorum):
		return upkeepNoQuorum
	}
	return upkeepFailed
}
