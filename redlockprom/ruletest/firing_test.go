package ruletest_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/redlock"
)

// What happens, and which alerts it sets off: these and no others.
var scenarios = []struct {
	name  string
	nodes int
	act   func(*scene)
	want  []string
}{
	{
		"all is well", 5,
		func(s *scene) { s.work(15 * time.Minute) }, nil,
	},
	{
		"nodes are restarted one after another, a minute each", 3,
		func(s *scene) {
			for i := range 3 {
				s.work(2 * time.Minute)
				s.cluster.Node(i).Stop()
				s.work(time.Minute)
				require.NoError(s, s.cluster.Node(i).Restart())
			}
			s.work(5 * time.Minute)
		}, nil,
	},
	{
		"two of three nodes are down for seven seconds", 3,
		func(s *scene) {
			together(
				func() { s.hold("short", 2*time.Second, 7*time.Minute) },
				func() {
					time.Sleep(3 * time.Minute)
					for i := range 2 {
						s.cluster.Node(i).Stop()
					}
					time.Sleep(7 * time.Second)
					for i := range 2 {
						require.NoError(s, s.cluster.Node(i).Restart())
					}
				},
			)
		}, nil,
	},
	{
		"a single node", 1,
		func(s *scene) { s.work(5 * time.Minute) }, nil,
	},
	{
		"one of five nodes is down", 5,
		func(s *scene) {
			s.work(time.Minute)
			s.cluster.Node(3).Stop()
			s.work(4 * time.Minute)
		},
		[]string{"RedlockNodeDown"},
	},
	{
		"two of five nodes hang", 5,
		func(s *scene) {
			s.work(time.Minute)
			s.cluster.Node(3).Hang()
			s.cluster.Node(4).Hang()
			s.work(4 * time.Minute)
		},
		[]string{"RedlockNodeDown", "RedlockQuorumMarginZero"},
	},
	{
		"three of five nodes are down while a lock is held", 5,
		func(s *scene) {
			together(
				func() { s.work(7 * time.Minute) },
				func() {
					time.Sleep(100 * time.Second)
					for i := range 3 {
						s.cluster.Node(i).Stop()
					}
				},
			)
		},
		[]string{"RedlockLocksLost", "RedlockNoQuorum", "RedlockNodeDown", "RedlockRenewalsFailing"},
	},
	{
		"one of three nodes has become a replica", 3,
		func(s *scene) {
			s.work(time.Minute)
			s.cluster.Node(0).SetDelay(time.Millisecond)
			s.cluster.Node(1).SetDelay(time.Millisecond)
			s.cluster.Node(2).SetError("READONLY You can't write against a read only replica.", "SET", "DEL", "PEXPIRE")
			s.work(8 * time.Minute)
		},
		[]string{"RedlockNodeErrors", "RedlockQuorumMarginZero"},
	},
	{
		"somebody deletes locks that are held", 3,
		func(s *scene) {
			together(
				func() { s.work(6 * time.Minute) },
				func() {
					time.Sleep(2*time.Minute + 40*time.Second)
					for i := range 3 {
						s.cluster.Node(i).Delete("long")
					}
				},
			)
		},
		[]string{"RedlockLocksLost"},
	},
	{
		"work takes almost as long as the TTL", 3,
		func(s *scene) { s.hold("slow", 9850*time.Millisecond, 15*time.Minute) },
		[]string{"RedlockValidityLow"},
	},
	{
		"work takes longer than the TTL", 3,
		func(s *scene) { s.hold("slow", 11*time.Second, 15*time.Minute) },
		[]string{"RedlockLocksLost", "RedlockValidityLow"},
	},
	{
		"many releases cannot reach a node", 3,
		func(s *scene) {
			var held []*redlock.Lock
			for i := range 150 {
				lock, err := s.locker.TryAcquire(s.Context(), fmt.Sprint(i), redlock.WithTTL(time.Hour))
				require.NoError(s, err)
				held = append(held, lock)
			}
			s.cluster.Node(0).Stop()
			for _, lock := range held {
				require.NoError(s, lock.Release(s.Context()))
			}
			s.work(13 * time.Minute)
		},
		[]string{"RedlockNodeDown", "RedlockQuorumMarginZero", "RedlockReclaimsPiling"},
	},
	{
		"many want one lock that is held for long", 3,
		func(s *scene) {
			hold := func() { s.hold("popular", 7*time.Second, 22*time.Minute) }
			together(hold, hold, hold, hold)
		},
		[]string{"RedlockWaitsLong"},
	},
}

func TestTheAlertsFireOnWhatTheyAreForAndOnNothingElse(t *testing.T) {
	for _, scenario := range scenarios {
		t.Run(scenario.name, func(t *testing.T) {
			fired := firing(t, play(t, scenario.nodes, scenario.act))
			assert.Equal(t, scenario.want, slices.Sorted(maps.Keys(fired)), "%v", fired)
		})
	}
}

func TestEveryAlertHasAScenario(t *testing.T) {
	tried := make(map[string]bool)
	for _, scenario := range scenarios {
		for _, alert := range scenario.want {
			tried[alert] = true
		}
	}
	for _, rule := range alerts(t) {
		assert.True(t, tried[rule.Alert], rule.Alert)
	}
}
