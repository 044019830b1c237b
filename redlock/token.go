package redlock

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A token is 128 random bits in base64url, a dot, and the owner label. The
// random part alone makes it unguessable; the label is for people.
const (
	tokenBytes = 16
	tokenChars = 22 // of tokenBytes bytes in unpadded base64
)

// maxOwner bounds the owner label, in bytes: it travels with every command.
const maxOwner = 128

// maxToken bounds the tokens that are not of our making, in bytes: ours are
// shorter, those of other libraries, too.
const maxToken = 256

func checkToken(token string) error {
	if token == "" || len(token) > maxToken {
		return refuse("token of %d bytes: want 1 to %d", len(token), maxToken)
	}
	return nil
}

func newToken(owner string) string {
	var random [tokenBytes]byte
	_, _ = rand.Read(random[:]) // never fails: it ends the program instead
	var token [tokenChars + 1 + maxOwner]byte
	base64.RawURLEncoding.Encode(token[:], random[:])
	token[tokenChars] = '.'
	n := copy(token[tokenChars+1:], owner)
	return string(token[:tokenChars+1+n])
}

// ownerOf returns the label in a token, or "" if it is not a token of ours:
// other libraries store other values under the same keys.
func ownerOf(token string) string {
	random, owner, found := strings.Cut(token, ".")
	if !found || len(random) != tokenChars || checkOwner(owner) != nil {
		return ""
	}
	_, err := base64.RawURLEncoding.DecodeString(random)
	if err != nil || strings.ContainsAny(random, "\r\n") { // which the decoder skips
		return ""
	}
	return owner
}

func checkOwner(owner string) error {
	switch {
	case len(owner) > maxOwner:
		return fmt.Errorf("longer than %d bytes", maxOwner)
	case !utf8.ValidString(owner):
		return errors.New("not valid UTF-8")
	case strings.ContainsFunc(owner, unicode.IsControl):
		return errors.New("contains control characters")
	}
	return nil
}

// defaultOwner is host:pid.
func defaultOwner() string {
	host, err := os.Hostname()
	if err != nil || checkOwner(host) != nil || len(host) > maxOwner/2 {
		host = "unknown"
	}
	return fmt.Sprintf("%s:%d", host, os.Getpid())
}

// drawToken returns the token of an attempt: a new one, or the one that a
// compat package wants.
func (l *Locker) drawToken(t *target) (string, error) {
	if t.ways.Token == nil {
		return newToken(l.owner), nil
	}
	token, err := t.ways.Token()
	if err != nil {
		return "", err
	}
	return token, checkToken(token)
}
