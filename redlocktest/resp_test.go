package redlocktest_test

import (
	"bufio"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/redlocktest"
)

// What is read of a stream of commands is what was written, word for word, and
// rubbish is an error.
func FuzzReadCommand(f *testing.F) {
	for _, stream := range []string{
		"", "PING\r\n", "\r\n\r\nPING now\n", "*1\r\n$4\r\nPING\r\n", "*2\r\n$4\r\nECHO\r\n$2\r\n\r\n\r\n", "*0\r\n*-1\r\nPING\r\n",
		"*1\r\n:1\r\n", "*x\r\n", "*1048577\r\n", "*1\r\n$-1\r\n", "*1\r\n$9\r\nshort", "*2\r\n$1\r\na\r\n",
	} {
		f.Add(stream)
	}
	f.Fuzz(func(t *testing.T, stream string) {
		args, err := redlocktest.ReadCommand(bufio.NewReader(strings.NewReader(stream)))
		if err != nil {
			return
		}
		require.NotEmpty(t, args)
		var b strings.Builder
		fmt.Fprintf(&b, "*%d\r\n", len(args))
		for _, arg := range args {
			fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
		}
		again, err := redlocktest.ReadCommand(bufio.NewReader(strings.NewReader(b.String())))
		require.NoError(t, err)
		require.Equal(t, args, again)
	})
}
