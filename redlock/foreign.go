package redlock

import (
	"errors"
	"time"

	"github.com/redquorum/go-redlock/internal/foreign"
)

func init() {
	foreign.Locking = func(w foreign.Ways) any {
		return lockOption(func(c *lockConfig) { c.ways = w })
	}
	foreign.AnyNumber = func() any {
		return option(func(c *config) { c.anyNumber = true })
	}
	foreign.Refused = func(err error) bool {
		return errors.Is(err, errHeld) || errors.Is(err, errMissing) || errors.Is(err, errOther) || errors.Is(err, errPassed)
	}
	foreign.Unheard = func(err error) bool { return errors.Is(err, errPending) }
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

// thoroughness is how long to wait for votes that change nothing: short beside
// the TTL, too.
func (k *Lock) thoroughness() time.Duration { return min(lastWords, k.ttl/20) }
