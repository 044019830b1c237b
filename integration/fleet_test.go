//go:build unix

package integration_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/integration/nodes"
	"github.com/redquorum/go-redlock/redlock"
)

// fleetMember is the environment variable that makes the test binary play a process of a fleet that moves from some
// nodes to others; it holds a member.
const fleetMember = "REDLOCK_TEST_FLEET_MEMBER"

// A member is one process of the fleet.
type member struct {
	Name    string
	Lists   [][]string // the nodes that it locks; several lists, one after another
	TTL     time.Duration
	Witness string // a server that has no part in the locking
}

// The witness counts the rounds of each member, and how often two were in the critical section at once.
const (
	inside = "inside" // who is
	twice  = "twice"
	rounds = "rounds "
)

// nested is what docs/migrating-nodes.md recommends for the time of the move.
func nested(ctx context.Context, lockers []*redlock.Locker, name string, fn func(context.Context, []*redlock.Lock) error) error {
	if len(lockers) == 0 {
		return fn(ctx, nil)
	}
	return lockers[0].Do(ctx, name, func(ctx context.Context, lock *redlock.Lock) error {
		return nested(ctx, lockers[1:], name, func(ctx context.Context, locks []*redlock.Lock) error {
			return fn(ctx, append(locks, lock))
		})
	})
}

// playMember works under the lock, again and again, until its standard input ends.
func playMember(text string) error {
	var m member
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	witness, err := redis.Dial("tcp", m.Witness)
	if err != nil {
		return err
	}
	defer witness.Close()
	var lockers []*redlock.Locker
	for _, list := range m.Lists {
		l, err := redlock.New(list, redlock.WithTTL(m.TTL), redlock.WithOwner(m.Name), redlock.WithOutageTolerance(time.Minute))
		if err != nil {
			return err
		}
		defer l.Close()
		lockers = append(lockers, l)
	}
	for {
		err := nested(ctx, lockers, "job", func(_ context.Context, locks []*redlock.Lock) error {
			return m.work(witness, locks)
		})
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, redlock.ErrLost):
			// Its node has gone, and a majority with it. It is told, and begins anew.
		case err != nil:
			return err
		}
	}
}

// work is the critical section. The witness believes a member to be inside for as long as its locks are valid, and no
// longer.
func (m member) work(witness redis.Conn, locks []*redlock.Lock) error {
	valid := m.TTL
	for _, k := range locks {
		valid = min(valid, k.Validity())
	}
	if valid < time.Millisecond {
		return nil
	}
	_, err := redis.String(witness.Do("SET", inside, m.Name, "NX", "PX", valid.Milliseconds()))
	if errors.Is(err, redis.ErrNil) {
		for _, k := range locks {
			if k.Validity() == 0 {
				return nil // it came too late itself
			}
		}
		_, err = witness.Do("INCR", twice)
		return err
	}
	if err != nil {
		return err
	}
	time.Sleep(2 * time.Millisecond)
	if holder, err := redis.String(witness.Do("GET", inside)); err == nil && holder == m.Name {
		_, err = witness.Do("DEL", inside)
		if err != nil {
			return err
		}
	}
	_, err = witness.Do("INCR", rounds+m.Name)
	return err
}

// A fleet is the processes that run now.
type fleet struct {
	t       *testing.T
	ttl     time.Duration
	witness *nodes.Node
	members map[string]*process
}

type process struct {
	cmd   *exec.Cmd
	stdin io.Closer
}

func newFleet(t *testing.T, ttl time.Duration) *fleet {
	return &fleet{t: t, ttl: ttl, witness: nodes.Start(t, 1).Node(0), members: map[string]*process{}}
}

// join starts a process, and waits until every process of the fleet has held the lock since.
func (f *fleet) join(name string, lists ...[]string) {
	f.t.Helper()
	text, err := json.Marshal(member{name, lists, f.ttl, f.witness.Addr()})
	require.NoError(f.t, err)
	cmd := exec.CommandContext(f.t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), fleetMember+"="+string(text))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(f.t, err)
	require.NoError(f.t, cmd.Start())
	f.members[name] = &process{cmd, stdin}
	f.progress()
}

// leave ends a process in the orderly way.
func (f *fleet) leave(name string) {
	f.t.Helper()
	p := f.members[name]
	delete(f.members, name)
	require.NoError(f.t, p.stdin.Close())
	require.NoError(f.t, p.cmd.Wait())
}

func (f *fleet) count(key string) int {
	f.t.Helper()
	n, err := redis.Int(f.witness.Do("GET", key))
	if !errors.Is(err, redis.ErrNil) {
		require.NoError(f.t, err)
	}
	return n
}

// progress waits until every process has held the lock a few times more.
func (f *fleet) progress() {
	f.t.Helper()
	for name := range f.members {
		before := f.count(rounds + name)
		require.Eventually(f.t, func() bool { return f.count(rounds+name) >= before+3 }, 3*eventually, 10*time.Millisecond,
			"%s gets the lock no more", name)
	}
	require.Zero(f.t, f.count(twice), "two processes were in the critical section at once")
}

func (f *fleet) end() {
	f.t.Helper()
	f.progress()
	for name := range f.members {
		f.leave(name)
	}
	assert.Zero(f.t, f.count(twice))
}

