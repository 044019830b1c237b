package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/go-redlock/redlock"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func notice(kind redlock.NoticeKind, name string) redlock.Notice {
	return redlock.Notice{
		Kind: kind, At: noon, Name: name, Owner: "db1:17", TTL: 30 * time.Second,
		Longer: name == "b", // it is found
	}
}

func drawn(t *table) string {
	return strings.Join(t.draw(noon, 80, 24), "\n")
}

func TestTheTableHasTheLocksThatAreHeldAndTheNews(t *testing.T) {
	tb := &table{pattern: "*"}
	for _, n := range []redlock.Notice{
		notice(redlock.NoticeFound, "b"), notice(redlock.NoticeAcquired, "a"), notice(redlock.NoticeAcquired, "c"),
		notice(redlock.NoticeStuck, "b"), notice(redlock.NoticeRenewed, "b"), notice(redlock.NoticeReleased, "c"),
	} {
		tb.take(n)
	}
	assert.Equal(t, `2 locks held, *
                   HELD       TTL  OWNER                     NAME
                     5s       25s  db1:17                    a
stuck               ≥5s       25s  db1:17                    b

12:00:00.000  found          held ≥0s       ttl 30s       db1:17                    b
12:00:00.000  acquired       held 0s        ttl 30s       db1:17                    a
12:00:00.000  acquired       held 0s        ttl 30s       db1:17                    c
12:00:00.000  stuck          held ≥0s       ttl 30s       db1:17                    b
12:00:00.000  released       held 0s        ttl 30s       db1:17                    c`,
		strings.Join(tb.draw(noon.Add(5*time.Second), 100, 24), "\n"))

	next := notice(redlock.NoticeAcquired, "b")
	next.Owner = "db2:17"
	tb.take(next)
	assert.NotContains(t, strings.Split(drawn(tb), "\n")[3], "stuck", "the next holder is not")
}

func TestALockWhoseVotesAreInOrderAgainIsShownSo(t *testing.T) {
	tb := &table{}
	for _, kind := range []redlock.NoticeKind{redlock.NoticeLostMajority, redlock.NoticeSplit} {
		tb.take(notice(kind, "a"))
		assert.True(t, strings.HasPrefix(strings.Split(drawn(tb), "\n")[2], kind.String()))
		tb.take(notice(redlock.NoticeRenewed, "a"))
		assert.True(t, strings.HasPrefix(strings.Split(drawn(tb), "\n")[2], "   "), "%s", drawn(tb))
	}
}

func TestTheTableTellsThatNothingIsKnown(t *testing.T) {
	tb := &table{}
	tb.take(redlock.Notice{Kind: redlock.NoticeBlind, At: noon, Err: errors.New("no quorum")})
	assert.Contains(t, drawn(tb), "BLIND: no quorum")
	tb.take(redlock.Notice{Kind: redlock.NoticeSighted, At: noon})
	assert.True(t, strings.HasPrefix(drawn(tb), "0 locks held"))
}

func TestTheTableFitsTheTerminal(t *testing.T) {
	tb := &table{}
	for i := range 100 {
		n := notice(redlock.NoticeFound, fmt.Sprintf("lock %d with a name that goes on and on", i))
		tb.take(n)
	}
	for _, size := range [][2]int{{80, 24}, {20, 5}, {200, 60}, {40, 10}} {
		lines := tb.draw(noon, size[0], size[1])
		assert.LessOrEqual(t, len(lines), size[1])
		for _, line := range lines {
			assert.LessOrEqual(t, len([]rune(line)), size[0])
		}
		assert.Contains(t, strings.Join(lines, "\n"), " more", size)
	}
}
