package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/pool"
	"github.com/redquorum/go-redlock/redlock"
	"github.com/redquorum/go-redlock/redlocktest"
)

// permanent are answers that waiting does not change.
var permanent = []string{
	"READONLY You can't write against a read only replica.",
	"NOAUTH Authentication required.",
	"WRONGPASS invalid username-password pair or user is disabled.",
	"NOPERM User worker has no permissions to run the 'evalsha' command",
	"MOVED 1234 10.0.0.1:6379",
	"WRONGTYPE Operation against a key holding the wrong kind of value",
}

// passing are answers that waiting may change.
var passing = []string{
	"OOM command not allowed when used memory > 'maxmemory'.",
	"LOADING Redis is loading the dataset in memory",
	"BUSY Redis is busy running a script.",
	"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
	"NOREPLICAS Not enough good replicas to write.",
}

func TestPermanentFailuresOfAMajorityEndAcquireAtOnce(t *testing.T) {
	for _, text := range permanent {
		for where, commands := range map[string][]string{
			"everywhere": nil, "in the scripts": {"EVALSHA", "EVAL"},
		} {
			t.Run(text+" "+where, func(t *testing.T) {
				synctest.Test(parallel(t), func(t *testing.T) {
					c := newCluster(t, 5)
					l := coldLocker(t, c, redlock.WithOutageTolerance(10*time.Second))
					each(c, []int{1, 2, 4}, func(n *redlocktest.Node) { n.SetError(text, commands...) })
					elapsed := took(func() {
						_, err := l.Acquire(t.Context(), job)
						requireOutcome(t, err, redlock.ErrNoQuorum)
						failed := requireQuorumError(t, err)
						require.Equal(t, 3, failed.Failed)
						for _, i := range []int{1, 2, 4} {
							require.ErrorContains(t, failed.Nodes[i].Err, text)
							require.ErrorContains(t, err, c.Node(i).Addr()+": acquire: ")
						}
						require.ErrorContains(t, err, text)
						var answer redis.Error
						require.ErrorAs(t, err, &answer)
					})
					require.LessOrEqual(t, elapsed, 25*time.Millisecond)
					each(c, upTo(5), func(n *redlocktest.Node) { n.SetError("") })
					time.Sleep(2 * time.Second)
					requireFree(t, c, job)
				})
			})
		}
	}
}

func TestFailuresOfAMinorityDoNotMatterButShow(t *testing.T) {
	for _, text := range append(permanent, passing...) {
		t.Run(text, func(t *testing.T) {
			synctest.Test(parallel(t), func(t *testing.T) {
				c := newCluster(t, 5)
				l := newLocker(t, c)
				each(c, []int{0, 3}, func(n *redlocktest.Node) { n.SetError(text, "SET", "EVALSHA", "EVAL") })
				// Or the others decide before these have been heard.
				each(c, []int{1, 2, 4}, func(n *redlocktest.Node) { n.SetDelay(time.Millisecond) })
				elapsed := took(func() {
					k, err := l.Acquire(t.Context(), job)
					require.NoError(t, err)
					requireHolders(t, c, k, 3)
					require.NoError(t, k.Renew(t.Context()))

					_, err = l.TryAcquire(t.Context(), job)
					requireOutcome(t, err, redlock.ErrTaken)
					for _, i := range []int{0, 3} {
						require.ErrorContains(t, requireQuorumError(t, err).Nodes[i].Err, text)
						require.ErrorContains(t, err, c.Node(i).Addr()+": acquire: "+text)
					}
					require.NoError(t, k.Release(t.Context()))
				})
				require.Equal(t, 5*time.Millisecond, elapsed, "one round trip each, and two for the refusal")
				requireFree(t, c, job)
			})
		})
	}
}

