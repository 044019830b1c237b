package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/redquorum/go-redlock/cmd/redlock/internal/latency"
	"github.com/redquorum/go-redlock/redlock"
)

func newBench(given invocation) *cli.Command {
	return &cli.Command{
		Name:  "bench",
		Usage: "measure how fast this cluster grants and releases locks, as seen from here",
		Description: `Acquires and releases locks with names of their own, which nobody waits for, and
prints how long that took. Nothing of them stays.

The exit status is 0 if anything could be measured, and 194 if too few nodes
answered.`,
		Flags: []cli.Flag{
			&cli.DurationFlag{Name: "duration", Usage: "how long to measure", Value: 5 * time.Second},
			&cli.IntFlag{Name: "concurrency", Aliases: []string{"c"}, Usage: "how many locks to acquire side by side", Value: 1},
			&cli.DurationFlag{Name: "ttl", Usage: "the TTL of the locks", Value: redlock.DefaultTTL},
			&cli.BoolFlag{Name: "fence", Usage: "draw fencing tokens, too"},
		},
		OnUsageError: onUsageError,
		Action: func(ctx context.Context, c *cli.Command) error {
			if operands := given.operands(c); len(operands) > 0 {
				return usage("bench: unexpected argument %q", operands[0])
			}
			plan := latency.Plan{Duration: c.Duration("duration"), Concurrency: c.Int("concurrency")}
			if err := plan.Validate(); err != nil {
				return usage("bench: %w", err)
			}
			locker, err := connect(c, logger(c), redlock.WithTTL(c.Duration("ttl")), redlock.WithFencing(c.Bool("fence")))
			if err != nil {
				return err
			}
			defer func() { _ = locker.Close() }() // what it could not do ends with the TTL
			report, err := latency.Measure(ctx, locker, plan)
			if err != nil {
				return err
			}
			result := &benchmark{report, len(nodes(c)), plan.Concurrency}
			if c.Bool(flagJSON) {
				err = writeJSON(c.Root().Writer, result.json())
			} else {
				_, err = io.WriteString(c.Root().Writer, result.text())
			}
			if err == nil && report.Pair.Count() == 0 {
				err = fmt.Errorf("bench: nothing went well: %w", report.Last)
			}
			return err
		},
	}
}

// benchmark is what redlock bench prints.
type benchmark struct {
	*latency.Report
	nodes, concurrency int
}

func (b *benchmark) pairsPerSecond() float64 { return float64(b.Pair.Count()) / b.Elapsed.Seconds() }

const barWidth = 50

func (b *benchmark) text() string {
	var t strings.Builder
	fmt.Fprintf(&t, "%s, %d at once, %v: %d pairs, %.0f a second\n\n", plural(b.nodes, "node"), b.concurrency,
		b.Elapsed.Round(time.Millisecond), b.Pair.Count(), b.pairsPerSecond())
	fmt.Fprintf(&t, "%-8s %9s %9s %9s %9s %9s %9s %9s\n", "", "mean", "min", "p50", "p90", "p99", "p99.9", "max")
	for _, line := range []struct {
		name string
		of   *latency.Histogram
	}{{"acquire", &b.Acquire}, {"release", &b.Release}, {"both", &b.Pair}} {
		fmt.Fprintf(&t, "%-8s", line.name)
		for _, d := range []time.Duration{
			line.of.Mean(), line.of.Min(), line.of.Quantile(0.5), line.of.Quantile(0.9), line.of.Quantile(0.99),
			line.of.Quantile(0.999), line.of.Max(),
		} {
			fmt.Fprintf(&t, " %9s", short(d))
		}
		t.WriteByte('\n')
	}
	rows := b.Acquire.Rows()
	most := uint64(1)
	for _, row := range rows {
		most = max(most, row.Count)
	}
	t.WriteString("\nacquire\n")
	for _, row := range rows {
		bar := strings.Repeat("█", int(row.Count*barWidth/most))
		fmt.Fprintf(&t, "  ≤ %-7s %9d  %s\n", row.UpTo, row.Count, bar)
	}
	if n := b.Failures(); n > 0 {
		fmt.Fprintf(&t, "\n%d failed: %d without a quorum, %d taken, %d lost, %d otherwise; the last:\n  %s\n",
			n, b.NoQuorum, b.Taken, b.Lost, b.Other, harmless(b.Last.Error()))
	}
	return t.String()
}

// short returns a duration with three digits.
func short(d time.Duration) string {
	switch {
	case d < 10*time.Microsecond:
		return d.String()
	case d < 10*time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	case d < 10*time.Second:
		return d.Round(10 * time.Millisecond / 10).String()
	}
	return d.Round(100 * time.Millisecond).String()
}

type benchReport struct {
	Nodes          int           `json:"nodes"`
	Concurrency    int           `json:"concurrency"`
	Elapsed        float64       `json:"elapsed_ms"`
	Pairs          uint64        `json:"pairs"`
	PairsPerSecond float64       `json:"pairs_per_second"`
	Acquire        latencyReport `json:"acquire"`
	Release        latencyReport `json:"release"`
	Both           latencyReport `json:"both"`
	Failures       failureCounts `json:"failures"`
	LastFailure    string        `json:"last_failure,omitempty"`
}

type latencyReport struct {
	Mean      float64       `json:"mean_ms"`
	Min       float64       `json:"min_ms"`
	P50       float64       `json:"p50_ms"`
	P90       float64       `json:"p90_ms"`
	P99       float64       `json:"p99_ms"`
	P999      float64       `json:"p999_ms"`
	Max       float64       `json:"max_ms"`
	Histogram []bucketCount `json:"histogram"`
}

type bucketCount struct {
	UpTo  float64 `json:"up_to_ms"`
	Count uint64  `json:"count"`
}

type failureCounts struct {
	NoQuorum uint64 `json:"no_quorum"`
	Taken    uint64 `json:"taken"`
	Lost     uint64 `json:"lost"`
	Failed   uint64 `json:"failed"`
}

func (b *benchmark) json() benchReport {
	r := benchReport{
		Nodes: b.nodes, Concurrency: b.concurrency, Elapsed: milliseconds(b.Elapsed),
		Pairs: b.Pair.Count(), PairsPerSecond: b.pairsPerSecond(),
		Acquire: describeLatency(&b.Acquire), Release: describeLatency(&b.Release), Both: describeLatency(&b.Pair),
		Failures: failureCounts{b.NoQuorum, b.Taken, b.Lost, b.Other},
	}
	if b.Last != nil {
		r.LastFailure = b.Last.Error()
	}
	return r
}

func describeLatency(h *latency.Histogram) latencyReport {
	r := latencyReport{
		Mean: milliseconds(h.Mean()), Min: milliseconds(h.Min()), Max: milliseconds(h.Max()),
		P50: milliseconds(h.Quantile(0.5)), P90: milliseconds(h.Quantile(0.9)),
		P99: milliseconds(h.Quantile(0.99)), P999: milliseconds(h.Quantile(0.999)),
		Histogram: []bucketCount{},
	}
	for _, row := range h.Rows() {
		r.Histogram = append(r.Histogram, bucketCount{milliseconds(row.UpTo), row.Count})
	}
	return r
}
