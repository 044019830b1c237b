package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/urfave/cli/v3"

	"github.com/redquorum/go-redlock/redlock"
)

func newList(given invocation) *cli.Command {
	return &cli.Command{
		Name:      "list",
		Usage:     "list the locks that are held",
		ArgsUsage: "[PATTERN]",
		Description: `Lists the locks whose names match PATTERN (* is any text, ? any byte, [a-c] one
of some), or all, as it finds them. It reads the nodes page by page, which does
not hold them up. Every short string under a matching key is listed: Redis
cannot tell what is a lock.

Nodes that cannot be listed are named on standard error; a quorum of the others
knows every lock. The exit status is 194 if there is none.`,
		OnUsageError: onUsageError,
		Action: func(ctx context.Context, c *cli.Command) error {
			pattern, err := given.pattern(c)
			if err != nil {
				return err
			}
			locker, err := connect(c, logger(c))
			if err != nil {
				return err
			}
			defer func() { _ = locker.Close() }() // nothing was begun
			out, asJSON := c.Root().Writer, c.Bool(flagJSON)
			if !asJSON {
				if _, err := fmt.Fprintln(out, listHeader); err != nil {
					return err
				}
			}
			for status, err := range locker.List(ctx, pattern) {
				var node *redlock.NodeError
				switch {
				case err == nil && asJSON:
					err = writeJSON(out, describeStatus(status))
				case err == nil:
					_, err = io.WriteString(out, listLine(status))
				case errors.As(err, &node) && !errors.Is(err, redlock.ErrNoQuorum):
					err = warn(c, node)
				}
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// pattern returns the only argument that is no flag; it may be missing.
func (i invocation) pattern(c *cli.Command) (string, error) {
	if len(i.operands(c)) == 0 {
		return "", nil
	}
	return i.operand(c, "pattern")
}

// warn tells of a node that failed, which does not end the program.
func warn(c *cli.Command, failed *redlock.NodeError) error {
	stderr := c.Root().ErrWriter
	if c.Bool(flagJSON) {
		return writeJSON(stderr, struct {
			Warning nodeReport `json:"warning"`
		}{nodeReport{failed.Addr, failed.Err.Error()}})
	}
	_, err := fmt.Fprintf(stderr, "redlock: %s\n", harmless(failed.Error()))
	return err
}

const listFormat = "%-13s  %5s  %8s  %-24s  %s"

var listHeader = fmt.Sprintf(listFormat, "STATE", "NODES", "TTL", "OWNER", "NAME")

// listLine has fixed columns, and last what may be long: it is printed before
// the next one is known.
func listLine(s *redlock.Status) string {
	ttl := ""
	if s.State == redlock.StateHeld {
		ttl = ttlText(s.TTL)
	}
	owner := ownerText(s.Token, s.Owner)
	if s.Token == "" {
		owner = "several"
	}
	return fmt.Sprintf(listFormat+"\n", s.State, fmt.Sprintf("%d/%d", s.Holders(), len(s.Nodes)), ttl, owner, plain(s.Name))
}
