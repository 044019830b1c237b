package redsync_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/compat/redsync"
)

func TestErrorsReadAsTheyDidAndUnwrap(t *testing.T) {
	cause := errors.New("refused")
	for want, err := range map[string]error{
		"lock already taken, locked nodes: [0 2]":               &redsync.ErrTaken{Nodes: []int{0, 2}},
		"node #3: lock already taken":                           &redsync.ErrNodeTaken{Node: 3},
		"node #1: refused":                                      redsync.RedisError{Node: 1, Err: cause},
		"redsync: failed to acquire lock":                       redsync.ErrFailed,
		"redsync: failed to extend lock":                        redsync.ErrExtendFailed,
		"redsync: failed to unlock, lock was already expired":   redsync.ErrLockAlreadyExpired,
		"while at it: node #1: redsync: failed to acquire lock": fmt.Errorf("while at it: %w", &redsync.RedisError{Node: 1, Err: redsync.ErrFailed}),
	} {
		require.EqualError(t, err, want)
	}
	require.ErrorIs(t, redsync.RedisError{Node: 1, Err: cause}, cause)
	require.ErrorIs(t, &redsync.RedisError{Node: 1, Err: cause}, cause)
}
