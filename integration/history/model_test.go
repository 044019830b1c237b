package history_test

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/assert"

	"github.com/redquorum/go-redlock/integration/history"
)

// What the judge must see, with histories written by hand. Each step is recorded when it returns, and all of them
// follow one another.
func TestTheJudgeAllowsOneHolderAtATimeAndGrowingNumbers(t *testing.T) {
	const ok, illegal = porcupine.Ok, porcupine.Illegal
	type script struct{ *history.Recorder }
	got := func(s script, name string, number uint64) *history.Hold {
		return s.Acquired(0, name, number, s.Now())
	}
	for _, c := range []struct {
		name string
		play func(s script)
		want porcupine.CheckResult
	}{
		{"one after another", func(s script) {
			a := got(s, "a", 1)
			a.Valid(s.Now(), time.Hour)
			a.Released(s.Now(), true)
			got(s, "a", 2)
		}, ok},
		{"two names", func(s script) { got(s, "a", 1); got(s, "b", 1) }, ok},
		{"two holders", func(s script) {
			a := got(s, "a", 1)
			b := got(s, "a", 2)
			a.Valid(s.Now(), time.Hour)
			a.Released(s.Now(), true)
			b.Released(s.Now(), true)
		}, illegal},
		{"two holders, of which one looked only before there were two", func(s script) {
			a := got(s, "a", 1)
			a.Valid(s.Now(), time.Hour)
			got(s, "a", 2)
			a.Released(s.Now(), true)
		}, illegal},
		{"a holder that never ends", func(s script) { got(s, "a", 1); got(s, "a", 2) }, illegal},
		{"a second before the first has expired", func(s script) {
			a := got(s, "a", 1)
			a.Valid(s.Now(), time.Hour)
			got(s, "a", 2)
			a.Expired()
		}, illegal},
		{"a second after the first has expired", func(s script) {
			a := got(s, "a", 1)
			a.Valid(s.Now(), time.Nanosecond)
			got(s, "a", 2)
			a.Expired()
		}, ok},
		{"a second while nobody knows of the release", func(s script) {
			a := got(s, "a", 1)
			a.Valid(s.Now(), time.Hour)
			released := s.Now()
			got(s, "a", 2)
			a.Released(released, false)
		}, ok},
		{"a second before a release of which nobody knows", func(s script) {
			a := got(s, "a", 1)
			a.Valid(s.Now(), time.Hour)
			got(s, "a", 2)
			a.Released(s.Now(), false)
		}, illegal},
		{"a release that comes after the validity", func(s script) {
			a := got(s, "a", 1)
			a.Valid(s.Now(), time.Nanosecond)
			got(s, "a", 2)
			a.Released(s.Now(), false)
		}, ok},
		{"a loss that was not seen at once", func(s script) {
			a := got(s, "a", 1)
			a.Valid(s.Now(), time.Hour)
			got(s, "a", 2)
			a.Lost()
		}, ok},
		{"the same number again", func(s script) {
			a := got(s, "a", 1)
			a.Released(s.Now(), true)
			got(s, "a", 1)
		}, illegal},
		{"a smaller number", func(s script) {
			a := got(s, "a", 5)
			a.Released(s.Now(), true)
			got(s, "a", 4)
		}, illegal},
		{"acquisitions that overlap, the first to return with the larger number", func(s script) {
			called := s.Now()
			a := got(s, "a", 2)
			a.Released(s.Now(), true)
			s.Acquired(1, "a", 1, called)
		}, illegal}, // the second was held after the first
	} {
		t.Run(c.name, func(t *testing.T) {
			s := script{history.New()}
			c.play(s)
			assert.Equal(t, c.want, s.Judge(time.Minute).Result)
		})
	}
}
