package redlock

import (
	"strings"

	"github.com/redquorum/go-redlock/internal/scripts"
	"github.com/redquorum/go-redlock/pool"
)

// What is announced on the channels redlock:<what>:<key>. The nodes announce
// releases by themselves.
const (
	toldAcquired = "acquired"
	toldRenewed  = "renewed"
	toldReleased = "released"
)

// announce publishes what has become of the lock, if [WithEvents] is on, and
// waits for nobody: it is a hint to those who watch. The client and not the
// script says it, since a vote is not a lock yet.
func (k *Lock) announce(what string) {
	l := k.locker
	if !l.events {
		return
	}
	call := scripts.Announce(k.keys, what, k.Owner())
	now := l.clock.Elapsed()
	for node, p := range l.pools {
		p.Start(&pool.Call{Script: call, To: nobody{}, Node: node, Began: now})
	}
}

// nobody receives what is of no interest.
type nobody struct{}

func (nobody) Deliver(int, pool.Result) {}
func (nobody) Wanted() bool             { return true }

// announced returns what a message on a channel says of which key.
func announced(channel string) (what, key string, ok bool) {
	rest, ok := strings.CutPrefix(channel, reserved)
	if !ok {
		return "", "", false
	}
	what, key, ok = strings.Cut(rest, ":")
	return what, key, ok
}
