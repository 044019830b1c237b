package redlock_test

import (
	"bytes"
	"context"
	"encoding/json"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/redlock"
	"github.com/redquorum/go-redlock/redlocktest"
)

// checked returns the findings about one node ("" for all) that are not ok, by
// what they are about.
func checked(t *testing.T, l *redlock.Locker, node string) map[string]redlock.Finding {
	t.Helper()
	report, err := l.Check(t.Context())
	require.NoError(t, err)
	bad := make(map[string]redlock.Finding)
	for _, f := range report.Findings {
		assert.NotContains(t, f.String(), "\n")
		assert.NotEmpty(t, f.Seen, f.What)
		if f.Level == redlock.LevelOK {
			assert.Empty(t, f.Endangers+f.Mend, f.What)
		} else if f.Node == node {
			bad[f.What] = f
		}
	}
	return bad
}

// levels are the levels of findings.
func levels(findings map[string]redlock.Finding) map[string]string {
	levels := make(map[string]string)
	for what, f := range findings {
		levels[what] = f.Level.String()
	}
	return levels
}

func TestCheckFindsNothingWrongWithGoodNodes(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c, redlock.WithRestartGuard(time.Minute))
		time.Sleep(time.Hour)
		report, err := l.Check(t.Context())
		require.NoError(t, err)
		assert.Equal(t, redlock.LevelOK, report.Worst(), "%v", report.Findings)
		seen := make(map[string]int)
		for _, f := range report.Findings {
			seen[f.What]++
		}
		assert.Equal(t, map[string]int{
			"reach": 3, "role": 3, "cluster": 3, "alone": 3, "eviction": 3, "memory": 3, "persistence": 3, "replicas": 3,
			"uptime": 3, "clock": 4, "round-trip": 3, "version": 3, "scripts": 3, "fencing": 3, "channels": 3, "listing": 3, "guard": 1,
		}, seen)
		encoded, err := json.Marshal(report.Findings[0])
		require.NoError(t, err)
		assert.Contains(t, string(encoded), `"Level":"ok"`)
	})
}

func TestCheckLeavesNothingBehind(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		connections := c.Node(0).Connections()
		_ = checked(t, l, "")
		synctest.Wait()
		assert.Equal(t, connections, c.Node(0).Connections(), "it has closed its own")
		time.Sleep(3 * time.Second)
		for i := range 3 {
			assert.Empty(t, c.Node(i).Keys())
		}
	})
}

// What a node says of itself is changed on the way.
func TestCheckFinds(t *testing.T) {
	for name, test := range map[string]struct {
		says, instead string
		level         redlock.Level
		what          string
	}{
		"a replica":                 {"role:master", "role:slave", redlock.LevelError, "role"},
		"a master with replicas":    {"connected_slaves:0", "connected_slaves:2", redlock.LevelWarning, "role"},
		"a cluster node":            {"cluster_enabled:0", "cluster_enabled:1", redlock.LevelError, "cluster"},
		"a run id that says naught": {"run_id:", "run_id:\r\nx:", redlock.LevelInfo, "alone"},
		"a policy without a limit":  {"maxmemory_policy:noeviction", "maxmemory_policy:allkeys-lru", redlock.LevelWarning, "eviction"},
		"a policy with a limit":     {"maxmemory:0\r\nmaxmemory_policy:noeviction", "maxmemory:9\r\nmaxmemory_policy:volatile-ttl", redlock.LevelError, "eviction"},
		"a full memory":             {"maxmemory:0", "used_memory:99\r\nmaxmemory:100", redlock.LevelWarning, "memory"},
		"a log on the disk at last": {"aof_enabled:0", "aof_enabled:1", redlock.LevelWarning, "persistence"},
		"replicas that must be":     {"role:master", "role:master\r\nmin_slaves_good_slaves:0", redlock.LevelWarning, "replicas"},
		"a restart":                 {"uptime_in_seconds:36", "uptime_in_seconds:5\r\nx:", redlock.LevelWarning, "uptime"},
		"an old version":            {"redis_version:7", "redis_version:3", redlock.LevelWarning, "version"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(parallel(t), func(t *testing.T) {
				c := newCluster(t, 3)
				tap := newWiretap(c)
				l := coldLocker(t, c, redlock.WithDialer(tap.Dial))
				time.Sleep(time.Hour)
				before := levels(checked(t, l, c.Addrs()[1]))
				tap.onReply(func(addr string, reply []byte) []byte {
					// Bulk strings say how long they are.
					head, rest, found := bytes.Cut(reply, []byte("\r\n"))
					if addr != c.Addrs()[1] || !found || !bytes.Contains(rest, []byte(test.says)) || head[0] != '$' {
						return reply
					}
					changed := bytes.Replace(bytes.TrimSuffix(rest, []byte("\r\n")), []byte(test.says), []byte(test.instead), 1)
					return []byte("$" + strconv.Itoa(len(changed)) + "\r\n" + string(changed) + "\r\n")
				})
				found := checked(t, l, c.Addrs()[1])
				after := levels(found)
				assert.Equal(t, test.level.String(), after[test.what])
				assert.NotEmpty(t, found[test.what].Endangers)
				assert.NotEmpty(t, found[test.what].Mend)
				delete(before, test.what)
				delete(after, test.what)
				assert.Equal(t, before, after, "nothing else")
			})
		})
	}
}

