package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/redquorum/go-redlock/redlocktest"
)

const (
	// settled is long enough for what is under way to arrive, on a busy machine too.
	settled = 10 * time.Second
	// long is an expiry that no scenario lives to see.
	long = 10 * time.Minute
)

// A stage is where a scenario is played: nodes, one of the libraries, and what was seen.
type stage struct {
	*testing.T
	*redlocktest.Cluster
	library library
	with    func(*testing.T, []string) library // makes one on nodes of the scenario's choice
	seen    []string
}

// mutex makes a mutex named "job" that lives long, unless the options say something else.
func (s *stage) mutex(options ...option) mutex {
	return s.library("job", append([]option{expiry(long)}, options...))
}

// locked makes a mutex and locks it, on all nodes.
func (s *stage) locked(options ...option) mutex {
	s.Helper()
	m := s.mutex(options...)
	require.NoError(s, m.Lock())
	require.Eventually(s, func() bool { return s.Holders("job")[m.Value()] == s.Len() }, settled, time.Millisecond)
	return m
}

func (s *stage) say(what string, results ...any) {
	for _, result := range results {
		switch result := result.(type) {
		case error:
			what += ": " + words(result)
		case nil:
			what += ": no error"
		default:
			what += fmt.Sprint(": ", result)
		}
	}
	s.seen = append(s.seen, what)
}

// sayOK says what an operation that returns a bool has returned.
func (s *stage) sayOK(what string, ok bool, err error) { s.say(what, ok, err) }

// sayKeys says what is on the nodes, the mutex's value by the name of "ours".
func (s *stage) sayKeys(m mutex) {
	s.Helper()
	var text string
	for i := range s.Len() {
		got, ttl, ok := s.Node(i).Get("job")
		switch {
		case !ok:
			text += " none"
		case got == m.Value():
			text += fmt.Sprint(" ours for ", ttl.Round(time.Minute))
		default:
			text += " another's"
		}
	}
	s.say("keys" + text)
}

// sayFree waits for the keys to go, and says so.
func (s *stage) sayFree() {
	s.Helper()
	require.Eventually(s, func() bool { return len(s.Holders("job")) == 0 }, settled, time.Millisecond)
	s.say("free")
}

// sayGone waits for the key to go from some nodes, and says so.
func (s *stage) sayGone(numbers ...int) {
	s.Helper()
	for _, i := range numbers {
		require.Eventually(s, func() bool {
			_, _, ok := s.Node(i).Get("job")
			return !ok
		}, settled, time.Millisecond, "node %d", i)
	}
	s.say("gone")
}

// on does something to some nodes.
func (s *stage) on(do func(*redlocktest.Node), numbers ...int) {
	for _, i := range numbers {
		do(s.Node(i))
	}
}

func deleteKey(n *redlocktest.Node) { n.Delete("job") }
func stealKey(n *redlocktest.Node)  { n.Set("job", "another's", long) }
func readOnly(n *redlocktest.Node) {
	n.SetError("READONLY You can't write against a read only replica.")
}

// require plays a scenario with one of the libraries, on five nodes of its own, and requires what comes of it. It may
// take three times: on a busy machine a node can answer later than ours waits to have it in an error.
func (scenario scenario) require(t *testing.T, want []string, with func(*testing.T, []string) library) {
	t.Helper()
	var seen []string
	for range 3 {
		if seen = scenario.play(t, with); slices.Equal(seen, want) {
			return
		}
	}
	require.Equal(t, want, seen)
}

func (scenario scenario) play(t *testing.T, with func(*testing.T, []string) library) []string {
	t.Helper()
	c := redlocktest.Start(t, 5)
	s := &stage{T: t, Cluster: c, library: with(t, c.Addrs()), with: with}
	scenario(s)
	return s.seen
}

type scenario func(s *stage)

