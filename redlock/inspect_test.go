package redlock_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/redlock"
	"github.com/redquorum/go-redlock/redlocktest"
)

func inspected(t *testing.T, l *redlock.Locker) *redlock.Status {
	t.Helper()
	s, err := l.Inspect(t.Context(), job)
	require.NoError(t, err)
	return s
}

func TestInspectShowsWhoHoldsALockAndForHowLong(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		l := newLocker(t, c, redlock.WithOwner("worker 7"))
		require.Equal(t, redlock.StateFree, inspected(t, l).State)

		k := acquired(t, l, job, redlock.WithTTL(time.Minute), redlock.WithFencing(true))
		synctest.Wait()
		time.Sleep(10 * time.Second)
		before := commands(c)
		s := inspected(t, newLocker(t, c))
		assert.Equal(t, redlock.StateHeld, s.State)
		assert.Equal(t, k.Token(), s.Token)
		assert.Equal(t, "worker 7", s.Owner)
		assert.Equal(t, 50*time.Second, s.TTL)
		assert.Equal(t, k.FencingToken(), s.FencingToken)
		assert.Equal(t, 3, s.Quorum)
		assert.Equal(t, 5, s.Holders())
		for i, n := range s.Nodes {
			assert.Equal(t, redlock.NodeStatus{
				Addr: c.Addrs()[i], Held: true, Token: k.Token(), Owner: "worker 7",
				TTL: 50 * time.Second, FencingToken: k.FencingToken(),
			}, n)
		}
		require.NotEqual(t, before, commands(c))

		require.NoError(t, k.Release(t.Context()))
		s = inspected(t, l)
		assert.Equal(t, redlock.StateFree, s.State)
		assert.Empty(t, s.Token)
		assert.Equal(t, k.FencingToken(), s.FencingToken, "the counter outlives the lock")
	})
}

// What each of five nodes has: a letter for a token, - for nothing, x for a node
// that is down.
func TestTheStateFollowsFromWhatTheNodesHave(t *testing.T) {
	for nodes, want := range map[string]redlock.State{
		"-----": redlock.StateFree,
		"---xx": redlock.StateFree,
		"--xxx": redlock.StateUnknown,
		"xxxxx": redlock.StateUnknown,
		"aaaaa": redlock.StateHeld,
		"aaa--": redlock.StateHeld,
		"aaaxx": redlock.StateHeld,
		"aaabc": redlock.StateHeld,
		"aa-xx": redlock.StateUnknown,
		"aa--x": redlock.StateUnknown,
		"aabbx": redlock.StateUnknown,
		"a--xx": redlock.StateUnknown,
		"a---x": redlock.StateLostMajority,
		"aa---": redlock.StateLostMajority,
		"aabb-": redlock.StateSplit,
		"aabbc": redlock.StateSplit,
		"ab--x": redlock.StateSplit,
	} {
		t.Run(nodes, func(t *testing.T) {
			synctest.Test(parallel(t), func(t *testing.T) {
				c := newCluster(t, 5)
				l := newLocker(t, c)
				for i, what := range nodes {
					switch what {
					case '-':
					case 'x':
						c.Node(i).Stop()
					default:
						c.Node(i).Set(job, string(what), time.Duration(i+1)*time.Second)
					}
				}
				s := inspected(t, l)
				assert.Equal(t, want, s.State, "%v", s)
				assert.Equal(t, want == redlock.StateHeld, s.TTL > 0)
				if want == redlock.StateHeld {
					assert.Equal(t, "a", s.Token)
				}
				if want == redlock.StateSplit {
					assert.Empty(t, s.Token)
				}
				for i, what := range nodes {
					assert.Equal(t, what == 'x', s.Nodes[i].Err != nil, "node %d", i)
				}
			})
		})
	}
}

// Three of five: when the second shortest is over, only two are left.
func TestTheTTLOfALockIsWhatAQuorumStillGrants(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		l := newLocker(t, c)
		for i, ttl := range []int{5, 1, 4, 2, 3} {
			c.Node(i).Set(job, "token of another library", time.Duration(ttl)*time.Second)
		}
		s := inspected(t, l)
		assert.Equal(t, 3*time.Second, s.TTL)
		assert.Empty(t, s.Owner)
		assert.Equal(t, "token of another library", s.Token)

		each(c, []int{0, 1, 2}, func(n *redlocktest.Node) { n.Set(job, "for ever", 0) })
		assert.Equal(t, redlock.Forever, inspected(t, l).TTL)
	})
}

func TestALockReleasedWithinItsMinimumHoldIsShownAsHeld(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		k := acquired(t, l, job, redlock.WithMinHold(time.Minute))
		require.NoError(t, k.Release(t.Context()))
		synctest.Wait()
		s := inspected(t, l)
		assert.Equal(t, redlock.StateHeld, s.State)
		assert.Equal(t, time.Minute, s.TTL)
		assert.Equal(t, k.Owner(), s.Owner)
	})
}

func TestInspectSaysWhatIsWrongWithANode(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		l := newLocker(t, c, redlock.WithNodeTimeout(time.Second))
		k := acquired(t, l, job)
		synctest.Wait()
		c.Node(0).Hang()
		c.Node(1).SetError("READONLY You can't write against a read only replica.")
		c.Node(4).Delete(job)
		var s *redlock.Status
		require.Equal(t, time.Second, took(func() { s = inspected(t, l) }), "it waits for all")
		assert.Equal(t, redlock.StateUnknown, s.State, "two have it, and two are not known")
		assert.Equal(t, k.Token(), s.Token)
		require.ErrorContains(t, s.Nodes[0].Err, "no answer")
		require.ErrorContains(t, s.Nodes[1].Err, "READONLY")
	})
}

func TestAStatusIsPrintedWithoutItsTokens(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c, redlock.WithOwner("me"))
		k := acquired(t, l, job)
		synctest.Wait()
		s := inspected(t, l)
		var logged bytes.Buffer
		slog.New(slog.NewTextHandler(&logged, nil)).Info("seen", "status", s, "node", s.Nodes[0])
		slog.New(slog.NewJSONHandler(&logged, nil)).Info("seen", "status", s, "node", s.Nodes[0])
		encoded, err := json.Marshal(s)
		require.NoError(t, err)
		for _, text := range []string{
			s.String(), fmt.Sprintf("%v %+v %#v", s, s, s), fmt.Sprintf("%v %+v %#v", *s, *s, *s),
			fmt.Sprintf("%v %+v %#v", s.Nodes, s.Nodes, s.Nodes), string(encoded), logged.String(),
		} {
			assert.NotContains(t, text, k.Token()[:22])
			assert.Contains(t, text, "me")
		}
	})
}

func TestInspectEndsWithItsContextAndWithTheLocker(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		each(c, upTo(3), (*redlocktest.Node).Hang)
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(100*time.Millisecond, func() { cancel(errTest) })
		_, err := l.Inspect(ctx, job)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, errTest)
		_ = requireQuorumError(t, err)

		_, err = l.Inspect(t.Context(), "")
		requireOutcome(t, err, redlock.ErrConfig)

		time.AfterFunc(100*time.Millisecond, func() { _ = l.Close() })
		_, err = l.Inspect(t.Context(), job)
		requireOutcome(t, err, redlock.ErrClosed)
		_, err = l.Inspect(t.Context(), job)
		requireOutcome(t, err, redlock.ErrClosed)
	})
}
