package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/redquorum/go-redlock/cmd/redlock/internal/term"
	"github.com/redquorum/go-redlock/redlock"
)

func newCheck(given invocation) *cli.Command {
	return &cli.Command{
		Name:  "check",
		Usage: "examine whether the nodes are fit to hold locks",
		Description: `Asks every node what there is to ask, and takes, renews and releases a lock of a
random name there. Each finding says what was seen, what that endangers and how
to mend it.

The exit status is 1 if there is an error among the findings. Warnings are a
fault away from trouble; with --strict they count, too.`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "all", Aliases: []string{"a"}, Usage: "print what is as it should be, too (--json always does)"},
			&cli.BoolFlag{Name: "strict", Usage: "fail on warnings, too"},
			&cli.DurationFlag{Name: "ttl", Usage: "the TTL that locks usually have, for what depends on it", Value: redlock.DefaultTTL},
		},
		OnUsageError: onUsageError,
		Action: func(ctx context.Context, c *cli.Command) error {
			if operands := given.operands(c); len(operands) > 0 {
				return usage("check: unexpected argument %q", operands[0])
			}
			locker, err := connect(c, logger(c), redlock.WithTTL(c.Duration("ttl")))
			if err != nil {
				return err
			}
			defer func() { _ = locker.Close() }() // nothing was begun
			report, err := locker.Check(ctx)
			if err != nil {
				return err
			}
			out := c.Root().Writer
			if c.Bool(flagJSON) {
				err = writeJSON(out, describeReport(report))
			} else {
				_, err = io.WriteString(out, reportText(report, c.Bool("all"), term.For(out, given.env.lookup)))
			}
			limit := redlock.LevelError
			if c.Bool("strict") {
				limit = redlock.LevelWarning
			}
			if err == nil && report.Worst() >= limit {
				err = &exitError{status: exitFailed}
			}
			return err
		},
	}
}

// reportText shows a report to people, in paragraphs: one for each node, and
// one for all.
func reportText(r *redlock.Report, all bool, paint term.Painter) string {
	var t strings.Builder
	node, fine, counts := "", 0, [4]int{}
	end := func() {
		if fine > 0 {
			fmt.Fprintf(&t, "  %s\n", paint.Paint(fmt.Sprintf("%d ok", fine), term.Green))
		}
		fine = 0
	}
	for i := range r.Findings {
		f := &r.Findings[i]
		counts[f.Level]++
		if i == 0 || f.Node != node {
			end()
			node = f.Node
			title := node
			if title == "" {
				title = "all nodes"
			}
			fmt.Fprintln(&t, paint.Paint(title, term.Bold))
		}
		if f.Level == redlock.LevelOK && !all {
			fine++
			continue
		}
		fmt.Fprintf(&t, "  %s %-11s  %s\n", paint.Paint(fmt.Sprintf("%-7v", f.Level), levelColour(f.Level)), f.What, harmless(f.Seen))
		if f.Endangers != "" {
			fmt.Fprintf(&t, "  %20s endangers %s\n", "", f.Endangers)
		}
		if f.Mend != "" {
			fmt.Fprintf(&t, "  %20s to mend it, %s\n", "", f.Mend)
		}
	}
	end()
	fmt.Fprintf(&t, "\n%s, %s, %d infos, %d ok\n", plural(counts[redlock.LevelError], "error"),
		plural(counts[redlock.LevelWarning], "warning"), counts[redlock.LevelInfo], counts[redlock.LevelOK])
	return t.String()
}

func levelColour(l redlock.Level) term.Colour {
	switch l {
	case redlock.LevelError:
		return term.Red
	case redlock.LevelWarning:
		return term.Yellow
	case redlock.LevelInfo:
		return term.Cyan
	default:
		return term.Green
	}
}

type checkReport struct {
	Worst    string          `json:"worst"`
	Findings []findingReport `json:"findings"`
}

type findingReport struct {
	Level     string `json:"level"`
	Node      string `json:"node"`
	What      string `json:"what"`
	Seen      string `json:"seen"`
	Endangers string `json:"endangers,omitempty"`
	Mend      string `json:"mend,omitempty"`
}

func describeReport(r *redlock.Report) checkReport {
	report := checkReport{Worst: word(r.Worst())}
	for i := range r.Findings {
		f := &r.Findings[i]
		report.Findings = append(report.Findings, findingReport{word(f.Level), f.Node, f.What, f.Seen, f.Endangers, f.Mend})
	}
	return report
}