const fleetSize = 2

// replace replaces the processes one by one.
func (f *fleet) replace(from, to string, lists ...[]string) {
	f.t.Helper()
	for i := range fleetSize {
		f.join(fmt.Sprint(to, i), lists...)
		f.leave(fmt.Sprint(from, i))
	}
	f.progress()
}

func TestAFleetMovesFromOneMasterToFiveNodesWithoutStandingStill(t *testing.T) {
	five := nodes.Start(t, 5).Addrs()
	one := five[:1] // the worst case: the old master is one of the new nodes, and its keys are the same
	f := newFleet(t, redlock.DefaultTTL)
	for i := range fleetSize {
		f.join(fmt.Sprint("old ", i), one)
	}
	// A lock that is held through the first step, by a process of the old kind.
	old, err := redlock.New(one)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, old.Close()) })
	long, err := old.Acquire(t.Context(), "long", redlock.WithAutoRenew(true))
	require.NoError(t, err)

	f.replace("old ", "both ", one, five)

	both, err := redlock.New(one)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, both.Close()) })
	_, err = both.TryAcquire(t.Context(), "long") // the first list of such a process
	require.ErrorIs(t, err, redlock.ErrTaken)
	require.NoError(t, long.Release(t.Context())) // before the next step nobody may hold a lock of the old kind

	f.replace("both ", "new ", five)
	f.end()
}

// Why there is a step between.
func TestOneMasterAndFiveNodesDoNotExcludeEachOther(t *testing.T) {
	five := nodes.Start(t, 5).Addrs()
	hold := func(list []string) *redlock.Lock {
		l, err := redlock.New(list)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, l.Close()) })
		k, err := l.Acquire(t.Context(), "job")
		require.NoError(t, err)
		return k
	}
	old, grown := hold(five[:1]), hold(five)
	assert.Positive(t, old.Validity())
	assert.Positive(t, grown.Validity(), "both hold the lock")
}

// Why three nodes cannot grow to five in that way under the same key.
func TestAListWhoseQuorumNeedsNodesOfTheOldOneCannotBeLockedAfterIt(t *testing.T) {
	c := nodes.Start(t, 5)
	old, err := redlock.New(c.Addrs()[:3])
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, old.Close()) })
	k, err := old.Acquire(t.Context(), "job")
	require.NoError(t, err)
	for _, n := range c.Nodes()[:3] {
		require.Eventually(t, func() bool { return len(n.Keys()) == 1 }, eventually, 10*time.Millisecond)
	}
	_, err = newLocker(t, c).TryAcquire(t.Context(), "job")
	require.ErrorIs(t, err, redlock.ErrTaken)
	_, err = newLocker(t, c, redlock.WithKeyPrefix("five:")).TryAcquire(t.Context(), "job")
	require.NoError(t, err)
	require.NoError(t, k.Release(t.Context()))
}

func TestANodeIsReplacedByAnotherWhileTheFleetGoesOn(t *testing.T) {
	const ttl = 3 * time.Second
	c := nodes.Start(t, 6)
	c.Require(nodes.Killing)
	addrs := c.Addrs()
	before, after := addrs[:5], append(append([]string(nil), addrs[:4]...), addrs[5])
	f := newFleet(t, ttl)
	for i := range fleetSize {
		f.join(fmt.Sprint("before ", i), before)
	}
	l, err := redlock.New(before, redlock.WithTTL(ttl))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, l.Close()) })
	long, err := l.Acquire(t.Context(), "long", redlock.WithAutoRenew(true))
	require.NoError(t, err)

	c.Node(4).Kill()         // for good
	ended := time.After(ttl) // every lock that still counts on it is over then
	f.progress()             // and meanwhile the fleet does without
	<-ended
	f.replace("before ", "after ", after)

	rival, err := redlock.New(after, redlock.WithTTL(ttl))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, rival.Close()) })
	_, err = rival.TryAcquire(t.Context(), "long")
	require.ErrorIs(t, err, redlock.ErrTaken)
	require.NoError(t, long.Err(), "held all the time")
	require.NoError(t, long.Release(t.Context()))
	f.end()
}

// Why the node has to go first.
func TestTwoListsThatDifferInOneNodeDoNotExcludeEachOther(t *testing.T) {
	c := nodes.Start(t, 6)
	c.Require(nodes.Killing)
	addrs := c.Addrs()
	hold := func(down [2]int, list ...string) *redlock.Lock {
		l, err := redlock.New(list)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, l.Close()) })
		for _, i := range down {
			c.Node(i).Kill()
		}
		k, err := l.Acquire(t.Context(), "job", redlock.WithTTL(time.Minute))
		require.NoError(t, err)
		for _, i := range down {
			c.Node(i).Start()
		}
		return k
	}
	first := hold([2]int{2, 3}, addrs[0], addrs[1], addrs[2], addrs[3], addrs[4])
	second, err := redlock.New([]string{addrs[0], addrs[1], addrs[2], addrs[3], addrs[5]})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, second.Close()) })
	k, err := second.Acquire(t.Context(), "job", redlock.WithTTL(time.Minute))
	require.NoError(t, err)
	assert.Positive(t, first.Validity())
	assert.Positive(t, k.Validity(), "both hold the lock")
}
