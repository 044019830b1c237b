package main

import (
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/redquorum/go-redlock/cmd/redlock/internal/term"
	"github.com/redquorum/go-redlock/redlock"
)

// table is what redlock watch shows on a terminal: the locks that are held, and
// the latest news.
type table struct {
	pattern string
	paint   term.Painter
	held    map[string]redlock.Notice // the last notice of each lock that is held
	news    []redlock.Notice          // the latest last
	blind   error
}

// maxNews is more than a terminal has room for.
const maxNews = 200

// take makes a notice part of the table.
func (t *table) take(n redlock.Notice) {
	switch n.Kind {
	case redlock.NoticeReleased, redlock.NoticeExpired:
		delete(t.held, n.Name)
	case redlock.NoticeBlind:
		t.blind = n.Err
	case redlock.NoticeSighted:
		t.blind = nil
	default:
		if t.held == nil {
			t.held = make(map[string]redlock.Notice)
		}
		// A renewal says that votes are in order again, and not that the lock has
		// not been held for too long.
		before, known := t.held[n.Name]
		if known && n.Kind == redlock.NoticeRenewed && before.Kind == redlock.NoticeStuck && before.Owner == n.Owner {
			n.Kind = before.Kind
			t.held[n.Name] = n
			return
		}
		t.held[n.Name] = n
	}
	if n.Kind == redlock.NoticeRenewed {
		return // no news
	}
	t.news = append(t.news, n)
	if len(t.news) > maxNews {
		t.news = slices.Delete(t.news, 0, len(t.news)-maxNews)
	}
}

// draw returns the lines of the table as it is at a moment, for a terminal of
// some size. News get a third of it.
func (t *table) draw(now time.Time, columns, rows int) []string {
	title := fmt.Sprintf("%s held", plural(len(t.held), "lock"))
	if t.pattern != "" {
		title += ", " + plain(t.pattern)
	}
	if t.blind != nil {
		title = "BLIND: " + harmless(t.blind.Error())
	}
	lines := []string{
		t.paint.Paint(cut(title, columns), term.Bold),
		t.paint.Paint(cut(fmt.Sprintf(tableFormat, "", "HELD", "TTL", "OWNER", "NAME"), columns), term.Dim),
	}
	news := t.news[max(0, len(t.news)-rows/3):]
	room := max(rows-len(lines)-len(news)-1, 1)
	names := slices.Sorted(maps.Keys(t.held))
	for i, name := range names {
		if i == room-1 && len(names) > room {
			lines = append(lines, cut(fmt.Sprintf("  … and %d more", len(names)-i), columns))
			break
		}
		lines = append(lines, t.row(t.held[name], now, columns))
	}
	lines = append(lines, "")
	for _, n := range news {
		lines = append(lines, t.paint.Paint(cut(noticeLine(n, term.Painter{}), columns), noticeColour(n.Kind)))
	}
	return lines
}

const tableFormat = "%-13s  %8s  %8s  %-24s  %s"

// row shows a lock as its notice says, with the time passed since.
func (t *table) row(n redlock.Notice, now time.Time, columns int) string {
	passed := now.Sub(n.At)
	ttl := n.TTL
	if ttl != redlock.Forever {
		ttl = max(ttl-passed, 0)
	}
	state := ""
	switch n.Kind {
	case redlock.NoticeStuck, redlock.NoticeSplit, redlock.NoticeLostMajority:
		state = n.Kind.String()
	default: // as it should be
	}
	line := cut(fmt.Sprintf(tableFormat, state, heldText(n, (n.Held+passed).Truncate(time.Second)), ttlText(ttl.Truncate(time.Second)),
		plain(n.Owner), plain(n.Name)), columns)
	if state == "" {
		return line
	}
	return t.paint.Paint(line, noticeColour(n.Kind))
}

// cut shortens a line to the width of the terminal; a longer one would take two
// rows.
func cut(line string, columns int) string {
	if utf8.RuneCountInString(line) <= columns {
		return line
	}
	return string([]rune(line)[:max(columns-1, 0)]) + "…"
}
