package clock_test

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/clock"
)

const (
	ms      = time.Millisecond
	day     = 24 * time.Hour
	longest = 366 * day       // of the TTLs that are sane
	century = 100 * 366 * day // more than any machine has been up

	samples = 5_000
)

// float64 holds integers up to 2^53 exactly, which is 104 days in nanoseconds.
// Beyond, and in the product, a few nanoseconds go astray. The 2 ms are there
// for more than that; see the model of the clocks below.
const astray = 8 * time.Nanosecond

// randomTTL draws whole milliseconds, each order of magnitude as likely.
func randomTTL(limit time.Duration) time.Duration {
	top := math.Log(float64(limit / ms))
	return min(limit, ms*time.Duration(math.Exp(rand.Float64()*top)))
}

// randomFactor draws what a person would write, or anything, from [0, 1).
func randomFactor() float64 {
	switch rand.IntN(4) {
	case 0:
		return []float64{0, 0.0001, 0.001, 0.01, 0.02, 0.05, 0.1, 0.5, 0.9, 0.999}[rand.IntN(10)]
	case 1:
		return math.Nextafter(1, 0)
	case 2:
		return math.Exp(-30 * rand.Float64()) // tiny ones as well
	}
	return rand.Float64()
}

func rat(d time.Duration) *big.Rat { return new(big.Rat).SetInt64(int64(d)) }

func ratFloat(f float64) *big.Rat { return new(big.Rat).SetFloat64(f) }

func add(x, y *big.Rat) *big.Rat { return new(big.Rat).Add(x, y) }
func sub(x, y *big.Rat) *big.Rat { return new(big.Rat).Sub(x, y) }
func mul(x, y *big.Rat) *big.Rat { return new(big.Rat).Mul(x, y) }
func quo(x, y *big.Rat) *big.Rat { return new(big.Rat).Quo(x, y) }

// floor returns the whole part of what is not negative.
func floor(x *big.Rat) *big.Int { return new(big.Int).Quo(x.Num(), x.Denom()) }

func requireAtMost(t *testing.T, x, y *big.Rat, format string, args ...any) {
	t.Helper()
	if x.Cmp(y) > 0 {
		require.Fail(t, x.FloatString(9)+" > "+y.FloatString(9), fmt.Sprintf(format, args...))
	}
}

func TestDriftIsTheExactProductRoundedUpAndTwoMilliseconds(t *testing.T) {
	for range samples {
		ttl, factor := randomTTL(longest), randomFactor()
		got := rat(clock.Drift(ttl, factor))
		exact := add(mul(rat(ttl), ratFloat(factor)), rat(2*ms))
		requireAtMost(t, sub(exact, rat(astray)), got, "Drift(%v, %v) is less", ttl, factor)
		requireAtMost(t, got, add(exact, rat(astray+1)), "Drift(%v, %v) is more", ttl, factor)
	}
}

// With factors as people write them, nothing goes astray: 0.01 is not a binary
// fraction, but the product is rounded to what a person expects, or up.
func TestDriftIsNotLessThanTheDecimalsSay(t *testing.T) {
	for range samples {
		ttl, thousandths := randomTTL(longest), rand.Int64N(31)
		factor := float64(thousandths) / 1000
		want := ttl/1000*time.Duration(thousandths) + 2*ms
		got := clock.Drift(ttl, factor)
		require.GreaterOrEqual(t, got, want, "Drift(%v, %v)", ttl, factor)
		require.LessOrEqual(t, got, want+astray, "Drift(%v, %v)", ttl, factor)
	}
}

func TestDriftByExample(t *testing.T) {
	for _, test := range []struct {
		ttl    time.Duration
		factor float64
		want   time.Duration
	}{
		{10 * time.Second, 0.01, 102 * ms},
		{10 * time.Second, 0, 2 * ms},
		{0, 0.01, 2 * ms},
		{100 * ms, 0.01, 3 * ms},
		{1, 0.01, 2*ms + 1},
		{101, 0.01, 2*ms + 2},
		{time.Second, 0.5, 502 * ms},
		{longest, 0.01, longest/100 + 2*ms},
	} {
		t.Run(fmt.Sprintf("%v by %v", test.ttl, test.factor), func(t *testing.T) {
			assert.Equal(t, test.want, clock.Drift(test.ttl, test.factor))
			assert.Equal(t, time.Minute+test.ttl-test.want, clock.Deadline(time.Minute, test.ttl, test.factor))
		})
	}
}

func TestDriftIsNeverBelowTwoMilliseconds(t *testing.T) {
	for range samples {
		ttl, factor := randomTTL(longest), randomFactor()
		require.GreaterOrEqual(t, clock.Drift(ttl, factor), 2*ms, "Drift(%v, %v)", ttl, factor)
	}
}

func TestDriftGrowsWithTheTTLAndWithTheFactor(t *testing.T) {
	for range samples {
		ttl, factor := randomTTL(longest), randomFactor()
		longer, larger := ttl+time.Duration(rand.Int64N(int64(longest-ttl)+1)), factor+(1-factor)*rand.Float64()
		require.LessOrEqual(t, clock.Drift(ttl, factor), clock.Drift(longer, factor), "%v, %v by %v", ttl, longer, factor)
		require.LessOrEqual(t, clock.Drift(ttl, factor), clock.Drift(ttl, larger), "%v by %v, %v", ttl, factor, larger)
	}
}