// A refusal takes a node two commands, a plain SET and the script that says
// why. Each of them has a node timeout of its own, and the one that says why has
// the last word.
func TestAHeldNameIsTakenWhateverComesOfThePlainSet(t *testing.T) {
	for name, test := range map[string]struct {
		sick func(*redlocktest.Node)
		opts []redlock.LockOption
	}{
		"nodes that are full":         {func(n *redlocktest.Node) { n.SetError("OOM command not allowed", "SET") }, nil},
		"nodes far away":              {func(n *redlocktest.Node) { n.SetDelay(300 * time.Millisecond) }, nil},
		"nodes far away, a short TTL": {func(n *redlocktest.Node) { n.SetDelay(60 * time.Millisecond) }, []redlock.LockOption{redlock.WithTTL(100 * time.Millisecond)}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(parallel(t), func(t *testing.T) {
				c := newCluster(t, 3)
				l := newLocker(t, c)
				k, err := l.Acquire(t.Context(), job)
				require.NoError(t, err)
				each(c, upTo(3), test.sick)
				_, err = l.TryAcquire(t.Context(), job, test.opts...)
				requireOutcome(t, err, redlock.ErrTaken)
				require.Equal(t, []string{job}, requireQuorumError(t, err).Held)
				for _, node := range l.Nodes() {
					require.Equal(t, pool.Up, node.State)
				}
				require.NoError(t, k.Release(t.Context()))
			})
		})
	}
}

// A name that is a list on a majority of nodes. (How a server words what a
// script ran into differs: the wording of Redis 7 is among the permanent ones
// above, that of an embedded node is not.)
func TestANameThatIsUsedBySomethingElseIsNotTaken(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		for i := range 2 {
			conn, err := redis.DialContext(t.Context(), "tcp", c.Node(i).Addr(), redis.DialContextFunc(c.Dial))
			require.NoError(t, err)
			_, err = conn.Do("LPUSH", job, "element")
			require.NoError(t, err)
			require.NoError(t, conn.Close())
		}
		_, err := l.TryAcquire(t.Context(), job)
		requireOutcome(t, err, redlock.ErrNoQuorum)
		_ = requireQuorumError(t, err)
		require.ErrorContains(t, err, "WRONGTYPE")
		time.Sleep(time.Second)
		for i := range 2 {
			require.Equal(t, []string{job}, c.Node(i).Keys(), "the list is not ours to delete")
		}
		require.Empty(t, c.Node(2).Keys())
	})
}

func TestAnOutageIsToleratedForAsLongAsAsked(t *testing.T) {
	faults := map[string]func(*redlocktest.Node){
		"stopped": (*redlocktest.Node).Stop,
		"hung":    (*redlocktest.Node).Hang,
	}
	for _, text := range passing {
		faults[text] = func(n *redlocktest.Node) { n.SetError(text, "SET", "EVALSHA", "EVAL") }
	}
	for fault, inflict := range faults {
		for tolerance, opts := range map[time.Duration][]redlock.LockOption{
			0:                                {redlock.WithOutageTolerance(0)},
			redlock.DefaultOutageTolerance:   nil,
			20 * time.Second:                 {redlock.WithOutageTolerance(20 * time.Second)},
			20*time.Second + time.Nanosecond: {redlock.WithOutageTolerance(20*time.Second + 1), redlock.WithRetryDelay(1, time.Second)},
		} {
			t.Run(fmt.Sprintf("%s %v", fault, tolerance), func(t *testing.T) {
				synctest.Test(parallel(t), func(t *testing.T) {
					c := newCluster(t, 5)
					l := newLocker(t, c)
					each(c, []int{0, 2, 4}, inflict)
					synctest.Wait()
					elapsed := took(func() {
						_, err := l.Acquire(t.Context(), job, opts...)
						requireOutcome(t, err, redlock.ErrNoQuorum)
						_ = requireQuorumError(t, err)
					})
					require.GreaterOrEqual(t, elapsed, tolerance)
					require.LessOrEqual(t, elapsed, tolerance+redlock.DefaultNodeTimeout+2*time.Second)
				})
			})
		}
	}
}

func TestAnOutageThatEndsInTimeDoesNotShow(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		l := newLocker(t, c)
		each(c, []int{0, 2, 4}, (*redlocktest.Node).Stop)
		time.AfterFunc(3*time.Second, func() {
			each(c, []int{0, 2, 4}, func(n *redlocktest.Node) { require.NoError(t, n.Restart()) })
		})
		elapsed := took(func() {
			k, err := l.Acquire(t.Context(), job)
			require.NoError(t, err)
			require.Positive(t, k.Validity())
		})
		require.GreaterOrEqual(t, elapsed, 3*time.Second)
		require.Less(t, elapsed, redlock.DefaultOutageTolerance)
	})
}

