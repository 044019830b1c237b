//go:build !linux

package clock

import "time"

var process = monotonic{origin: time.Now()}

type system struct{}

func (system) Elapsed() time.Duration { return process.Elapsed() }

func (system) Now() time.Time { return time.Now() }
