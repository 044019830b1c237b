package ruletest_test

import (
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var promQL = parser.NewParser(parser.Options{})

// alerts returns the rules. What is no rule fails the test.
func alerts(t *testing.T) []rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.ParseFile("../alerts.yml", false, model.LegacyValidation, promQL, slog.Default())
	require.Empty(t, errs)
	var all []rulefmt.Rule
	for _, group := range groups.Groups {
		all = append(all, group.Rules...)
	}
	require.NotEmpty(t, all)
	return all
}

func TestEveryRuleIsAnAlertThatSaysWhatSomebodyWokenByItNeeds(t *testing.T) {
	for _, rule := range alerts(t) {
		assert.Regexp(t, "^Redlock[A-Z]", rule.Alert)
		assert.Contains(t, []string{"warning", "critical"}, rule.Labels["severity"], rule.Alert)
		for _, annotation := range []string{"summary", "description", "runbook_url"} {
			assert.NotEmpty(t, rule.Annotations[annotation], "%s: %s", rule.Alert, annotation)
		}
	}
}

// anchor returns what GitHub makes of a heading.
func anchor(heading string) string {
	heading = regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(strings.ToLower(heading), "")
	return strings.ReplaceAll(heading, " ", "-")
}

func TestEveryAlertHasARunbookAndEveryRunbookAnAlert(t *testing.T) {
	text, err := os.ReadFile("../../docs/alerts.md")
	require.NoError(t, err)
	var sections []string
	for _, match := range regexp.MustCompile(`(?m)^## (Alert: .*)$`).FindAllStringSubmatch(string(text), -1) {
		sections = append(sections, anchor(match[1]))
	}
	var named []string
	for _, rule := range alerts(t) {
		page, section, _ := strings.Cut(rule.Annotations["runbook_url"], "#")
		assert.Equal(t, "https://github.com/redquorum/go-redlock/blob/main/docs/alerts.md", page)
		kebab := regexp.MustCompile(`([a-z])([A-Z])`).ReplaceAllString(rule.Alert, "$1-$2")
		assert.Equal(t, "alert-"+strings.ToLower(kebab), section)
		named = append(named, section)
	}
	assert.Equal(t, named, sections, "the same, and in the same order")
}

func TestWhatTheRunbooksNameExists(t *testing.T) {
	text, err := os.ReadFile("../../docs/alerts.md")
	require.NoError(t, err)
	seen := everything(t)
	for _, match := range regexp.MustCompile("`(redlock_\\w+)").FindAllStringSubmatch(string(text), -1) {
		assert.True(t, seen.has(match[1]), match[1])
	}
	for _, kind := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\|").FindAllStringSubmatch(string(text), -1) {
		assert.True(t, slices.ContainsFunc([]string{"kind", "reason"}, func(label string) bool {
			return len(seen.matching([]*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, label, kind[1])})) > 0
		}), kind[1])
	}
}

// everything is a store in which every series is that a Locker can have.
func everything(t *testing.T) *store {
	t.Helper()
	return play(t, 3, func(s *scene) { s.work(time.Minute) })
}

// has reports whether there is a metric of this name, a histogram included.
func (s *store) has(metric string) bool {
	for _, suffix := range []string{"", "_count"} {
		if len(s.matching([]*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, model.MetricNameLabel, metric+suffix)})) > 0 {
			return true
		}
	}
	return false
}

// requireSelects checks that an expression selects what exists: each selector
// some series, with the values that it wants, and no grouping by labels that
// these do not have.
func requireSelects(t *testing.T, seen *store, text string) {
	t.Helper()
	expr, err := promQL.ParseExpr(text)
	require.NoError(t, err, text)
	selectors := 0
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		switch node := node.(type) {
		case *parser.VectorSelector:
			selectors++
			for _, m := range node.LabelMatchers {
				// What something must not be has to exist, too.
				positive := *m
				switch m.Type {
				case labels.MatchNotEqual:
					positive.Type = labels.MatchEqual
				case labels.MatchNotRegexp:
					for value := range strings.SplitSeq(m.Value, "|") {
						one := labels.MustNewMatcher(labels.MatchEqual, m.Name, value)
						assert.NotEmpty(t, seen.matching(with(node, one)), "nothing is %v in %s", one, text)
					}
					continue
				case labels.MatchEqual, labels.MatchRegexp:
				}
				assert.NotEmpty(t, seen.matching(with(node, &positive)), "nothing is %v in %s", &positive, text)
			}
			assert.NotEmpty(t, seen.matching(node.LabelMatchers), "nothing matches %s in %s", node, text)
		case *parser.AggregateExpr:
			series := seen.matching(firstSelector(node).LabelMatchers)
			require.NotEmpty(t, series, text)
			for _, label := range node.Grouping {
				assert.True(t, series[0].Metric.Has(label), "%s has no label %s: %s", series[0].Metric, label, text)
			}
		}
		return nil
	})
	require.Positive(t, selectors, text)
}

// with returns a matcher beside that of the metric's name.
func with(selector *parser.VectorSelector, m *labels.Matcher) []*labels.Matcher {
	return []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, model.MetricNameLabel, selector.Name), m}
}

func firstSelector(node parser.Node) *parser.VectorSelector {
	var first *parser.VectorSelector
	parser.Inspect(node, func(node parser.Node, _ []parser.Node) error {
		if selector, ok := node.(*parser.VectorSelector); ok && first == nil {
			first = selector
		}
		return nil
	})
	return first
}

func TestEveryMetricAndLabelThatAnAlertUsesExists(t *testing.T) {
	seen := everything(t)
	for _, rule := range alerts(t) {
		requireSelects(t, seen, rule.Expr)
	}
}

func newEngine(t *testing.T) *promql.Engine {
	t.Helper()
	engine := promql.NewEngine(promql.EngineOpts{
		MaxSamples:    1 << 24,
		Timeout:       time.Minute,
		LookbackDelta: 5 * time.Minute,
		Parser:        promQL,
	})
	t.Cleanup(func() { require.NoError(t, engine.Close()) })
	return engine
}

// firing returns the alerts that wake somebody, by name, with their labels.
func firing(t *testing.T, seen *store) map[string][]labels.Labels {
	t.Helper()
	engine := newEngine(t)
	fired := make(map[string][]labels.Labels)
	for _, rule := range alerts(t) {
		for _, series := range seen.evaluate(t, engine, rule.Expr) {
			if longest(series.Floats) >= time.Duration(rule.For) {
				fired[rule.Alert] = append(fired[rule.Alert], series.Metric)
				requireAnnotated(t, &rule, series.Metric)
			}
		}
	}
	return fired
}

// longest returns for how long an alert was active without a gap.
func longest(points []promql.FPoint) time.Duration {
	var most, current time.Duration
	for i := 1; i < len(points); i++ {
		if points[i].T-points[i-1].T > interval.Milliseconds() {
			current = 0
			continue
		}
		current += interval
		most = max(most, current)
	}
	return most
}

// requireAnnotated checks that the labels that the texts mention are there.
func requireAnnotated(t *testing.T, rule *rulefmt.Rule, lset labels.Labels) {
	t.Helper()
	for _, text := range rule.Annotations {
		for _, match := range regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(text, -1) {
			require.True(t, lset.Has(match[1]), "%s speaks of %s, and has %s", rule.Alert, match[1], lset)
		}
	}
}
