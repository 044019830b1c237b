package ruletest_test

import (
	"runtime"
	"testing"

	"go.uber.org/goleak"
)

// The scenes run on one processor: in Go 1.26, two goroutines of one synctest
// bubble that look at a due timer at the same moment share one context of the
// race detector and crash it. Here everything happens at round times, so that
// the tickers of all nodes are due together.
func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1)
	goleak.VerifyTestMain(m)
}
