package demo_test

import (
	"math/bits"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/cmd/redlock/internal/demo"
)

// A demo that cannot fail shows nothing: here it is, with a lock that excludes
// nobody.
func TestBrokenLockIsFoundOut(t *testing.T) {
	var out strings.Builder
	v, err := demo.Run(t.Context(), demo.Options{
		Duration: 2 * time.Second, Lockers: 2, PerLocker: 1, Out: &out,
	}.Broken())
	require.NoError(t, err)
	assert.False(t, v.OK())
	assert.NotEmpty(t, v.Overlaps)
	assert.Less(t, v.Witness.Counter, v.Witness.Sections)
	assert.Positive(t, v.Witness.Met)
	assert.Contains(t, out.String(), "THE LOCK WAS HELD TWICE")
	assert.Contains(t, out.String(), "HELD TWICE: ", "the timeline does not show it")
}

func TestOutputFitsOnAScreen(t *testing.T) {
	var out strings.Builder
	v, err := demo.Run(t.Context(), demo.Options{
		Duration: 2 * time.Second, Lockers: 6, PerLocker: 2, Out: &out,
	})
	require.NoError(t, err)
	assert.Empty(t, v.Overlaps)
	for line := range strings.Lines(out.String()) {
		assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimRight(line, "\n")), 100, line)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	good := demo.Options{Duration: 10 * time.Second, Lockers: 4, PerLocker: 2}
	require.NoError(t, good.Validate())
	for _, spoil := range []func(*demo.Options){
		func(o *demo.Options) { o.Duration = time.Second },
		func(o *demo.Options) { o.Duration = 2 * time.Hour },
		func(o *demo.Options) { o.Lockers = 0 },
		func(o *demo.Options) { o.PerLocker = -1 },
		func(o *demo.Options) { o.Lockers, o.PerLocker = 1, 1 },
		func(o *demo.Options) { o.Lockers, o.PerLocker = 13, 1 },
		func(o *demo.Options) { o.Lockers, o.PerLocker = 1<<(bits.UintSize/2), 1<<(bits.UintSize/2) },
	} {
		o := good
		spoil(&o)
		require.Error(t, o.Validate(), "%+v", o)
		_, err := demo.Run(t.Context(), o)
		require.Error(t, err)
	}
}
