package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/redquorum/go-redlock/cmd/redlock/internal/term"
	"github.com/redquorum/go-redlock/redlock"
)

func newWatch(given invocation) *cli.Command {
	return &cli.Command{
		Name:      "watch",
		Usage:     "watch locks come and go",
		ArgsUsage: "[PATTERN]",
		Description: `Tells what becomes of the locks whose names match PATTERN, as in redlock list, or
of all: found (held already when this began), acquired, renewed, released,
expired (the holder died, or works on without it), stuck (see --stuck), split and
lost majority (states that should not last), blind (too few nodes can be listed)
and sighted (that is over). Held ≥ is the time since a lock was found: nobody saw
when it was acquired.

On a terminal it shows a table of the locks that are held, and the latest news
below; elsewhere, and with --lines or --json, one line for each. It ends when it
is interrupted, with status 0.`,
		Flags: []cli.Flag{
			&cli.DurationFlag{Name: "stuck", Usage: "tell of locks that are seen to be held for longer than this", HideDefault: true},
			&cli.DurationFlag{Name: "every", Usage: "how often to look for what was not announced", Value: redlock.DefaultLookEvery},
			&cli.BoolFlag{Name: "lines", Usage: "print lines on a terminal, too"},
		},
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
			notices, err := locker.Watch(ctx, pattern,
				redlock.WithStuckAfter(c.Duration("stuck")), redlock.WithLookEvery(c.Duration("every")))
			if err != nil {
				return err
			}
			out := c.Root().Writer
			paint := term.For(out, given.env.lookup)
			_, _, terminal := term.Size(out)
			switch {
			case c.Bool(flagJSON):
				return watchLines(notices, func(n redlock.Notice) error { return writeJSON(out, describeNotice(n)) })
			case terminal && !c.Bool("lines"):
				return watchTable(out, notices, &table{pattern: pattern, paint: paint})
			}
			return watchLines(notices, func(n redlock.Notice) error {
				_, err := io.WriteString(out, noticeLine(n, paint)+"\n")
				return err
			})
		},
	}
}

// watchLines prints notices until there are no more.
func watchLines(notices <-chan redlock.Notice, tell func(redlock.Notice) error) error {
	for n := range notices {
		if err := tell(n); err != nil {
			return err
		}
	}
	return nil
}

// noticeLine has fixed columns, and last what may be long.
func noticeLine(n redlock.Notice, paint term.Painter) string {
	line := n.At.Format("15:04:05.000") + "  " + paint.Paint(fmt.Sprintf("%-13v", n.Kind), noticeColour(n.Kind))
	switch n.Kind {
	case redlock.NoticeBlind:
		return line + "  " + harmless(n.Err.Error())
	case redlock.NoticeSighted:
		return line
	default:
		return line + fmt.Sprintf("  held %-9s ttl %-9s %-24s  %s", heldText(n, n.Held), ttlText(n.TTL), plain(n.Owner), plain(n.Name))
	}
}

// heldText shows for how long a lock has been held.
func heldText(n redlock.Notice, held time.Duration) string {
	if n.Longer {
		return "≥" + ttlText(held)
	}
	return ttlText(held)
}

func noticeColour(k redlock.NoticeKind) term.Colour {
	switch k {
	case redlock.NoticeExpired, redlock.NoticeLostMajority, redlock.NoticeBlind:
		return term.Red
	case redlock.NoticeStuck, redlock.NoticeSplit:
		return term.Yellow
	case redlock.NoticeFound, redlock.NoticeAcquired:
		return term.Green
	case redlock.NoticeReleased:
		return term.Blue
	default:
		return term.Dim
	}
}

type noticeReport struct {
	Kind string    `json:"kind"`
	At   time.Time `json:"at"`
	nameReport
	Owner  string   `json:"owner"`
	TTL    *float64 `json:"ttl_ms"`
	Held   float64  `json:"held_ms"`
	Longer bool     `json:"held_longer"`
	Error  string   `json:"error,omitempty"`
}

func describeNotice(n redlock.Notice) noticeReport {
	r := noticeReport{
		Kind: word(n.Kind), At: n.At, nameReport: describeName(n.Name), Owner: n.Owner, TTL: ttlMilliseconds(n.TTL), Held: milliseconds(n.Held), Longer: n.Longer,
	}
	if n.Err != nil {
		r.Error = n.Err.Error()
	}
	return r
}

// redraw is how often the table is drawn: often enough to see time pass.
const redraw = 250 * time.Millisecond

// Control sequences of terminals.
const (
	otherScreen = "\x1b[?1049h\x1b[?25l" // and without a cursor
	firstScreen = "\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	clearLine   = "\x1b[K"
	clearBelow  = "\x1b[J"
)

// watchTable shows the table until there are no more notices, and leaves the
// terminal as it was.
func watchTable(out io.Writer, notices <-chan redlock.Notice, t *table) error {
	if _, err := io.WriteString(out, otherScreen); err != nil {
		return err
	}
	defer func() { _, _ = io.WriteString(out, firstScreen) }() // all that can be done
	ticker := time.NewTicker(redraw)
	defer ticker.Stop()
	for {
		columns, rows, _ := term.Size(out)
		frame := strings.Join(t.draw(time.Now(), columns, rows), clearLine+"\r\n")
		if _, err := io.WriteString(out, home+frame+clearLine+clearBelow); err != nil {
			return err
		}
		select {
		case n, more := <-notices:
			if !more {
				return nil
			}
			t.take(n)
		case <-ticker.C:
		}
	}
}
