package sim_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/internal/scripts"
	"github.com/redquorum/go-redlock/internal/sim"
	"github.com/redquorum/go-redlock/redlocktest"
)

// What the store says in Go is what the scripts say in Lua: the same calls, at
// the same times, get the same replies and leave the same keys.
func TestAStoreDoesWhatTheLuaDoes(t *testing.T) {
	seed := *firstSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	for worker := range uint64(4) {
		t.Run(fmt.Sprintf("seed %d %d", seed, worker), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t, rand.New(rand.NewPCG(seed, worker)))
				for range 1500 {
					p.step()
				}
				for _, kind := range []string{
					"acquire 0", "acquire 3", "acquire refused", "acquire ERR fe",
					"renew -1", "renew 0", "renew 1", "release 0", "release 1", "release 2",
					"confirm 0", "confirm 1",
				} {
					require.Contains(t, p.replies, kind, "replies that were seen")
				}
			})
		})
	}
}

// A pair is a store and the embedded node that it must equal.
type pair struct {
	t       *testing.T
	random  *rand.Rand
	node    *redlocktest.Node
	conn    redis.Conn
	hashes  [scripts.Count]string
	store   *sim.Store
	replies map[string]int
}

func newPair(t *testing.T, random *rand.Rand) *pair {
	t.Helper()
	cluster := redlocktest.StartPiped(t, 1)
	raw, err := cluster.Dial(t.Context(), "mem", cluster.Addrs()[0])
	require.NoError(t, err)
	p := &pair{
		t: t, random: random, node: cluster.Node(0), store: sim.NewStore(),
		conn: redis.NewConn(raw, 0, 0), replies: make(map[string]int),
	}
	t.Cleanup(func() { require.NoError(t, p.conn.Close()) })
	for _, script := range scripts.All() {
		p.hashes[script.Index()], err = redis.String(p.conn.Do("SCRIPT", "LOAD", script.Source()))
		require.NoError(t, err)
	}
	return p
}

var (
	someKeys   = []string{"a", "b", "c", "d"}
	someTokens = []string{
		"AAAAAAAAAAAAAAAAAAAAAA.me", "BBBBBBBBBBBBBBBBBBBBBB.you", "CCCCCCCCCCCCCCCCCCCCCC.",
		"another library's", "a1b2c3d4e5f6a7b8c9d0e1f2a3b4c5d6", "x", "BBBBBBBBBBBBBBBBBBBBBB.",
	}
	someCounters = []string{
		"1", "41", "7", "007", "9007199254740990", "9007199254740991", "9007199254740992", "18446744073709551616",
		"nan", "-5", "", "1.5", "1e3", " 3", "0x10", "1" + fmt.Sprintf("%0400d", 0),
	}
)

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

func (p *pair) ttl() time.Duration {
	return time.Duration(1+p.random.IntN(40)) * 5 * time.Millisecond
}

func counterOf(key string) string { return "redlock:fence:" + key }

// step does something to both, and compares.
func (p *pair) step() {
	p.t.Helper()
	r := p.random
	key := pick(r, someKeys)
	switch roll := r.IntN(20); {
	case roll < 4:
		time.Sleep(time.Duration(r.IntN(20)) * 3 * time.Millisecond)
	case roll < 5:
		p.set(key, pick(r, someTokens), time.Duration(r.IntN(2))*p.ttl())
	case roll < 6:
		p.set(counterOf(key), pick(r, someCounters), time.Duration(r.IntN(3))*p.ttl())
	case roll < 7:
		key = pick(r, []string{key, counterOf(key)})
		p.node.Delete(key)
		p.store.Delete(key)
		if r.IntN(2) == 0 {
			_, err := p.conn.Do("RPUSH", key, "element")
			require.NoError(p.t, err)
			p.store.SetList(key)
		}
	case roll < 8: // lists do not expire, so somebody must make an end of them
		for _, key := range append(someKeys, counterOf(key)) {
			p.node.Delete(key)
			p.store.Delete(key)
		}
	default:
		p.call()
	}
	for _, key := range someKeys {
		p.equal(key)
		p.equal(counterOf(key))
	}
}

func (p *pair) set(key, value string, ttl time.Duration) {
	p.node.Set(key, value, ttl)
	p.store.Set(key, value, ttl)
}

func (p *pair) equal(key string) {
	p.t.Helper()
	value, ttl, ok := p.node.Get(key)
	mine, myTTL, mineOK := p.store.Get(key)
	require.Equal(p.t, fmt.Sprint(value, ttl, ok), fmt.Sprint(mine, myTTL, mineOK), "key %q", key)
}

func (p *pair) call() {
	p.t.Helper()
	r := p.random
	var keys, counters []string
	for _, i := range r.Perm(len(someKeys))[:1+r.IntN(3)] {
		keys = append(keys, someKeys[i])
		counters = append(counters, counterOf(someKeys[i]))
	}
	token := pick(r, someTokens)
	if holder, _, held := p.store.Get(keys[0]); held && r.IntN(2) == 0 {
		token = holder
		if r.IntN(2) == 0 { // all of them, or what is asked of several is hardly ever theirs
			keys, counters = keys[:1], counters[:1]
		}
	}
	number := pick(r, []int64{1, 40, 41, 42, 1000, 1 << 52, 1<<53 - 1})
	var call *scripts.Call
	switch r.IntN(10) {
	case 0, 1:
		call = scripts.Acquire(keys, token, p.ttl(), scripts.Fencing{})
	case 2, 3:
		call = scripts.Acquire(keys, token, p.ttl(), scripts.Fencing{Counters: counters, Proposal: number, TTL: p.ttl()})
	case 4, 5:
		call = scripts.Renew(keys, token, p.ttl())
	case 6:
		call = scripts.Release(keys, token, r.IntN(2) == 0)
	case 7:
		call = scripts.Linger(keys, token, p.ttl())
	case 8:
		call = scripts.Confirm(keys, token, counters, number, p.ttl())
	case 9:
		call = scripts.ConfirmReturned(keys, token, counters, number, p.ttl())
	}
	var text []string
	for _, arg := range call.Args {
		text = append(text, fmt.Sprint(arg))
	}
	reply, err := p.conn.Do("EVALSHA", append([]any{p.hashes[call.Script.Index()]}, call.Args...)...)
	n := call.Args[0].(int)
	mine := p.store.Run(call.Script, text[1:1+n], text[1+n:])

	kind := call.Script.Name()
	switch m := mine.(type) {
	case sim.Failure:
		require.ErrorContains(p.t, err, string(m), "%s %v", kind, text)
		kind += " " + string(m[:6])
	case int64:
		require.NoError(p.t, err, "%s %v", kind, text)
		require.Equal(p.t, m, reply, "%s %v", kind, text)
		kind += " " + fmt.Sprint(min(m, 3))
	case []int64:
		require.NoError(p.t, err, "%s %v", kind, text)
		var got []int64
		for _, element := range reply.([]any) {
			got = append(got, element.(int64))
		}
		require.Equal(p.t, m, got, "%s %v", kind, text)
		kind += " refused"
	}
	p.replies[kind]++
}
