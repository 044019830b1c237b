package main

import (
	"bufio"
	"context"
	"fmt"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/redquorum/go-redlock/cmd/redlock/internal/term"
	"github.com/redquorum/go-redlock/redlock"
)

func newBreak(given invocation) *cli.Command {
	return &cli.Command{
		Name:      "break",
		Usage:     "take a lock away from its holder",
		ArgsUsage: "NAME",
		Description: `Shows who holds the lock, asks, and deletes it on all nodes: that holder's and
nobody's who came later. It is for holders that are known to be dead. One that
is not hears of it at its next renewal, and until then works on beside the next
holder.

The exit status is 0 if nobody holds the lock any more, also if nobody did; 1 if
the answer was no; and 194 if too few nodes answered.`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "yes", Aliases: []string{"y"}, Usage: "do not ask"},
		},
		OnUsageError: onUsageError,
		Action: func(ctx context.Context, c *cli.Command) error {
			name, err := given.operand(c, "name of a lock")
			if err != nil {
				return err
			}
			if _, _, terminal := term.Size(c.Root().Reader); !terminal && !c.Bool("yes") {
				return usage("break: standard input is no terminal: nobody can be asked; give --yes to go on without")
			}
			locker, err := connect(c, logger(c))
			if err != nil {
				return err
			}
			defer func() { _ = locker.Close() }() // nothing was begun
			status, err := locker.Inspect(ctx, name)
			if err != nil {
				return err
			}
			held := numberHolders(status)[""] > 0
			if held {
				if err := confirm(ctx, c, status, given.env); err != nil {
					return err
				}
				if err := locker.Break(ctx, status); err != nil {
					return err
				}
			} else if status.State == redlock.StateUnknown {
				return &exitError{exitNoQuorum, fmt.Errorf("break: too few nodes answered to tell who holds %s: %w", plain(name), redlock.ErrNoQuorum)}
			}
			return tellBroken(c, status, held)
		},
	}
}

// confirm returns an error unless the lock may be broken.
func confirm(ctx context.Context, c *cli.Command, status *redlock.Status, env environ) error {
	if c.Bool("yes") {
		return nil
	}
	stderr := c.Root().ErrWriter
	_, err := fmt.Fprintf(stderr, "%sIts holder, if it lives, works on until it next renews. Break the lock? [y/N] ",
		statusText(status, term.For(stderr, env.lookup)))
	if err != nil {
		return err // who does not see the question cannot have meant the answer
	}
	answered := make(chan bool, 1)
	go func() { // ends with the program, if nobody answers
		// Half a line is half an answer.
		answer, err := bufio.NewReader(c.Root().Reader).ReadString('\n')
		answer = strings.ToLower(strings.TrimSpace(answer))
		answered <- err == nil && (answer == "y" || answer == "yes")
	}()
	select {
	case yes := <-answered:
		if !yes {
			return &exitError{status: exitFailed}
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

type breakReport struct {
	Broken bool         `json:"broken"`
	Was    statusReport `json:"was"`
}

func tellBroken(c *cli.Command, was *redlock.Status, broken bool) error {
	out := c.Root().Writer
	var err error
	switch {
	case c.Bool(flagJSON):
		err = writeJSON(out, breakReport{broken, describeStatus(was)})
	case !broken:
		_, err = fmt.Fprintf(out, "%s: nobody holds it\n", plain(was.Name))
	case was.Token == "":
		_, err = fmt.Fprintf(out, "%s: broken; it was %v\n", plain(was.Name), was.State)
	default:
		_, err = fmt.Fprintf(out, "%s: broken; it was %v by %s\n", plain(was.Name), was.State, ownerText(was.Token, was.Owner))
	}
	return err
}
