package redlock_test

import (
	"bytes"
	"encoding/base64"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/redlock"
)

var tokenForm = regexp.MustCompile(`(?s)^[A-Za-z0-9_-]{22}\.`)

func FuzzTokens(f *testing.F) {
	for _, label := range []string{
		"", "host:4711", "a.b.c", ".", "ключ", "two words", strings.Repeat("x", 128), strings.Repeat("x", 129),
		"\n", "\xff", "\u0085", "\u00a0", strings.Repeat("é", 64),
	} {
		f.Add(label)
	}
	f.Fuzz(func(t *testing.T, label string) {
		usable := len(label) <= 128 && utf8.ValidString(label) && !strings.ContainsFunc(label, unicode.IsControl)
		require.Equal(t, usable, redlock.CheckOwner(label) == nil)
		_, err := redlock.New(threeNodes, redlock.WithOwner(label))
		require.Equal(t, usable, err == nil)
		if !usable {
			requireOutcome(t, err, redlock.ErrConfig)
			return
		}
		token := redlock.NewToken(label)
		require.Regexp(t, tokenForm, token)
		require.Equal(t, label, token[23:])
		require.Equal(t, label, redlock.OwnerOf(token))
		require.NotEqual(t, token, redlock.NewToken(label))
	})
}

// A token is a secret, and contenders must not draw the same: each of its 128
// bits is drawn, and so is seen as 0 and as 1.
func TestEveryBitOfATokenIsDrawn(t *testing.T) {
	var ones, zeros [16]byte
	for range 100 {
		random, err := base64.RawURLEncoding.DecodeString(redlock.NewToken("owner")[:22])
		require.NoError(t, err)
		for i, b := range random {
			ones[i] |= b
			zeros[i] |= ^b
		}
	}
	all := [16]byte(bytes.Repeat([]byte{0xff}, 16))
	require.Equal(t, all, ones)
	require.Equal(t, all, zeros)
}

// What is stored under a key may come from anybody.
func FuzzOwnerOf(f *testing.F) {
	for _, text := range []string{
		"", ".", "AAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAA.", "AAAAAAAAAAAAAAAAAAAAAA.me", "AAAAAAAAAAAAAAAAAAAAA+.me",
		"AAAAAAAAAAAAAAAAAAAAA.me", "AAAAAAAAAAAAAAAAAAAAAAA.me", "AAAAAAAAAAAAAAAAAAAAAA.\n", "AAAAAAAAAAAAAAAAAAAAAA.\xff",
		"AAAAAAAAAAAAAAAAAAAAA\n.me", "AAAAAAAAAAAAAA\nAAAAAA\n.me", "AAAAAAAAAAAAAAAAAAAAAA.a.b", "a1b2c3d4e5f6a7b8c9d0e1f2a3b4c5d6",
		"AAAAAAAAAAAAAAAAAAAAAA." + strings.Repeat("x", 129),
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		owner := redlock.OwnerOf(text)
		if owner == "" {
			return
		}
		require.NoError(t, redlock.CheckOwner(owner))
		require.Regexp(t, tokenForm, text)
		require.Equal(t, owner, text[23:])
	})
}
