package redlockprom_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/clock"
	"github.com/redquorum/go-redlock/redlock"
	"github.com/redquorum/go-redlock/redlockprom"
	"github.com/redquorum/go-redlock/redlocktest"
)

// newCollector returns a Collector that is registered, and how to read it.
func newCollector(t *testing.T, opts ...redlockprom.Option) (*redlockprom.Collector, *reading) {
	t.Helper()
	c := redlockprom.New("orders", opts...)
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(c))
	return c, &reading{t: t, from: registry}
}

// newLocker makes a Locker on the cluster that c observes and tracks, and which
// has connected to all nodes.
func newLocker(t *testing.T, cluster *redlocktest.Cluster, c *redlockprom.Collector, opts ...redlock.Option) *redlock.Locker {
	t.Helper()
	locker, err := redlock.New(cluster.Addrs(), append([]redlock.Option{
		redlock.WithObserver(c), redlock.WithDialer(cluster.Dial), redlock.WithClock(clock.Monotonic()),
	}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, locker.Close()) })
	c.Track(locker)
	lock, err := locker.TryAcquire(t.Context(), "warm-up")
	require.NoError(t, err)
	require.NoError(t, lock.Release(t.Context()))
	synctest.Wait()
	return locker
}

// reading gives access to what a registry has gathered.
type reading struct {
	t    *testing.T
	from prometheus.Gatherer
}

// all returns the values by "name{label=value,…}", without the labels that are
// empty and the Locker's. Histograms are shown by their _count and _sum.
func (r *reading) all() map[string]float64 {
	r.t.Helper()
	families, err := r.from.Gather()
	require.NoError(r.t, err)
	values := make(map[string]float64)
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, label := range metric.GetLabel() {
				if label.GetName() == "locker" {
					require.Equal(r.t, "orders", label.GetValue())
				} else if label.GetValue() != "" {
					labels = append(labels, label.GetName()+"="+label.GetValue())
				}
			}
			suffix := ""
			if len(labels) > 0 {
				suffix = "{" + strings.Join(labels, ",") + "}"
			}
			switch {
			case metric.GetHistogram() != nil:
				values[family.GetName()+"_count"+suffix] = float64(metric.GetHistogram().GetSampleCount())
				values[family.GetName()+"_sum"+suffix] = metric.GetHistogram().GetSampleSum()
			case metric.GetGauge() != nil:
				values[family.GetName()+suffix] = metric.GetGauge().GetValue()
			default:
				values[family.GetName()+suffix] = metric.GetCounter().GetValue()
			}
		}
	}
	return values
}

// value returns one value, which must be there.
func (r *reading) value(name string) float64 {
	r.t.Helper()
	values := r.all()
	require.Contains(r.t, slices.Sorted(maps.Keys(values)), name)
	return values[name]
}

// since returns what has grown or shrunk since before.
func (r *reading) since(before map[string]float64) map[string]float64 {
	r.t.Helper()
	changed := make(map[string]float64)
	for name, value := range r.all() {
		if value != before[name] {
			changed[name] = value - before[name]
		}
	}
	return changed
}