// The tolerance is for outages: contention may last longer, and it is counted
// anew for each outage.
func TestContentionIsNoOutage(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		each(c, upTo(3), func(n *redlocktest.Node) { n.Set(job, "other", time.Minute) })
		for at := 10 * time.Second; at < time.Minute; at += 10 * time.Second {
			time.AfterFunc(at, func() { each(c, upTo(2), (*redlocktest.Node).Stop) })
			time.AfterFunc(at+3*time.Second, func() {
				each(c, upTo(2), func(n *redlocktest.Node) { require.NoError(t, n.Restart()) })
			})
		}
		elapsed := took(func() {
			_, err := l.Acquire(t.Context(), job)
			require.NoError(t, err)
		})
		require.GreaterOrEqual(t, elapsed, time.Minute)
	})
}

// One key that somebody has left behind does not make an outage look like
// contention, which Acquire bears for ever, in whatever order the nodes answer.
func TestAStrayKeyHidesNoOutage(t *testing.T) {
	for name, break3 := range map[string]func(n *redlocktest.Node){
		"failing before the refusal": func(n *redlocktest.Node) {
			n.SetError("LOADING Redis is loading the dataset in memory", "SET", "EVALSHA")
		},
		"failing after the refusal": func(n *redlocktest.Node) {
			n.SetError("LOADING Redis is loading the dataset in memory", "SET", "EVALSHA")
			n.SetReplyDelay(3 * time.Millisecond)
		},
		"hung": (*redlocktest.Node).Hang,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(parallel(t), func(t *testing.T) {
				c := newCluster(t, 5)
				l := newLocker(t, c, redlock.WithOutageTolerance(time.Second))
				c.Node(0).Set(job, "stray", time.Hour)
				each(c, []int{1, 2, 3}, break3)
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				_, err := l.Acquire(ctx, job)
				requireOutcome(t, err, redlock.ErrNoQuorum)
				_, err = l.TryAcquire(ctx, job)
				requireOutcome(t, err, redlock.ErrNoQuorum)
			})
		})
	}
}

// What failures and refusals together make impossible is for Acquire to wait
// for, as long as the nodes that work could grant.
func TestAHolderIsWaitedForThoughNodesFail(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		l := newLocker(t, c, redlock.WithOutageTolerance(time.Second))
		c.Node(0).Set(job, "somebody", 4*time.Second)
		each(c, []int{1, 2}, (*redlocktest.Node).Hang)
		_, err := l.TryAcquire(t.Context(), job)
		requireOutcome(t, err, redlock.ErrTaken)
		_, err = l.Acquire(t.Context(), job)
		require.NoError(t, err)
	})
}

func TestOutcomesAreDistinct(t *testing.T) {
	for i, a := range outcomes {
		requireShape(t, a)
		for j, b := range outcomes {
			require.Equal(t, i == j, errors.Is(a, b), "%v and %v", a, b)
		}
	}
}

// Errors of nodes may have any number of lines; ours have one.
func TestErrorsOfSeveralLinesAreShownOnOne(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		tap := newWiretap(c)
		l := coldLocker(t, c, redlock.WithDialer(tap.Dial))
		tap.onDial(func(string) error { return errors.New("first line\nsecond\r\nthird") })
		_, err := l.TryAcquire(t.Context(), job)
		requireOutcome(t, err, redlock.ErrNoQuorum)
		require.NotContains(t, requireQuorumError(t, err).Error(), "\r")
		require.ErrorContains(t, err, "first line second")
	})
}

func TestErrorsCarryNoContextErrorOfTheLibrarysOwn(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		each(c, upTo(3), (*redlocktest.Node).Hang)
		k := func() error {
			_, err := l.TryAcquire(t.Context(), job)
			return err
		}
		for _, err := range []error{k(), k()} {
			require.NotErrorIs(t, err, context.DeadlineExceeded, "it would seem to be the caller's")
			require.NotErrorIs(t, err, context.Canceled)
		}
		_, err := l.TryAcquire(t.Context(), job, redlock.WithTTL(20*time.Millisecond))
		require.NotErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestANodeErrorWithoutCauseSaysDone(t *testing.T) {
	e := &redlock.NodeError{Op: "acquire", Addr: "redis1:6379"}
	require.EqualError(t, e, "redis1:6379: acquire: done")
	require.NoError(t, e.Unwrap())
}