func TestWhatANodeDeniesIsAFinding(t *testing.T) {
	for name, test := range map[string]struct {
		commands []string
		want     map[string]string
	}{
		"INFO":            {[]string{"INFO"}, map[string]string{"info": "info"}},
		"CONFIG":          {[]string{"CONFIG"}, map[string]string{"config": "info"}},
		"TIME":            {[]string{"TIME"}, map[string]string{"clock": "info"}},
		"PUBLISH":         {[]string{"PUBLISH"}, map[string]string{"channels": "warning"}},
		"SUBSCRIBE":       {[]string{"SUBSCRIBE"}, map[string]string{"channels": "warning"}},
		"PSUBSCRIBE":      {[]string{"PSUBSCRIBE"}, map[string]string{"listing": "info"}},
		"SCAN":            {[]string{"SCAN"}, map[string]string{"listing": "info"}},
		"loading scripts": {[]string{"SCRIPT"}, map[string]string{"scripts": "info"}},
		"scripts":         {[]string{"EVAL", "EVALSHA"}, map[string]string{"scripts": "error"}},
		"PING":            {[]string{"PING"}, map[string]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(parallel(t), func(t *testing.T) {
				c := newCluster(t, 3)
				l := coldLocker(t, c)
				time.Sleep(time.Hour)
				c.Node(1).SetError("NOPERM this user may not", test.commands...)
				found := levels(checked(t, l, c.Addrs()[1]))
				delete(found, "persistence") // embedded nodes have none
				assert.Equal(t, test.want, found)
			})
		})
	}
}

func TestCheckTellsANodeThatCannotBeReachedFromTheRest(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		c.Node(0).Stop()
		c.Node(1).Hang()
		assert.Equal(t, map[string]string{"reach": "error"}, levels(checked(t, l, c.Addrs()[0])))
		found := checked(t, l, c.Addrs()[1])
		assert.Equal(t, map[string]string{"reach": "error"}, levels(found))
		assert.Contains(t, found["reach"].Seen, "no answer within the node timeout")
		assert.Contains(t, levels(checked(t, l, c.Addrs()[2])), "persistence")
		quorum := checked(t, l, "")["quorum"]
		assert.Equal(t, redlock.LevelError, quorum.Level)
		assert.Equal(t, "1 of 3 nodes answer, and it takes 2", quorum.Seen)
		c.Node(1).Resume()
		time.Sleep(5 * time.Second)
		assert.NotContains(t, checked(t, l, ""), "quorum")
	})
}

func TestCheckFindsOneServerUnderTwoAddresses(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := &misdialled{Cluster: newCluster(t, 3)}
		c.wrong.Store(true)
		l := coldLocker(t, c.Cluster, redlock.WithDialer(c.Dial))
		for this, other := range map[int]int{0: 2, 2: 0} {
			found := checked(t, l, c.Addrs()[this])
			assert.Equal(t, redlock.LevelError, found["alone"].Level)
			assert.Contains(t, found["alone"].Seen, c.Addrs()[other])
			for _, blameless := range []string{"scripts", "fencing"} {
				assert.NotContains(t, found, blameless, "the two undo each other's tries, and the user may well do it")
			}
		}
	})
}

func TestCheckKnowsTheRestartGuard(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		time.Sleep(time.Hour)
		for _, longer := range []redlock.Option{redlock.WithTTL(2 * time.Minute), redlock.WithMinHold(2 * time.Minute)} {
			tooShort := coldLocker(t, c, redlock.WithRestartGuard(time.Minute), longer)
			assert.Equal(t, map[string]string{"guard": "error"}, levels(checked(t, tooShort, "")))
		}
		l := newLocker(t, c, redlock.WithRestartGuard(time.Minute))
		require.NoError(t, c.Node(0).Restart())
		time.Sleep(time.Second)
		warm(t, l)
		found := levels(checked(t, l, c.Addrs()[0]))
		assert.Equal(t, map[string]string{"uptime": "warning", "scripts": "info"}, found)
	})
}

func TestCheckComparesClocks(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		clock := newBentClock()
		clock.set(time.Minute)
		l := newLocker(t, c, redlock.WithClock(clock))
		found := checked(t, l, "")
		assert.Equal(t, map[string]string{"clock": "warning"}, levels(found))
		assert.Contains(t, found["clock"].Seen, "1m0s")
		assert.NotContains(t, checked(t, l, c.Addrs()[0]), "clock", "the nodes agree")
	})
}

func TestCheckEndsWithItsContextAndWithTheLocker(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		each(c, upTo(3), (*redlocktest.Node).Hang)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		require.Equal(t, 10*time.Millisecond, took(func() {
			_, err := l.Check(ctx)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			requireShape(t, err)
		}))
		time.AfterFunc(10*time.Millisecond, func() { _ = l.Close() })
		_, err := l.Check(t.Context())
		requireOutcome(t, err, redlock.ErrClosed)
		_, err = l.Check(t.Context())
		requireOutcome(t, err, redlock.ErrClosed)
	})
}
