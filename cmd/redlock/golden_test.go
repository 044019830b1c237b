package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares the shape of lines of JSON, their fields and the kinds of
// their values, with that in a file of testdata: what programs that read them
// depend on. Values that are one of a few words stay.
func golden(t *testing.T, file, lines string, words ...string) {
	t.Helper()
	var shapes bytes.Buffer
	for line := range strings.Lines(lines) {
		var value any
		require.NoError(t, json.Unmarshal([]byte(line), &value), line)
		text, err := json.MarshalIndent(shape(value, words), "", "  ")
		require.NoError(t, err)
		shapes.Write(append(text, '\n'))
	}
	path := filepath.Join("testdata", file)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, shapes.Bytes(), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), shapes.String(), "if this is meant: go test ./cmd/redlock -update; readers will have to change, too")
}

var address = regexp.MustCompile(`^127\.0\.0\.1:\d+$`)

func shape(value any, words []string) any {
	switch value := value.(type) {
	case map[string]any:
		for key := range value {
			value[key] = shape(value[key], words)
		}
	case []any:
		// Lists of one kind of thing: one shows it.
		if len(value) > 0 {
			return []any{shape(value[0], words)}
		}
	case float64:
		return "number"
	case string:
		switch {
		case slices.Contains(words, value):
			return value
		case address.MatchString(value):
			return "address"
		}
		return "text"
	}
	return value
}
