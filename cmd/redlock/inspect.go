package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/redquorum/go-redlock/cmd/redlock/internal/term"
	"github.com/redquorum/go-redlock/redlock"
)

func newInspect(given invocation) *cli.Command {
	return &cli.Command{
		Name:      "inspect",
		Usage:     "show who holds a lock, node by node",
		ArgsUsage: "NAME",
		Description: `The exit status is 0 if a quorum of nodes says that the lock is held, 1 if it is
not, and 194 if so few nodes answered that it could be either.`,
		OnUsageError: onUsageError,
		Action: func(ctx context.Context, c *cli.Command) error {
			name, err := given.operand(c, "name of a lock")
			if err != nil {
				return err
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
			out := c.Root().Writer
			if c.Bool(flagJSON) {
				err = writeJSON(out, describeStatus(status))
			} else {
				_, err = fmt.Fprint(out, statusText(status, term.For(out, given.env.lookup)))
			}
			switch {
			case err != nil:
				return err
			case status.State == redlock.StateUnknown:
				return &exitError{status: exitNoQuorum}
			case status.State != redlock.StateHeld:
				return &exitError{status: exitFailed}
			}
			return nil
		},
	}
}

// operand returns the only argument that is no flag.
func (i invocation) operand(c *cli.Command, what string) (string, error) {
	operands := i.operands(c)
	switch len(operands) {
	case 0:
		return "", usage("%s: no %s", c.Name, what)
	case 1:
		return operands[0], nil
	}
	return "", usage("%s: unexpected argument %q", c.Name, operands[1])
}

// statusText shows a status to people.
func statusText(s *redlock.Status, paint term.Painter) string {
	var t strings.Builder
	fmt.Fprintf(&t, "%s: %s", plain(s.Name), paint.Paint(s.State.String(), term.Bold, stateColour(s.State)))
	switch s.State {
	case redlock.StateHeld:
		fmt.Fprintf(&t, " by %s on %d of %s, for %s if it is not renewed", ownerText(s.Token, s.Owner), s.Holders(),
			plural(len(s.Nodes), "node"), ttlText(s.TTL))
	case redlock.StateUnknown:
		fmt.Fprintf(&t, ": too few of %s answered, %d are needed", plural(len(s.Nodes), "node"), s.Quorum)
	default: // the nodes say the rest
	}
	t.WriteByte('\n')
	if s.FencingToken > 0 {
		fmt.Fprintf(&t, "last fencing token: %d\n", s.FencingToken)
	}
	width := 0
	for i := range s.Nodes {
		width = max(width, len(s.Nodes[i].Addr))
	}
	holders := numberHolders(s)
	for i := range s.Nodes {
		n := &s.Nodes[i]
		fmt.Fprintf(&t, "  %-*s  ", width, n.Addr)
		switch {
		case n.Err != nil:
			t.WriteString(paint.Paint(harmless(n.Err.Error()), term.Red))
		case n.Held:
			fmt.Fprintf(&t, "%-8s %s", ttlText(n.TTL), ownerText(n.Token, n.Owner))
			if holders[""] > 1 {
				fmt.Fprintf(&t, " (holder %d)", holders[n.Token])
			}
		default:
			t.WriteString("free")
		}
		t.WriteByte('\n')
	}
	return t.String()
}

// numberHolders numbers the tokens from 1: labels need not be unique, and
// tokens are secret. Under "" it has how many there are.
func numberHolders(s *redlock.Status) map[string]int {
	numbers := make(map[string]int)
	for i := range s.Nodes {
		if n := &s.Nodes[i]; n.Held && numbers[n.Token] == 0 {
			numbers[""]++
			numbers[n.Token] = numbers[""]
		}
	}
	return numbers
}

func stateColour(s redlock.State) term.Colour {
	switch s {
	case redlock.StateHeld:
		return term.Green
	case redlock.StateFree:
		return term.Blue
	default:
		return term.Yellow
	}
}

// ownerText shows an owner. A token of another library has no label.
func ownerText(token, owner string) string {
	if owner == "" && token != "" {
		return "(no label)"
	}
	return plain(owner)
}

// ttlText shows what is left of a TTL.
func ttlText(d time.Duration) string {
	if d == redlock.Forever {
		return "ever"
	}
	return d.Round(100 * time.Millisecond).String()
}

// plain shows a text as it is if that is unambiguous, and quoted otherwise:
// what others have chosen must not steer the terminal.
func plain(text string) string {
	if quoted := strconv.Quote(text); text == "" || strings.ContainsAny(text, " ") || quoted[1:len(quoted)-1] != text {
		return quoted
	}
	return text
}

// harmless shows a text that has words of others in it, such as the answer of a
// node. It is plain for what need not be unambiguous.
func harmless(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r == '\n' || strconv.IsPrint(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

// statusReport is a redlock.Status in JSON. It has no tokens: who knows one can
// release the lock.
type statusReport struct {
	nameReport
	State        string             `json:"state"`
	Owner        string             `json:"owner"`
	TTL          *float64           `json:"ttl_ms"`
	FencingToken uint64             `json:"fencing_token"`
	Holders      int                `json:"holders"`
	Quorum       int                `json:"quorum"`
	Nodes        []nodeStatusReport `json:"nodes"`
}

type nodeStatusReport struct {
	Node string `json:"node"`
	// Holder is 0 if nobody holds the name there, and otherwise a number that
	// is the same where the token is.
	Holder       int      `json:"holder"`
	Owner        string   `json:"owner"`
	TTL          *float64 `json:"ttl_ms"`
	FencingToken uint64   `json:"fencing_token"`
	Error        string   `json:"error,omitempty"`
}

func describeStatus(s *redlock.Status) statusReport {
	r := statusReport{
		nameReport: describeName(s.Name), State: word(s.State), Owner: s.Owner, TTL: ttlMilliseconds(s.TTL), FencingToken: s.FencingToken,
		Holders: s.Holders(), Quorum: s.Quorum,
	}
	numbers := numberHolders(s)
	for i := range s.Nodes {
		n := &s.Nodes[i]
		report := nodeStatusReport{Node: n.Addr, Owner: n.Owner, TTL: ttlMilliseconds(n.TTL), FencingToken: n.FencingToken}
		if n.Held {
			report.Holder = numbers[n.Token]
		}
		if n.Err != nil {
			report.Error = n.Err.Error()
		}
		r.Nodes = append(r.Nodes, report)
	}
	return r
}

// ttlMilliseconds returns nil, null in JSON, for a key that never ends.
func ttlMilliseconds(d time.Duration) *float64 {
	if d == redlock.Forever {
		return nil
	}
	ms := milliseconds(d)
	return &ms
}

// word is a name of the library's as programs like it.
func word(name fmt.Stringer) string { return strings.ReplaceAll(name.String(), " ", "_") }
