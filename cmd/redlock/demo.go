package main

import (
	"context"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/redquorum/go-redlock/cmd/redlock/internal/demo"
	"github.com/redquorum/go-redlock/cmd/redlock/internal/term"
)

func newDemo(given invocation) *cli.Command {
	return &cli.Command{
		Name:  "demo",
		Usage: "see a lock survive the loss of nodes",
		Description: `Contenders fight for one lock while nodes are killed, hung and restarted, never
more than a minority at once. Every hold is recorded, and the verdict is
computed from the records.

Without --nodes the nodes are embedded, and no Redis is needed. Real nodes are
not touched: proxies in front of them make the faults. The lock has a name of
its own, and nothing of it stays.

The exit status is 0 if the lock was held, and never twice at once; otherwise 1.`,
		Flags: []cli.Flag{
			&cli.DurationFlag{Name: "duration", Usage: "how long the contenders run", Value: 10 * time.Second},
			&cli.IntFlag{Name: "lockers", Usage: "how many Lockers, each as if in a process of its own", Value: 4},
			&cli.IntFlag{Name: "per-locker", Usage: "how many contenders share one Locker", Value: 2},
		},
		OnUsageError: onUsageError,
		Action: func(ctx context.Context, c *cli.Command) error {
			if operands := given.operands(c); len(operands) > 0 {
				return usage("demo: unexpected argument %q", operands[0])
			}
			out := c.Root().Writer
			options := demo.Options{
				Nodes:     nodes(c),
				Duration:  c.Duration("duration"),
				Lockers:   c.Int("lockers"),
				PerLocker: c.Int("per-locker"),
				Out:       out,
				Paint:     term.For(out, given.env.lookup),
			}
			if err := options.Validate(); err != nil {
				return usage("demo: %w", err)
			}
			verdict, err := demo.Run(ctx, options)
			switch {
			case err != nil:
				return err
			case !verdict.OK():
				return &exitError{status: exitFailed}
			}
			return nil
		},
	}
}
