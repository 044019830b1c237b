//go:build !race

package sim_test

const (
	fewHistories = 2000
	fewWorlds    = 1000
)
