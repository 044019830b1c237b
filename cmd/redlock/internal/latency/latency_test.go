package latency_test

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/go-redlock/cmd/redlock/internal/latency"
	"github.com/redquorum/go-redlock/redlock"
	"github.com/redquorum/go-redlock/redlocktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The dumb way: keep everything and sort it.
func TestQuantilesAreThoseOfTheSortedDurations(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		var h, other latency.Histogram
		var all []time.Duration
		for range 1 + random.IntN(2000) {
			d := time.Duration(math.Exp(random.Float64() * 30)) // nanoseconds to hours
			all = append(all, d)
			if random.IntN(2) == 0 {
				h.Record(d)
			} else {
				other.Record(d)
			}
		}
		h.Add(&other)
		slices.Sort(all)
		require.Equal(t, uint64(len(all)), h.Count())
		assert.Equal(t, all[0], h.Min())
		assert.Equal(t, all[len(all)-1], h.Max())
		for _, q := range []float64{0, 0.001, 0.5, 0.9, 0.99, 0.999, 1} {
			want := all[max(int(math.Ceil(q*float64(len(all)))), 1)-1]
			got := h.Quantile(q)
			assert.GreaterOrEqual(t, got, want, "q=%v", q)
			assert.LessOrEqual(t, float64(got), float64(want)*(1+1.0/32), "q=%v", q)
		}
		rows := uint64(0)
		for i, row := range h.Rows() {
			rows += row.Count
			if i > 0 {
				assert.Greater(t, row.UpTo, h.Rows()[i-1].UpTo)
			}
		}
		assert.Equal(t, h.Count(), rows, "each is in one row")
	}
}

func TestAHistogramOfNothingIsAllZero(t *testing.T) {
	var h latency.Histogram
	h.Add(&latency.Histogram{})
	assert.Zero(t, h.Count())
	assert.Zero(t, h.Mean())
	assert.Zero(t, h.Quantile(0.5))
	assert.Empty(t, h.Rows())
	h.Record(-time.Second) // clocks
	assert.Zero(t, h.Max())
	h.Record(math.MaxInt64)
	assert.Equal(t, time.Duration(math.MaxInt64), h.Quantile(1))
}

func measure(t *testing.T, cluster *redlocktest.Cluster, plan latency.Plan) (*latency.Report, error) {
	t.Helper()
	locker, err := redlock.New(cluster.Addrs(), redlock.WithNodeTimeout(20*time.Second))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, locker.Close()) })
	return latency.Measure(t.Context(), locker, plan)
}

func TestAMeasurementCountsPairsAndLeavesNothing(t *testing.T) {
	cluster := redlocktest.Start(t, 3)
	report, err := measure(t, cluster, latency.Plan{Duration: 500 * time.Millisecond, Concurrency: 3})
	require.NoError(t, err)
	assert.GreaterOrEqual(t, report.Elapsed, 500*time.Millisecond)
	assert.Positive(t, report.Pair.Count())
	assert.Equal(t, report.Pair.Count(), report.Acquire.Count())
	assert.Equal(t, report.Pair.Count(), report.Release.Count())
	assert.Less(t, report.Acquire.Mean(), report.Pair.Mean())
	assert.Zero(t, report.Failures())
	for i := range cluster.Len() {
		require.Eventually(t, func() bool { return len(cluster.Node(i).Keys()) == 0 }, 10*time.Second, 10*time.Millisecond)
	}
}

func TestAMeasurementCountsWhatFailed(t *testing.T) {
	cluster := redlocktest.Start(t, 3)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for cluster.Node(2).CountOf("EVALSHA") < 20 && t.Context().Err() == nil {
			time.Sleep(time.Millisecond)
		}
		cluster.Node(0).Stop()
		cluster.Node(1).Stop()
	}()
	report, err := measure(t, cluster, latency.Plan{Duration: 5 * time.Second, Concurrency: 2})
	<-stopped
	require.NoError(t, err)
	assert.Positive(t, report.Pair.Count())
	assert.Positive(t, report.NoQuorum)
	require.ErrorIs(t, report.Last, redlock.ErrNoQuorum)
}

func TestAMeasurementThatCannotBeginSaysWhy(t *testing.T) {
	cluster := redlocktest.Start(t, 3)
	cluster.Node(0).Stop()
	cluster.Node(1).Stop()
	_, err := measure(t, cluster, latency.Plan{Duration: time.Minute, Concurrency: 1})
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
}

func TestAnInterruptedMeasurementReportsWhatItHas(t *testing.T) {
	cluster := redlocktest.Start(t, 3)
	locker, err := redlock.New(cluster.Addrs(), redlock.WithNodeTimeout(20*time.Second))
	require.NoError(t, err)
	defer locker.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	report, err := latency.Measure(ctx, locker, latency.Plan{Duration: time.Hour, Concurrency: 1})
	require.NoError(t, err)
	assert.Less(t, report.Elapsed, time.Minute)
	assert.Positive(t, report.Pair.Count())
	assert.Zero(t, report.Failures())
}
