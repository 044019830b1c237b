//go:build race

package sim_test

// The race detector makes everything many times slower.
const (
	fewHistories = 150
	fewWorlds    = 80
)
