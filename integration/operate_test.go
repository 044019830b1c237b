package integration_test

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/integration/nodes"
	"github.com/redquorum/go-redlock/redlock"
)

// The rights of docs/operations.md: what locking needs, and what those need who
// look after the nodes.
var (
	lockerRights = []string{
		"~lock:*", "~redlock:fence:*", "&redlock:*",
		"+eval", "+evalsha", "+script|load", "+set", "+get", "+del", "+pexpire", "+pttl", "+publish", "+subscribe", "+ping",
	}
	operatorRights = append([]string{"+psubscribe", "+scan", "+info", "+time", "+config|get"}, lockerRights...)
)

// findings returns the levels of all findings that are not ok, node by node.
func findings(t *testing.T, l *redlock.Locker) (levels map[string]string, report *redlock.Report) {
	t.Helper()
	report, err := l.Check(t.Context())
	require.NoError(t, err)
	levels = make(map[string]string)
	for _, f := range report.Findings {
		if f.Level != redlock.LevelOK {
			levels[f.What] = f.Level.String()
		}
	}
	return levels, report
}

func TestTheRightsInTheDocumentsAreEnough(t *testing.T) {
	for name, test := range map[string]struct {
		rights []string
		want   map[string]string
	}{
		"to lock":    {lockerRights, map[string]string{"info": "info", "config": "info", "clock": "info", "listing": "info"}},
		"to operate": {operatorRights, map[string]string{"persistence": "warning", "uptime": "warning"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := nodes.Start(t, 3, nodes.WithACL("locker", "secret", test.rights...))
			l := newLocker(t, c, redlock.WithKeyPrefix("lock:"), redlock.WithEvents(true))
			k, err := l.Acquire(t.Context(), "job", redlock.WithFencing(true))
			require.NoError(t, err)
			levels, report := findings(t, l)
			assert.Equal(t, test.want, levels, "%v", report.Findings)
			s, err := l.Inspect(t.Context(), "job")
			require.NoError(t, err)
			assert.Equal(t, redlock.StateHeld, s.State)
			assert.Equal(t, k.FencingToken(), s.FencingToken)
			require.NoError(t, k.Release(t.Context()))
		})
	}
}

func TestCheckSaysWhichRightsAreMissing(t *testing.T) {
	c := nodes.Start(t, 3, nodes.WithACL("locker", "secret", "~lock:*", "&other:*", "+@all"))
	levels, report := findings(t, newLocker(t, c, redlock.WithKeyPrefix("lock:")))
	assert.Equal(t, "warning", levels["channels"], "%v", report.Findings)
	assert.Equal(t, "warning", levels["fencing"])
	assert.Equal(t, "info", levels["listing"], "PSUBSCRIBE")
	assert.NotContains(t, levels, "scripts")

	c = nodes.Start(t, 1, nodes.WithACL("locker", "secret", "~lock:*", "&redlock:*", "+@all", "-set"))
	levels, report = findings(t, newLocker(t, c, redlock.WithKeyPrefix("lock:")))
	assert.Equal(t, "error", levels["scripts"], "%v", report.Findings)
}

func TestCheckFindsWhatIsUnfitForLocks(t *testing.T) {
	for name, test := range map[string]struct {
		opts []nodes.Option
		what string
		want string
	}{
		"eviction":      {[]nodes.Option{nodes.WithConfig("maxmemory", "100mb"), nodes.WithConfig("maxmemory-policy", "allkeys-lru")}, "eviction", "error"},
		"full":          {[]nodes.Option{nodes.WithConfig("maxmemory", "1kb")}, "memory", "warning"},
		"out of memory": {[]nodes.Option{nodes.WithConfig("maxmemory", "1kb")}, "scripts", "error"},
		"replicas":      {[]nodes.Option{nodes.WithConfig("min-replicas-to-write", "1")}, "replicas", "warning"},
		"no replicas":   {[]nodes.Option{nodes.WithConfig("min-replicas-to-write", "1")}, "scripts", "error"},
		"cluster":       {[]nodes.Option{nodes.WithConfig("cluster-enabled", "yes")}, "cluster", "error"},
		"everysec":      {[]nodes.Option{nodes.WithAOF(), nodes.WithConfig("appendfsync", "everysec")}, "persistence", "warning"},
		"always":        {[]nodes.Option{nodes.WithAOF()}, "persistence", ""},
		"replica":       {[]nodes.Option{nodes.WithConfig("replicaof", "127.0.0.1", "1")}, "role", "error"},
	} {
		t.Run(name, func(t *testing.T) {
			c := nodes.Start(t, 1, test.opts...)
			if c.Kind() == nodes.Embedded {
				t.Skip("embedded nodes have no configuration")
			}
			levels, report := findings(t, newLocker(t, c))
			assert.Equal(t, test.want, levels[test.what], "%v", report.Findings)
		})
	}
}

func TestOneServerUnderTwoNamesIsRefused(t *testing.T) {
	c := nodes.Start(t, 2)
	host, port, err := net.SplitHostPort(c.Node(0).Addr())
	require.NoError(t, err)
	another := "localhost"
	if host == another {
		another = "127.0.0.1"
	}
	twin := net.JoinHostPort(another, port)
	l, err := redlock.New([]string{c.Node(0).URL(), c.Node(1).URL(), twin})
	require.NoError(t, err)
	defer l.Close()
	attempt := 0 // each for another name: the first may be granted
	require.Eventually(t, func() bool {
		attempt++
		_, err = l.TryAcquire(t.Context(), fmt.Sprint("job", attempt), redlock.WithTTL(time.Second))
		return errors.Is(err, redlock.ErrConfig)
	}, eventually, 10*time.Millisecond)
	require.ErrorContains(t, err, twin)
	require.ErrorContains(t, err, c.Node(0).Addr())
	levels, _ := findings(t, l)
	assert.Equal(t, "error", levels["alone"])
}

// So many that a node needs several pages, among keys that are none of ours.
func TestAListingOfManyLocksIsComplete(t *testing.T) {
	many := 2000
	c := nodes.Start(t, 3)
	if c.Kind() == nodes.Embedded {
		many = 200 // their Lua is slow, and they have one page only
	}
	l := newLocker(t, c, redlock.WithKeyPrefix("lock:"))
	for _, n := range c.Nodes() {
		_, err := n.Do("EVAL", `
			for i = 1, tonumber(ARGV[1]) do
				redis.call('SET', 'other:' .. i, 'x')
				redis.call('SET', 'lock:job ' .. i, '0123456789012345678901.me', 'PX', 600000)
			end`, 0, many)
		require.NoError(t, err)
		_, err = n.Do("RPUSH", "lock:a list", "x")
		require.NoError(t, err)
	}
	seen := make(map[string]bool)
	for s, err := range l.List(t.Context(), "job *") {
		require.NoError(t, err)
		require.Equal(t, redlock.StateHeld, s.State)
		require.Equal(t, "me", s.Owner)
		require.False(t, seen[s.Name], "%s came twice", s.Name)
		seen[s.Name] = true
	}
	assert.Len(t, seen, many)
	for s, err := range l.List(t.Context(), "a*") {
		require.NoError(t, err)
		assert.Fail(t, "not a lock", "%v", s)
	}
}

func TestAWatchSeesLocksBegunReleasedAndExpired(t *testing.T) {
	c := nodes.Start(t, 3)
	l := newLocker(t, c, redlock.WithEvents(true))
	notices, err := l.Watch(t.Context(), "job*", redlock.WithLookEvery(200*time.Millisecond))
	require.NoError(t, err)
	await := func(want ...redlock.NoticeKind) {
		t.Helper()
		timeout := time.After(eventually)
		for {
			select {
			case n := <-notices:
				if slices.Contains(want, n.Kind) {
					return
				}
				require.Contains(t, []redlock.NoticeKind{redlock.NoticeRenewed, redlock.NoticeBlind, redlock.NoticeSighted}, n.Kind, "%v", n)
			case <-timeout:
				require.Fail(t, fmt.Sprintf("not seen: %v", want))
			}
		}
	}
	k, err := l.Acquire(t.Context(), "job 1", redlock.WithTTL(time.Minute))
	require.NoError(t, err)
	await(redlock.NoticeAcquired, redlock.NoticeFound) // by the first listing
	require.NoError(t, k.Release(t.Context()))
	await(redlock.NoticeReleased)
	_, err = l.Acquire(t.Context(), "job 2", redlock.WithTTL(3*time.Second))
	require.NoError(t, err)
	await(redlock.NoticeAcquired)
	await(redlock.NoticeExpired)
}

// A glob pattern means the same to the nodes and to the announcements.
func TestAPatternMeansTheSameToNodesAndAnnouncements(t *testing.T) {
	c := nodes.Start(t, 1)
	names := []string{"ab", "a*b", "a[b", `a\b`, "a-b", "axxb", "a?b", "a^b"}
	l := newLocker(t, c, redlock.WithEvents(true))
	for _, pattern := range []string{"a*b", `a\*b`, "a?b", "a[*-[]b", "a[^x]*", `a\\b`, "a[b", "*"} {
		t.Run(pattern, func(t *testing.T) {
			acquireAll := func() (locks []*redlock.Lock) {
				for _, name := range names {
					k, err := l.Acquire(t.Context(), name)
					require.NoError(t, err)
					locks = append(locks, k)
				}
				return locks
			}
			notices, err := l.Watch(t.Context(), pattern, redlock.WithLookEvery(time.Hour))
			require.NoError(t, err)
			locks := acquireAll()
			listed := make(map[string]bool)
			for s, err := range l.List(t.Context(), pattern) {
				require.NoError(t, err)
				listed[s.Name] = true
			}
			// Each lock comes and goes until the watcher has subscribed and heard of all.
			announced := make(map[string]bool)
			for start := time.Now(); len(announced) < len(listed) && time.Since(start) < eventually; {
				for _, k := range locks {
					require.NoError(t, k.Release(t.Context()))
				}
				locks = acquireAll()
				for quiet := false; !quiet; {
					select {
					case n := <-notices:
						announced[n.Name] = true
					case <-time.After(200 * time.Millisecond):
						quiet = true
					}
				}
			}
			assert.Equal(t, listed, announced)
			for _, k := range locks {
				require.NoError(t, k.Release(t.Context()))
			}
		})
	}
}
