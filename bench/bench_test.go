package main

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// benchNodes are those that REDLOCK_NODES names, or five of our own.
func benchNodes(b *testing.B) []string {
	if named := os.Getenv("REDLOCK_NODES"); named != "" {
		return strings.Split(named, ",")
	}
	c, err := startCluster(b.Context(), 5)
	if errors.Is(err, errNoServer) {
		b.Skip(err)
	}
	require.NoError(b, err)
	b.Cleanup(func() { assert.NoError(b, c.close()) })
	return c.addrs
}

// BenchmarkPair measures pairs of acquire and release of every subject, by so many goroutines. Other than the
// command, it measures one after the other: use it to profile, and not to compare.
func BenchmarkPair(b *testing.B) {
	addrs := benchNodes(b)
	for _, goroutines := range []int{1, 64, 512} {
		for _, s := range subjectsAt(goroutines, addrs) {
			b.Run(fmt.Sprintf("%s/goroutines=%d", strings.ReplaceAll(s.name, ", ", "-"), goroutines), func(b *testing.B) {
				w, err := s.open()
				require.NoError(b, err)
				defer func() { require.NoError(b, w.close()) }()
				_, err = w.run(b.Context(), 0) // connects
				require.NoError(b, err)
				b.ReportAllocs()
				// Rounds end with the time and not with a number of pairs; the benchmark's own count is made of them.
				done, failed := 0, 0
				b.ResetTimer()
				for done < b.N {
					t, err := w.run(b.Context(), time.Duration(min(b.N-done, 2000))*10*time.Microsecond)
					require.NoError(b, err)
					done += t.ops
					failed += t.failures
					require.Positive(b, done, "nothing works: %v", t.failure)
				}
				b.StopTimer()
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(done), "ns/pair")
				b.ReportMetric(float64(failed)/float64(done+failed), "failed/pair")
			})
		}
	}
}

func TestTheReportIsWellFormed(t *testing.T) {
	row := &row{key: "pair-1", title: "1 < 2 goroutines", unit: "pair"}
	rep := &report{outcomes: []*outcome{{row, []*result{
		{subject: nameOurs, perOp: []time.Duration{2, 1, 3}, ops: 3, allocs: 7},
		{subject: nameRedsync, perOp: []time.Duration{8, 4, 3}, ops: 3, failures: 1},
	}}}}
	assert.Contains(t, rep.markdown(), "| redsync | 0.0 µs | 4.00× | 0 | 1 of 4 |")
	assert.Contains(t, rep.markdown(), "| 1 goroutine: redsync ≥ 2.5× our time | 4.00× | met |")
	for d := xml.NewDecoder(strings.NewReader(rep.svg())); ; {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
	}
}

func TestTheProxyHoldsAnswersBackAndEnds(t *testing.T) {
	c, err := startCluster(t.Context(), 1)
	if errors.Is(err, errNoServer) {
		t.Skip(err)
	}
	require.NoError(t, err)
	defer func() { require.NoError(t, c.close()) }()
	p, err := startProxy(c.addrs[0], 20*time.Millisecond)
	require.NoError(t, err)
	start := time.Now()
	_, err = command(p.addr(), "PING")
	require.NoError(t, err)
	assert.GreaterOrEqual(t, time.Since(start), 20*time.Millisecond)
	require.NoError(t, p.close())
	_, err = command(p.addr(), "PING")
	assert.Error(t, err)
}

// TestAHandOffIsMeasured keeps the scenes from rotting: nothing but the command plays them otherwise.
func TestAHandOffIsMeasured(t *testing.T) {
	c, err := startCluster(t.Context(), 3)
	if errors.Is(err, errNoServer) {
		t.Skip(err)
	}
	require.NoError(t, err)
	defer func() { require.NoError(t, c.close()) }()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	got, err := handOffs(ctx, openedOurs(c.addrs), 1, 5)
	require.NoError(t, err)
	assert.Len(t, got, 5)
}
