package conformance_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/internal/api"
)

// additions are what our packages export beyond redsync's.
var additions = map[string][]string{
	"": {"method (*Redsync) Close() error"},
	"/redis": {
		"type Pool interface, Node(...pool.Option) (*pool.Pool, error)",
	},
	"/redis/redigo": {"func NewPool(Pool, ...pool.Option) compat.Pool"},
}

// replaced are what redsync's packages export in another form.
var replaced = map[string][]string{
	"/redis/redigo": {"func NewPool(Pool) redsyncredis.Pool"},
}

func TestEverythingThatRedsyncExportsIsThere(t *testing.T) {
	for _, path := range []string{"", "/redis", "/redis/redigo"} {
		t.Run("redsync"+path, func(t *testing.T) {
			theirs, ours := exported(t, theirModule+path), exported(t, ourPackage+path)
			require.ElementsMatch(t, append(theirs, additions[path]...), append(ours, replaced[path]...))
		})
	}
}

func exported(t *testing.T, path string) []string {
	t.Helper()
	p, err := api.Parse(dir(t, path))
	require.NoError(t, err)
	var lines []string
	for _, line := range p.Exported() {
		// What a variable begins with is its own affair, if it is an error all the same.
		if name, _, ok := strings.Cut(line, " = errors.New("); ok {
			line = name + " error"
		}
		lines = append(lines, line)
	}
	require.NotEmpty(t, lines)
	return lines
}
