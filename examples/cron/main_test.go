package main

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheJobIsDoneOnceATickAndByAnotherIfOneFails(t *testing.T) {
	t.Setenv("REDLOCK_NODES", "") // embedded ones
	var (
		mu     sync.Mutex // guards the rest
		failed = map[time.Time]bool{}
		done   = map[time.Time]int{}
	)
	err := run(t.Context(), func(_ string, tick time.Time) error {
		mu.Lock()
		defer mu.Unlock()
		if !failed[tick] {
			failed[tick] = true
			return errors.New("the first one fails")
		}
		done[tick]++
		return nil
	})
	require.NoError(t, err)
	// On a machine that is busy for longer than their patience, nobody may stand in.
	assert.NotEmpty(t, done)
	for tick, times := range done {
		assert.Equal(t, 1, times, tick)
	}
}
