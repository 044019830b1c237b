package term_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/cmd/redlock/internal/term"
)

func env(values map[string]string) func(string) (string, bool) {
	return func(key string) (string, bool) {
		value, ok := values[key]
		return value, ok
	}
}

func TestOnlyTerminalsGetColour(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = file.Close() })
	device, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = device.Close() })

	none := term.Painter{}
	assert.Equal(t, none, term.For(&bytes.Buffer{}, env(nil)))
	assert.Equal(t, none, term.For(file, env(nil)))
	assert.Equal(t, term.Coloured(), term.For(device, env(nil)), "a character device")
	assert.Equal(t, term.Coloured(), term.For(device, env(map[string]string{"NO_COLOR": ""})), "set, but empty")
	assert.Equal(t, none, term.For(device, env(map[string]string{"NO_COLOR": "1"})))
	assert.Equal(t, none, term.For(device, env(map[string]string{"TERM": "dumb"})))
}

func TestPaintAddsAttributes(t *testing.T) {
	p := term.Coloured()
	assert.Equal(t, "\x1b[1m\x1b[31mno\x1b[0m", p.Paint("no", term.Bold, term.Red))
	assert.Equal(t, "no", p.Paint("no"))
	assert.Empty(t, p.Paint("", term.Red))
	assert.Equal(t, "no", term.Painter{}.Paint("no", term.Red))
}
