//go:build race

package sim_test

// The race detector makes everything many times slower.
const (
	fewHistories = 250
	fewWorlds    = 80
)