// alike are scenarios that come to the same in both libraries.
var alike = map[string]scenario{
	"lock, extend, ask and unlock": func(s *stage) {
		m := s.mutex()
		s.say("before", m.Name(), m.Value() == "", m.Until().IsZero())
		s.say("lock", m.Lock())
		require.Eventually(s, func() bool { return s.Holders("job")[m.Value()] == 5 }, settled, time.Millisecond)
		s.sayKeys(m)
		s.say("until", time.Until(m.Until()).Round(time.Minute))
		ok, err := m.Extend()
		s.sayOK("extend", ok, err)
		ok, err = m.Valid()
		s.sayOK("valid", ok, err)
		ok, err = m.Unlock()
		s.sayOK("unlock", ok, err)
		s.sayFree()
		s.say("after", m.Value() != "", m.Until().IsZero())
	},
	"each form with a context": func(s *stage) {
		m := s.mutex()
		s.say("try", m.TryLockContext(s.Context()))
		ok, err := m.ExtendContext(s.Context())
		s.sayOK("extend", ok, err)
		ok, err = m.ValidContext(s.Context())
		s.sayOK("valid", ok, err)
		ok, err = m.UnlockContext(s.Context())
		s.sayOK("unlock", ok, err)
		s.say("lock", m.LockContext(s.Context()))
	},
	"two contenders": func(s *stage) {
		m := s.locked()
		s.say("try", s.mutex().TryLock())
		s.say("try itself", m.TryLock())
		s.say("lock", s.mutex(tries(3, 10*time.Millisecond)...).Lock())
		ok, err := m.Unlock()
		s.sayOK("unlock", ok, err)
		s.say("try", s.mutex().TryLock())
	},
	"a contender waits": func(s *stage) {
		m := s.locked()
		next := s.mutex(tries(1000, 20*time.Millisecond)...)
		var group errgroup.Group
		group.Go(next.Lock)
		time.Sleep(100 * time.Millisecond)
		ok, err := m.Unlock()
		s.sayOK("unlock", ok, err)
		s.say("lock", group.Wait(), next.Value() != m.Value())
	},
	"many contenders": func(s *stage) {
		var group errgroup.Group
		var inside, count atomic.Int32
		for range 8 {
			group.Go(func() error {
				m := s.mutex(tries(10_000, 5*time.Millisecond)...)
				for range 5 {
					if err := m.Lock(); err != nil {
						return err
					}
					if inside.Add(1) != 1 {
						return errors.New("two inside")
					}
					count.Add(1)
					inside.Add(-1)
					if ok, err := m.Unlock(); !ok {
						return fmt.Errorf("unlock: %w", err)
					}
				}
				return nil
			})
		}
		s.say("all", group.Wait(), count.Load())
	},
	"tries and delays say how long": func(s *stage) {
		s.locked()
		began := time.Now()
		err := s.mutex(append(tries(4, 0), delays(func(tries int) time.Duration { return time.Duration(tries) * 100 * time.Millisecond }))...).Lock()
		s.say("lock", err, time.Since(began) >= 600*time.Millisecond)
		s.say("nothing to try", s.mutex(tries(0, time.Second)...).Lock())
	},
	"the value is handed over": func(s *stage) {
		m := s.locked()
		other := s.mutex(value(m.Value()))
		s.say("value", other.Value() == m.Value())
		ok, err := other.Valid()
		s.sayOK("valid", ok, err)
		ok, err = other.Extend()
		s.sayOK("extend", ok, err)
		s.say("until", time.Until(other.Until()).Round(time.Minute))
		ok, err = other.Unlock()
		s.sayOK("unlock", ok, err)
		s.sayFree()
		ok, err = m.Unlock()
		s.sayOK("unlock where it was locked", ok, err)
		ok, err = s.mutex(value("wrong")).Unlock()
		s.sayOK("unlock with a wrong value", ok, err)
	},
	"unlocked by its value where a majority has lost it": func(s *stage) {
		m := s.locked()
		s.on(deleteKey, 0, 2, 4)
		ok, err := s.mutex(value(m.Value())).Unlock()
		s.sayOK("unlock", ok, err)
		s.sayFree()
	},
	"unlocked by its value where a majority is down": func(s *stage) {
		m := s.locked()
		s.on((*redlocktest.Node).Stop, 0, 2, 4)
		ok, err := s.mutex(value(m.Value())).Unlock()
		s.sayOK("unlock", ok, err)
		s.sayGone(1, 3)
	},
	"unlocked when it is no longer valid": func(s *stage) {
		m := s.locked(expiry(30*time.Second), drift(0.97))
		time.Sleep(time.Until(m.Until()) + 100*time.Millisecond)
		ok, err := m.Unlock()
		s.sayOK("unlock", ok, err)
		s.sayFree()
	},
	"unlocked when another mutex has extended it": func(s *stage) {
		m := s.locked(expiry(30*time.Second), drift(0.97))
		other := s.mutex(value(m.Value()))
		s.sayExtend(other)
		time.Sleep(time.Until(m.Until()) + 100*time.Millisecond)
		ok, err := m.Unlock()
		s.sayOK("unlock", ok, err)
		s.sayFree()
	},
	"a value of one's own": func(s *stage) {
		m := s.locked(genValue(func() (string, error) { return "mine", nil }))
		s.say("value", m.Value())
		err := s.mutex(genValue(func() (string, error) { return "", errors.New("out of values") })).Lock()
		s.say("no value", err.Error())
	},
	"unlocked twice": func(s *stage) {
		m := s.locked()
		for range 3 {
			ok, err := m.Unlock()
			s.sayOK("unlock", ok, err)
		}
		s.sayExtend(m)
		s.say("lock again", m.Lock())
	},
	"never locked": func(s *stage) {
		m := s.mutex()
		ok, err := m.Unlock()
		s.sayOK("unlock", ok, err)
		s.sayValid(m)
	},
	"expired": func(s *stage) {
		m := s.mutex(expiry(300 * time.Millisecond))
		s.say("lock", m.Lock())
		time.Sleep(time.Until(m.Until()) + 100*time.Millisecond)
		s.sayFree()
		ok, err := m.Unlock()
		s.sayOK("unlock", ok, err)
		s.say("another", s.mutex().TryLock())
	},
	"deleted on a majority": func(s *stage) {
		m := s.locked()
		s.on(deleteKey, 0, 2, 4)
		ok, err := m.Valid()
		s.sayOK("valid", ok, err)
		ok, err = m.Extend()
		s.sayOK("extend", ok, err)
		ok, err = m.Unlock()
		s.sayOK("unlock", ok, err)
		s.sayFree()
	},
	"stolen on a majority": func(s *stage) {
		m := s.locked()
		s.on(stealKey, 0, 2, 4)
		ok, err := m.Valid()
		s.sayOK("valid", ok, err)
		ok, err = m.Extend()
		s.sayOK("extend", ok, err)
	},
	"lost on a minority": func(s *stage) {
		m := s.locked()
		s.on(deleteKey, 1)
		s.on(stealKey, 3)
		ok, err := m.Extend()
		s.sayOK("extend", ok, err)
		s.sayKeys(m)
		s.sayValid(m)
		ok, err = m.Unlock()
		s.sayOK("unlock", ok, err)
	},
	"healed when extended": func(s *stage) {
		m := s.locked(setNXOnExtend())
		s.on(deleteKey, 1, 3)
		ok, err := m.Extend()
		s.sayOK("extend", ok, err)
		require.Eventually(s, func() bool { return s.Holders("job")[m.Value()] == 5 }, settled, time.Millisecond)
		s.sayKeys(m)
	},
	"a minority is down": func(s *stage) {
		s.on((*redlocktest.Node).Stop, 0, 4)
		m := s.mutex()
		s.say("lock", m.Lock())
		ok, err := m.Extend()
		s.sayOK("extend", ok, err)
		s.sayValid(m)
		ok, err = m.Unlock()
		s.sayOK("unlock", ok, err)
	},
	"a majority is down": func(s *stage) {
		m := s.locked()
		s.on((*redlocktest.Node).Stop, 0, 2, 4)
		s.say("another name", s.library("another", tries(1, 0)).Lock())
		ok, err := m.Extend()
		s.sayOK("extend", ok, err)
		ok, err = m.Valid()
		s.sayOK("valid", ok, err)
		ok, err = m.Unlock()
		s.sayOK("unlock", ok, err)
	},
	"no quorum either way": func(s *stage) {
		s.on(stealKey, 0, 1)
		s.on((*redlocktest.Node).Stop, 2, 3)
		s.say("try", s.mutex().TryLock())
	},
	"the other options": func(s *stage) {
		// Not on all nodes: redsync breaks off what is under way when a quorum has granted.
		m := s.mutex(failFast(true), shuffled(true), drift(0.5), timeout(0.5), expiry(40*time.Minute))
		s.say("lock", m.Lock())
		s.say("until", time.Until(m.Until()).Round(time.Minute))
		ok, err := m.Unlock()
		s.sayOK("unlock", ok, err)
	},
}

