// Package clock tells how much time has passed, for code whose safety hangs on
// it, and does the arithmetic of drift and validity.
//
// A lease ends on the servers whether or not this machine was awake to see it.
// Go's monotonic clock stops while a Linux machine is suspended, so a lock
// measured by it would still look valid on resume. [System] therefore reads
// CLOCK_BOOTTIME on Linux, which keeps counting. No wall clock takes part:
// setting the time, by hand or by NTP, changes nothing here.
package clock

import "time"

// A Clock tells the time that has passed since some moment of its own choice.
//
// It must never go backwards, and it must be safe for concurrent use. It need
// not agree with any other clock: only differences between two of its own
// readings are used.
type Clock interface {
	// Elapsed returns the time that has passed.
	Elapsed() time.Duration
	// Now returns the wall clock: for fencing numbers where counters are new, for
	// the time in a notice, and to compare the nodes' clocks. No safety rests on
	// it.
	Now() time.Time
}

// System returns the clock to use outside tests. On Linux it counts the time
// the machine spent suspended; on other systems it is [Monotonic], and a
// suspension there may go unnoticed until a server has refused a renewal.
func System() Clock { return system{} }

// Monotonic returns a clock on Go's own monotonic time. It follows the virtual
// time of a testing/synctest bubble, provided it was made inside the bubble.
func Monotonic() Clock { return monotonic{origin: time.Now()} }

type monotonic struct{ origin time.Time }

func (m monotonic) Elapsed() time.Duration { return time.Since(m.origin) }

func (monotonic) Now() time.Time { return time.Now() }
