// Package latency measures how long a cluster takes to grant and release
// locks.
package latency

import (
	"math"
	"math/bits"
	"time"
)

// resolution is the number of buckets between two powers of two: what they
// hold differs by no more than one part in so many.
const resolution = 32

// Histogram counts durations in buckets of constant relative width, so that
// its size does not depend on how many there are. The zero value is empty.
type Histogram struct {
	buckets  [(64 - 5) * resolution]uint64
	count    uint64
	sum      time.Duration
	shortest time.Duration
	longest  time.Duration
}

// bucketOf returns the bucket of a duration: below 2 × resolution every
// nanosecond has its own.
func bucketOf(d time.Duration) int {
	v := uint64(d)
	if v < 2*resolution {
		return int(v)
	}
	shift := bits.Len64(v) - bits.Len64(2*resolution-1)
	return shift*resolution + int(v>>shift)
}

// upTo returns the longest duration in a bucket.
func upTo(bucket int) time.Duration {
	if bucket < 2*resolution {
		return time.Duration(bucket)
	}
	shift := bucket/resolution - 1
	return time.Duration((bucket-shift*resolution+1)<<shift - 1)
}

// Record counts a duration; a negative one as 0.
func (h *Histogram) Record(d time.Duration) {
	d = max(d, 0)
	if h.count == 0 || d < h.shortest {
		h.shortest = d
	}
	h.longest = max(h.longest, d)
	h.buckets[bucketOf(d)]++
	h.count++
	h.sum += d
}

// Add counts everything that other has counted.
func (h *Histogram) Add(other *Histogram) {
	if other.count == 0 {
		return
	}
	if h.count == 0 || other.shortest < h.shortest {
		h.shortest = other.shortest
	}
	h.longest = max(h.longest, other.longest)
	for i, n := range other.buckets {
		h.buckets[i] += n
	}
	h.count += other.count
	h.sum += other.sum
}

// Count returns how many durations were recorded.
func (h *Histogram) Count() uint64 { return h.count }

// Min returns the shortest duration, 0 if there is none.
func (h *Histogram) Min() time.Duration { return h.shortest }

// Max returns the longest duration, 0 if there is none.
func (h *Histogram) Max() time.Duration { return h.longest }

// Mean returns the mean, 0 of nothing.
func (h *Histogram) Mean() time.Duration {
	if h.count == 0 {
		return 0
	}
	return h.sum / time.Duration(h.count)
}

// Quantile returns the duration that the fraction q of all did not exceed, up
// to 3 % more than the truth; 0 if there is none.
func (h *Histogram) Quantile(q float64) time.Duration {
	rank := max(uint64(math.Ceil(q*float64(h.count))), 1)
	seen := uint64(0)
	for i, n := range h.buckets {
		seen += n
		if n > 0 && seen >= rank {
			return min(upTo(i), h.longest)
		}
	}
	return h.longest
}

// Row is a part of a histogram that people look at.
type Row struct {
	UpTo  time.Duration // what is in the row took so long at most
	Count uint64
}

// Rows returns the counts in steps of 1, 2, 5, 10, … from the row of the
// shortest duration to that of the longest. Near a boundary a duration may be
// in the row beside its own, as buckets go.
func (h *Histogram) Rows() []Row {
	if h.count == 0 {
		return nil
	}
	var rows []Row
	bucket := 0
	for _, limit := range steps() {
		row := Row{UpTo: limit}
		for bucket < len(h.buckets) && upTo(bucket) <= limit {
			row.Count += h.buckets[bucket]
			bucket++
		}
		if row.Count > 0 || len(rows) > 0 {
			rows = append(rows, row)
		}
		if limit >= h.longest && bucket > bucketOf(h.longest) {
			break
		}
	}
	return rows
}

// steps returns 1, 2, 5, 10, … from a microsecond to more than any operation
// takes.
func steps() []time.Duration {
	var all []time.Duration
	for decade := time.Microsecond; decade <= 100_000*time.Second; decade *= 10 {
		all = append(all, decade, 2*decade, 5*decade)
	}
	return all
}
