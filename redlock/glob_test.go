package redlock_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/redlock"
)

// The answers are those of Redis 7.0.15 (KEYS with each pattern).
func TestAPatternMatchesAsInRedis(t *testing.T) {
	for _, test := range []struct {
		pattern, text string
		want          bool
	}{
		{"", "", true},
		{"", "a", false},
		{"*", "", true},
		{"*", "a\nb/c", true},
		{"a*c", "abbc", true},
		{"a*c", "abcb", false},
		{"*a*b*", "xxaxxbxx", true},
		{"*a*b", "abab", true},
		{"a**", "a", true},
		{"?", "", false},
		{"a?c", "abc", true},
		{"a?", "abc", false},
		{"[abc]", "b", true},
		{"[abc]", "d", false},
		{"[^abc]", "b", false},
		{"[^abc]", "d", true},
		{"[a-c]", "b", true},
		{"[c-a]", "b", true},
		{"[a-c]", "-", false},
		{"[a-]", "-", false},
		{`[\]]`, "]", true},
		{`[\^a]`, "^", true},
		{"[]", "]", false},
		{"[^]", "a", true},
		{"[abc", "b", true},
		{"[abc", "d", false},
		{`\*`, "*", true},
		{`\*`, "a", false},
		{`\a`, "a", true},
		{`a\`, `a\`, true},
		{"ab]", "ab]", true},
	} {
		assert.Equal(t, test.want, redlock.MatchGlob(test.pattern, test.text), "%q against %q", test.pattern, test.text)
	}
}

func TestAPatternFullOfStarsTakesNoTime(t *testing.T) {
	assert.False(t, redlock.MatchGlob(strings.Repeat("a*", 500)+"b", strings.Repeat("a", 1000)))
}

func FuzzMatchGlob(f *testing.F) {
	f.Add("a*[b-", `x\`, "y")
	f.Add("[^", "", "]")
	f.Fuzz(func(t *testing.T, pattern, before, after string) {
		_ = redlock.MatchGlob(pattern, before)
		require.True(t, redlock.MatchGlob(redlock.EscapeGlob(before), before), "an escaped text matches itself")
		require.True(t, redlock.MatchGlob(redlock.EscapeGlob(before)+"*"+redlock.EscapeGlob(after), before+pattern+after))
		if before != after {
			require.False(t, redlock.MatchGlob(redlock.EscapeGlob(before), after), "and nothing else")
		}
	})
}