func TestTheSameScenarioComesToTheSameInBothLibraries(t *testing.T) {
	for name, scenario := range alike {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scenario.require(t, scenario.play(t, newTheirs), newOurs)
		})
	}
}

// Each of these is a row in the table of docs/migrating.md.
var apart = map[string]struct {
	scenario     scenario
	theirs, ours string // one line for each thing that was said
}{
	"a node that hangs": {func(s *stage) {
		m := s.locked()
		s.on((*redlocktest.Node).Hang, 1)
		began := time.Now()
		ok, err := m.Extend()
		s.say("extend", ok, err, time.Since(began) > readTimeout/2)
		began = time.Now()
		ok, err = m.Unlock()
		s.say("unlock", ok, err, time.Since(began) > readTimeout/2)
		s.on((*redlocktest.Node).Resume, 1)
	}, `
		extend: true: no error: true
		unlock: true: no error: true`, `
		extend: true: no error: false
		unlock: true: no error: false`},
	"extended when it is no longer valid": {func(s *stage) {
		m := s.locked(expiry(30*time.Second), drift(0.97))
		time.Sleep(time.Until(m.Until()) + 100*time.Millisecond)
		s.sayExtend(m)
	}, `
		extend: true: no error`, `
		extend: false: extend failed`},
	"extended when it has expired": {func(s *stage) {
		m := s.mutex(expiry(300*time.Millisecond), setNXOnExtend())
		s.say("lock", m.Lock())
		time.Sleep(time.Until(m.Until()) + 100*time.Millisecond)
		s.sayFree()
		s.sayExtend(m)
	}, `
		lock: no error
		free
		extend: true: no error`, `
		lock: no error
		free
		extend: false: extend failed`},
	"extended when a majority has lost it": {func(s *stage) {
		m := s.locked(setNXOnExtend())
		s.on(deleteKey, 0, 2, 4)
		s.sayExtend(m)
	}, `
		extend: true: no error`, `
		extend: false: taken`},
	"a context that has ended": {func(s *stage) {
		m := s.locked() // and so there are connections
		ok, err := m.Unlock()
		s.sayOK("unlock", ok, err)
		ctx, cancel := context.WithCancel(s.Context())
		cancel()
		s.say("lock", m.LockContext(ctx))
	}, `
		unlock: true: no error
		lock: no error`, `
		unlock: true: no error
		lock: canceled, failed`},
	"a context that ends": {func(s *stage) {
		s.locked()
		ctx, cancel := context.WithCancel(s.Context())
		time.AfterFunc(100*time.Millisecond, cancel)
		s.say("lock", s.mutex(tries(2, time.Minute)...).LockContext(ctx))
	}, `
		lock: failed`, `
		lock: canceled, failed`},
	"held by others, and a node fails": {func(s *stage) {
		s.locked()
		s.on(readOnly, 1)
		s.say("try", s.mutex().TryLock())
	}, `
		try: taken`, `
		try: node failed, taken`},
	"failures that time does not mend": {func(s *stage) {
		s.on(readOnly, 0, 2, 4)
		began := time.Now()
		err := s.mutex(tries(2, 4*time.Second)...).Lock()
		s.say("lock", err, time.Since(began) > 2*time.Second)
	}, `
		lock: node failed: true`, `
		lock: node failed: false`},
	"unlocked when others have it": {func(s *stage) {
		m := s.locked()
		s.on(stealKey, 0, 1, 2, 3, 4)
		ok, err := m.Unlock()
		s.sayOK("unlock", ok, err)
		ok, err = s.mutex().Unlock()
		s.sayOK("unlock what was never locked", ok, err)
	}, `
		unlock: false: taken
		unlock what was never locked: false: taken`, `
		unlock: false: expired
		unlock what was never locked: false: expired`},
	"one value for all tries": {func(s *stage) {
		s.locked()
		made := 0
		err := s.mutex(append(tries(3, 10*time.Millisecond), genValue(func() (string, error) {
			made++
			return fmt.Sprint(made), nil
		}))...).Lock()
		s.say("lock", err, made > 1)
	}, `
		lock: taken: false`, `
		lock: taken: true`},
	"held by others, and a minority is down": {func(s *stage) {
		s.on((*redlocktest.Node).Stop, 0, 4)
		s.say("lock", s.mutex().Lock())
		s.say("try", s.mutex().TryLock())
	}, `
		lock: no error
		try: taken`, `
		lock: no error
		try: node failed, taken`},
	"asked and extended when it was never locked": {func(s *stage) {
		m := s.mutex()
		s.sayValid(m)
		s.sayExtend(m)
	}, `
		valid: false: taken
		extend: false: taken`, `
		valid: false: taken
		extend: false: extend failed`},
	"asked and extended when it has expired": {func(s *stage) {
		m := s.mutex(expiry(300 * time.Millisecond))
		s.say("lock", m.Lock())
		time.Sleep(time.Until(m.Until()) + 100*time.Millisecond)
		s.sayFree()
		s.sayValid(m)
		s.sayExtend(m)
	}, `
		lock: no error
		free
		valid: false: taken
		extend: false: taken`, `
		lock: no error
		free
		valid: false: no error
		extend: false: extend failed`},
	"asked and extended when another mutex has extended it": {func(s *stage) {
		m := s.locked(expiry(30*time.Second), drift(0.97))
		s.sayExtend(s.mutex(value(m.Value())))
		time.Sleep(time.Until(m.Until()) + 100*time.Millisecond)
		s.sayValid(m)
		s.sayExtend(m)
	}, `
		extend: true: no error
		valid: true: no error
		extend: true: no error`, `
		extend: true: no error
		valid: false: no error
		extend: false: extend failed`},
	"extended with a shorter expiry": {func(s *stage) {
		m := s.locked()
		s.sayExtend(s.mutex(value(m.Value()), expiry(3*time.Minute)))
		s.sayKeys(m)
	}, `
		extend: true: no error
		keys ours for 3m0s ours for 3m0s ours for 3m0s ours for 3m0s ours for 3m0s`, `
		extend: true: no error
		keys ours for 10m0s ours for 10m0s ours for 10m0s ours for 10m0s ours for 10m0s`},
	"unlocked when one node has lost it and two are down": {func(s *stage) {
		m := s.locked()
		s.on(deleteKey, 0)
		s.on((*redlocktest.Node).Stop, 2, 4)
		ok, err := m.Unlock()
		s.sayOK("unlock", ok, err)
	}, `
		unlock: false: expired, node failed`, `
		unlock: true: no error`},
	"extended with a value that nobody holds": {func(s *stage) {
		s.sayExtend(s.mutex(value("mine"), setNXOnExtend()))
	}, `
		extend: true: no error`, `
		extend: false: taken`},
	"a long value": {func(s *stage) {
		m := s.mutex(value(strings.Repeat("x", 257)))
		for i := range s.Len() {
			s.Node(i).Set("job", m.Value(), long)
		}
		s.sayValid(m)
		s.sayExtend(m)
		ok, err := m.Unlock()
		s.sayOK("unlock", ok, err)
	}, `
		valid: true: no error
		extend: true: no error
		unlock: true: no error`, `
		valid: false: node failed
		extend: false: extend failed
		unlock: false: another error`},
	"two pools that lead to one server": {func(s *stage) {
		addrs := s.Addrs()
		job := s.with(s.T, []string{addrs[0], addrs[0], addrs[1]})("job", []option{expiry(long)})
		s.say("lock", job.Lock())
	}, `
		lock: no error`, `
		lock: another error`},
	"no nodes": {func(s *stage) {
		s.say("lock", s.with(s.T, nil)("job", nil).Lock())
	}, `
		lock: failed`, `
		lock: another error`},
	"names without sense": {func(s *stage) {
		s.say("no name", s.library("", []option{expiry(long)}).Lock())
		s.say("a reserved name", s.library("redlock:job", []option{expiry(long)}).Lock())
	}, `
		no name: no error
		a reserved name: no error`, `
		no name: another error
		a reserved name: another error`},
}

func (s *stage) sayValid(m mutex) {
	ok, err := m.Valid()
	s.sayOK("valid", ok, err)
}

func (s *stage) sayExtend(m mutex) {
	ok, err := m.Extend()
	s.sayOK("extend", ok, err)
}

func TestDifferencesAreThoseThatAreMeant(t *testing.T) {
	for name, test := range apart {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.scenario.require(t, said(test.theirs), newTheirs)
			test.scenario.require(t, said(test.ours), newOurs)
		})
	}
}

func said(text string) []string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return lines
}

func TestTheTwoLibrariesExcludeEachOther(t *testing.T) {
	c := redlocktest.Start(t, 5)
	both := []library{newTheirs(t, c.Addrs()), newOurs(t, c.Addrs())}
	for holder, library := range both {
		m := library("job", []option{expiry(long)})
		require.NoError(t, m.Lock())
		other := both[1-holder]
		require.Contains(t, words(other("job", nil).TryLock()), "taken")

		handed := other("job", []option{expiry(long), value(m.Value())})
		ok, err := handed.Extend()
		require.NoError(t, err)
		require.True(t, ok, "a lock can be handed over to the other library")
		ok, err = handed.Unlock()
		require.NoError(t, err)
		require.True(t, ok)
	}
}
