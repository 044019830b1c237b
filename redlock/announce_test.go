package redlock_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/redlock"
)

// Anybody may publish on any channel, and keys are any bytes.
func FuzzAnnounced(f *testing.F) {
	for _, channel := range []string{
		"", "redlock", "redlock:", "redlock::", "redlock:released", "redlock:released:", "redlock:released:job",
		"redlock:released:a:b", "redlock:released:redlock:released:a", "redlock:acquired:\xff\r\n", "Redlock:released:job", "released:job",
	} {
		f.Add(channel)
	}
	f.Fuzz(func(t *testing.T, channel string) {
		what, key, ok := redlock.Announced(channel)
		if !ok {
			require.False(t, strings.HasPrefix(channel, "redlock:") && strings.Count(channel, ":") > 1, "an announcement is missed")
			return
		}
		require.Equal(t, channel, "redlock:"+what+":"+key, "nothing is lost")
		require.NotContains(t, what, ":", "the key has all colons of its own")
	})
}