// Deadline grows with the TTL as well: who asks for more never gets less. Steps are
// of a millisecond, as on the wire; a factor so near to 1 that a millisecond
// adds less than what goes astray is left out.
func TestALongerTTLNeverMeansAnEarlierDeadline(t *testing.T) {
	for range samples {
		ttl, factor := randomTTL(longest-ms), min(randomFactor(), 0.999)
		longer := ttl + randomTTL(longest-ttl)
		require.LessOrEqual(t, clock.Deadline(0, ttl, factor), clock.Deadline(0, longer, factor), "%v, %v by %v", ttl, longer, factor)
	}
}

func TestNothingOverflowsForSaneTTLs(t *testing.T) {
	for range samples {
		start := time.Duration(rand.Int64N(int64(century)))
		ttl, factor := randomTTL(longest), randomFactor()
		if rand.IntN(10) == 0 {
			start, ttl = century, longest
		}
		drift := clock.Drift(ttl, factor)
		require.LessOrEqual(t, drift, ttl+2*ms+astray, "Drift(%v, %v)", ttl, factor)

		exact := sub(add(rat(start), rat(ttl)), rat(drift))
		require.Zero(t, exact.Cmp(rat(clock.Deadline(start, ttl, factor))), "Deadline(%v, %v, %v)", start, ttl, factor)
	}
}

// A world has a client and a server whose clocks run at rates of their own, and
// true time, which neither knows. Everything in it is exact; times are in
// nanoseconds.
type world struct {
	clientRate, clientOffset *big.Rat
	serverRate, serverOffset *big.Rat
}

// randomWorld draws one in which the server's clock is as fast as ratio times
// the client's.
func randomWorld(ratio *big.Rat) world {
	rate := big.NewRat(rand.Int64N(2_000_000)+1, 1_000_000)
	return world{
		clientRate:   rate,
		clientOffset: big.NewRat(rand.Int64N(int64(century)), rand.Int64N(1000)+1),
		serverRate:   mul(rate, ratio),
		serverOffset: big.NewRat(rand.Int64N(int64(century)), rand.Int64N(1000)+1),
	}
}

// client returns what the client reads at a moment of true time: whole
// nanoseconds.
func (w world) client(at *big.Rat) time.Duration {
	return time.Duration(floor(add(mul(w.clientRate, at), w.clientOffset)).Int64())
}

// overAt returns when the client's reading gets to deadline.
func (w world) overAt(deadline time.Duration) *big.Rat {
	return quo(sub(rat(deadline), w.clientOffset), w.clientRate)
}

// expiry returns the earliest moment at which a key may be gone that the server
// was told, at a moment, to keep for ttl. Redis counts in whole milliseconds:
// it rounds down the time at which it was told, and the key is gone when its
// clock, rounded down, has got to the sum. (Redis takes a millisecond more.)
func (w world) expiry(told *big.Rat, ttl time.Duration) *big.Rat {
	now := floor(quo(add(mul(w.serverRate, told), w.serverOffset), rat(ms)))
	gone := new(big.Rat).SetInt(now.Add(now, big.NewInt(int64(ttl/ms))))
	return quo(sub(mul(gone, rat(ms)), w.serverOffset), w.serverRate)
}

// The promise of the package: as long as the ratio of the two rates is within
// the factor, the client is done before the key can be gone. "Within" is taken
// in the widest sense that ttl × factor covers: a second of the client's is at
// most 1/(1−factor) seconds of the server's, which is more than 1+factor.
func TestADeadlineIsNeverLaterThanTheTrueExpiry(t *testing.T) {
	one := big.NewRat(1, 1)
	for range samples {
		ttl, factor := randomTTL(longest), randomFactor()
		f := ratFloat(factor)
		fastest := quo(one, sub(one, f))
		slowest := sub(one, f)
		ratio := []*big.Rat{
			fastest,
			add(one, f),
			one,
			slowest,
			add(slowest, mul(sub(fastest, slowest), ratFloat(rand.Float64()))),
		}[rand.IntN(5)]
		w := randomWorld(ratio)

		began := big.NewRat(rand.Int64N(int64(longest)), rand.Int64N(1000)+1)
		told := began // the server may be told in the same moment; later is safer
		if rand.IntN(2) == 0 {
			told = add(began, big.NewRat(rand.Int64N(int64(time.Second)), 3))
		}
		deadline := clock.Deadline(w.client(began), ttl, factor)
		requireAtMost(t, w.overAt(deadline), w.expiry(told, ttl),
			"ttl %v, factor %v, server faster by %v", ttl, factor, ratio.FloatString(9))
	}
}

// The model above can tell: a server that is faster than the factor allows
// takes the key away while the client still relies on it.
func TestAServerFasterThanTheFactorAllowsEndsALeaseTooEarly(t *testing.T) {
	const ttl, factor = time.Hour, 0.01
	w := randomWorld(big.NewRat(102, 100))
	began := big.NewRat(1, 1)
	deadline := clock.Deadline(w.client(began), ttl, factor)
	assert.Positive(t, w.overAt(deadline).Cmp(w.expiry(began, ttl)))
}
