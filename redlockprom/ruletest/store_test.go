package ruletest_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
	"github.com/stretchr/testify/require"
)

// interval is how often a store scrapes, and how often rules are evaluated.
const interval = 15 * time.Second

// A store is what a Prometheus server remembers of one process. It is a
// [storage.Queryable].
type store struct {
	storage.MockQuerier
	series      map[string]*promql.Series
	first, last time.Time
}

func newStore() *store {
	s := &store{series: make(map[string]*promql.Series)}
	s.SelectMockFunction = s.selected
	return s
}

func (s *store) Querier(int64, int64) (storage.Querier, error) { return s, nil }

// scrape keeps what the registry shows at this moment.
func (s *store) scrape(t *testing.T, from prometheus.Gatherer) {
	t.Helper()
	families, err := from.Gather()
	require.NoError(t, err)
	s.last = time.Now()
	if s.first.IsZero() {
		s.first = s.last
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			s.keep(family, metric)
		}
	}
}

func (s *store) keep(family *dto.MetricFamily, metric *dto.Metric) {
	name := family.GetName()
	switch family.GetType() {
	case dto.MetricType_HISTOGRAM:
		h := metric.GetHistogram()
		for _, bucket := range h.GetBucket() {
			le := strconv.FormatFloat(bucket.GetUpperBound(), 'g', -1, 64)
			s.add(name+"_bucket", metric, float64(bucket.GetCumulativeCount()), "le", le)
		}
		s.add(name+"_bucket", metric, float64(h.GetSampleCount()), "le", "+Inf")
		s.add(name+"_count", metric, float64(h.GetSampleCount()))
		s.add(name+"_sum", metric, h.GetSampleSum())
	case dto.MetricType_GAUGE:
		s.add(name, metric, metric.GetGauge().GetValue())
	default:
		s.add(name, metric, metric.GetCounter().GetValue())
	}
}

func (s *store) add(name string, metric *dto.Metric, value float64, more ...string) {
	b := labels.NewBuilder(labels.FromStrings(more...))
	b.Set(model.MetricNameLabel, name).Set("job", "app").Set("instance", "app-1:9090")
	for _, label := range metric.GetLabel() {
		b.Set(label.GetName(), label.GetValue()) // an empty one is none
	}
	lset := b.Labels()
	key := lset.String()
	if s.series[key] == nil {
		s.series[key] = &promql.Series{Metric: lset}
	}
	s.series[key].Floats = append(s.series[key].Floats, promql.FPoint{T: s.last.UnixMilli(), F: value})
}

// matching returns the series that all the matchers match.
func (s *store) matching(matchers []*labels.Matcher) []*promql.Series {
	var found []*promql.Series
	for _, series := range s.series {
		if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(series.Metric.Get(m.Name)) }) {
			found = append(found, series)
		}
	}
	slices.SortFunc(found, func(a, b *promql.Series) int { return labels.Compare(a.Metric, b.Metric) })
	return found
}

func (s *store) selected(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	return &seriesSet{left: s.matching(matchers)}
}

// evaluate runs a query at each interval of what is remembered.
func (s *store) evaluate(t *testing.T, engine *promql.Engine, expr string) promql.Matrix {
	t.Helper()
	query, err := engine.NewRangeQuery(t.Context(), s, nil, expr, s.first, s.last, interval)
	require.NoError(t, err)
	defer query.Close()
	result := query.Exec(t.Context())
	require.NoError(t, result.Err, expr)
	require.Empty(t, result.Warnings, expr)
	matrix, err := result.Matrix()
	require.NoError(t, err)
	return clone(matrix)
}

// clone outlives the query, whose Close takes the points back.
func clone(matrix promql.Matrix) promql.Matrix {
	all := make(promql.Matrix, len(matrix))
	for i, series := range matrix {
		all[i] = promql.Series{Metric: series.Metric, Floats: slices.Clone(series.Floats)}
	}
	return all
}

type seriesSet struct {
	left []*promql.Series
	at   *promql.Series
}

func (s *seriesSet) Next() bool {
	if len(s.left) == 0 {
		return false
	}
	s.at, s.left = s.left[0], s.left[1:]
	return true
}

func (s *seriesSet) At() storage.Series                { return promql.NewStorageSeries(*s.at) }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }
