package integration_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/integration/nodes"
	"github.com/redquorum/go-redlock/redlock"
)

// A dialect is how another library locks on a node: what it sends, as its sources have it. An operation has succeeded
// if the answer is neither nothing, nor 0, nor an error.
type dialect struct {
	value                    string
	acquire, extend, release []any // KEY, VALUE and TTL stand for those
}

func (d dialect) do(n *nodes.Node, command []any) bool {
	full := make([]any, len(command))
	for i, word := range command {
		switch word {
		case "KEY":
			word = "job"
		case "VALUE":
			word = d.value
		case "TTL":
			word = time.Minute.Milliseconds()
		}
		full[i] = word
	}
	reply, err := n.Do(full[0].(string), full[1:]...)
	return err == nil && reply != nil && reply != int64(0)
}

var setNXPX = []any{"SET", "KEY", "VALUE", "NX", "PX", "TTL"}

const (
	ifOurs       = `if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call(`
	deleteIfOurs = ifOurs + `"del", KEYS[1]) else return 0 end`
	extendIfOurs = ifOurs + `"pexpire", KEYS[1], ARGV[2]) else return 0 end`
)

var dialects = map[string]dialect{
	"redsync": {
		value:   "MDEyMzQ1Njc4OWFiY2RlZg==",
		acquire: setNXPX,
		extend:  []any{"EVAL", extendIfOurs, 1, "KEY", "VALUE", "TTL"},
		release: []any{"EVAL", `
			local val = redis.call("GET", KEYS[1])
			if val == ARGV[1] then
				return redis.call("DEL", KEYS[1])
			elseif val == false then
				return -1
			else
				return 0
			end`, 1, "KEY", "VALUE"},
	},
	"bsm/redislock": {
		value: "MDEyMzQ1Njc4OWFiY2RlZg{\"host\":\"a\"}",
		acquire: []any{"EVAL", `
			if redis.call("set", KEYS[1], ARGV[1], "NX", "PX", ARGV[3]) then return redis.status_reply("OK") end
			local offset = tonumber(ARGV[2])
			if redis.call("getrange", KEYS[1], 0, offset-1) == string.sub(ARGV[1], 1, offset) then
				return redis.call("set", KEYS[1], ARGV[1], "PX", ARGV[3])
			end`, 1, "KEY", "VALUE", 22, "TTL"},
		extend:  []any{"EVAL", extendIfOurs, 1, "KEY", "VALUE", "TTL"},
		release: []any{"EVAL", deleteIfOurs, 1, "KEY", "VALUE"},
	},
	"node-redlock": {
		value: "00112233445566778899aabbccddeeff",
		acquire: []any{"EVAL", `
			for i, key in ipairs(KEYS) do
				if redis.call("exists", key) == 1 then return 0 end
			end
			for i, key in ipairs(KEYS) do redis.call("set", key, ARGV[1], "PX", ARGV[2]) end
			return #KEYS`, 1, "KEY", "VALUE", "TTL"},
		extend: []any{"EVAL", `
			for i, key in ipairs(KEYS) do
				if redis.call("get", key) ~= ARGV[1] then return 0 end
			end
			for i, key in ipairs(KEYS) do redis.call("set", key, ARGV[1], "PX", ARGV[2]) end
			return #KEYS`, 1, "KEY", "VALUE", "TTL"},
		release: []any{"EVAL", `
			local count = 0
			for i, key in ipairs(KEYS) do
				if redis.call("get", key) == ARGV[1] then
					redis.pcall("del", key)
					count = count + 1
				end
			end
			return count`, 1, "KEY", "VALUE"},
	},
	"redlock-py": {
		value:   "aB3dE6gH9jK2mN5pQ8sT1v",
		acquire: setNXPX,
		release: []any{"EVAL", deleteIfOurs, 1, "KEY", "VALUE"},
	},
	"redis-py": {
		value:   "0a1b2c3d4e5f11eeb9620242ac120002",
		acquire: setNXPX,
		extend: []any{"EVAL", `
			local token = redis.call('get', KEYS[1])
			if not token or token ~= ARGV[1] then return 0 end
			redis.call('pexpire', KEYS[1], ARGV[2])
			return 1`, 1, "KEY", "VALUE", "TTL"},
		release: []any{"EVAL", `
			local token = redis.call('get', KEYS[1])
			if not token or token ~= ARGV[1] then return 0 end
			redis.call('del', KEYS[1])
			return 1`, 1, "KEY", "VALUE"},
	},
	"RedisLockRegistry": {
		value: "8d4c9a1e-7a52-4f0e-9f1a-2b6f0c5d3e77",
		acquire: []any{"EVAL", `
			local lockClientId = redis.call('GET', KEYS[1])
			if lockClientId == ARGV[1] then
				redis.call('PEXPIRE', KEYS[1], ARGV[2])
				return true
			elseif not lockClientId then
				redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
				return true
			end
			return false`, 1, "KEY", "VALUE", "TTL"},
		extend: []any{"EVAL", `
			if (redis.call('GET', KEYS[1]) == ARGV[1]) then
				return redis.call('PEXPIRE', KEYS[1], ARGV[2])
			end
			return false`, 1, "KEY", "VALUE", "TTL"},
		release: []any{"EVAL", `
			if (redis.call('GET', KEYS[1]) == ARGV[1]) then
				return redis.call('DEL', KEYS[1])
			end
			return 0`, 1, "KEY", "VALUE"},
	},
}

func TestOthersFormatsExcludeUsAndAreExcluded(t *testing.T) {
	c := nodes.Start(t, 3)
	l := newLocker(t, c)
	for name, other := range dialects {
		t.Run(name, func(t *testing.T) {
			k, err := l.Acquire(t.Context(), "job")
			require.NoError(t, err)
			for _, n := range c.Nodes() {
				require.Eventually(t, func() bool { return len(n.Keys()) == 1 }, eventually, time.Millisecond)
				require.False(t, other.do(n, other.acquire), "it got what we hold")
				require.False(t, other.do(n, other.release), "it deleted what we hold")
			}
			require.NoError(t, k.Renew(t.Context()))
			require.NoError(t, k.Release(t.Context()))
			requireNoKeys(t, c.Nodes()...)

			for _, n := range c.Nodes() {
				require.True(t, other.do(n, other.acquire))
			}
			_, err = l.TryAcquire(t.Context(), "job")
			require.ErrorIs(t, err, redlock.ErrTaken)
			if other.extend != nil {
				for _, n := range c.Nodes() {
					require.True(t, other.do(n, other.extend))
				}
			}
			resumed, err := l.Resume(t.Context(), []string{"job"}, other.value)
			require.NoError(t, err, "a lock can be handed over to us")
			require.Positive(t, resumed.Validity())
			for _, n := range c.Nodes() {
				require.True(t, other.do(n, other.release), "and back")
			}
			requireNoKeys(t, c.Nodes()...)
		})
	}
}

// Redisson keeps a hash.
var redisson = dialect{
	value: "8d4c9a1e-7a52-4f0e-9f1a-2b6f0c5d3e77:1",
	acquire: []any{"EVAL", `
		if ((redis.call('exists', KEYS[1]) == 0) or (redis.call('hexists', KEYS[1], ARGV[2]) == 1)) then
			redis.call('hincrby', KEYS[1], ARGV[2], 1)
			redis.call('pexpire', KEYS[1], ARGV[1])
			return 1
		end
		return 0`, 1, "KEY", "TTL", "VALUE"},
}

func TestALockOfAnotherTypeIsAFaultOfItsNodes(t *testing.T) {
	c := nodes.Start(t, 3)
	l := newLocker(t, c)
	k, err := l.Acquire(t.Context(), "job")
	require.NoError(t, err)
	for _, n := range c.Nodes() {
		require.Eventually(t, func() bool { return len(n.Keys()) == 1 }, eventually, time.Millisecond)
		require.False(t, redisson.do(n, redisson.acquire))
	}
	require.NoError(t, k.Release(t.Context()))
	requireNoKeys(t, c.Nodes()...)

	for _, n := range c.Nodes() {
		require.True(t, redisson.do(n, redisson.acquire))
	}
	_, err = l.TryAcquire(t.Context(), "job")
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	require.NotErrorIs(t, err, redlock.ErrTaken)
	require.ErrorContains(t, err, "WRONGTYPE")
}
