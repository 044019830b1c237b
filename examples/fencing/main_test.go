package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheTokenKeepsALateWriteOutAndNothingElseDoes(t *testing.T) {
	balance, err := run(t.Context(), false)
	require.NoError(t, err)
	require.Equal(t, 100, balance, "worker 2's deposit is overwritten")

	balance, err = run(t.Context(), true)
	require.NoError(t, err)
	require.Equal(t, 150, balance)
}
