package clock

import (
	"math"
	"time"
)

// Longest bounds every duration that is added to a reading of a [Clock]: no sum
// of a few can overflow.
const Longest = 366 * 24 * time.Hour

// precision covers the rounding of Redis expiry to whole milliseconds, at the
// server and on the way there ("plus 2 milliseconds" in the reference
// implementation of the Redis page "Distributed Locks with Redis").
const precision = 2 * time.Millisecond

// Drift returns how much of a lease of length ttl must be given up because a
// server's clock may run faster than ours by the fraction factor:
// ttl × factor + 2 ms, rounded up.
func Drift(ttl time.Duration, factor float64) time.Duration {
	return time.Duration(math.Ceil(float64(ttl)*factor)) + precision
}

// Deadline returns the moment, on the clock that start was read from, up to
// which a lease of length ttl may be relied on. start must have been read
// before the first command left for any server: every lease began later.
func Deadline(start, ttl time.Duration, factor float64) time.Duration {
	return start + ttl - Drift(ttl, factor)
}
