package redlock

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/redquorum/go-redlock/internal/quorum"
	"github.com/redquorum/go-redlock/internal/scripts"
	"github.com/redquorum/go-redlock/pool"
)

// The name that Check locks begins with this; its TTLs are short, and it cleans
// up behind itself.
const (
	probePrefix = "redlock-check-"
	probeChars  = 26 // of rand.Text
	probeTTL    = 2 * time.Second
)

// Check examines whether the nodes are fit to hold locks. It opens a connection
// to each of them, asks what there is to ask, and takes, renews and releases a
// lock of a random name ("redlock-check-…") on each.
//
// What a node denies this user or does not know is a finding and no failure.
// The report has one finding for each of:
//
//	reach        the node answers, on a new connection
//	role         it is a master, and has no replicas that could take its place
//	cluster      it is no node of a Redis Cluster
//	alone        no other address leads to the same server
//	eviction     it evicts no keys
//	memory       there is room for more keys
//	persistence  locks outlive a restart, or WithRestartGuard sees to it
//	replicas     it does not refuse to write for want of replicas
//	uptime       it did not restart a moment ago
//	clock        its wall clock agrees with the others'
//	round-trip   it answers well within the node timeout
//	version      its version is one that this library is tested with
//	scripts      this user may lock, renew and release
//	fencing      this user may use fencing counters
//	channels     releases can be announced, and heard of
//	listing      List and Watch have the commands that they need
//	info, config what could not be looked at, if anything
//
// and once for all: "quorum", if too few nodes answer; "clock", this machine's;
// and "guard", whether the restart guard is as long as the default TTL and
// minimum hold.
//
// Check returns ErrClosed after Close, and the context's error if ctx ended.
func (l *Locker) Check(ctx context.Context) (*Report, error) {
	if !l.enter() {
		return nil, ErrClosed
	}
	defer l.calls.Done()
	probe := probePrefix + rand.Text()
	all := make([]*examinee, len(l.pools))
	for i, p := range l.pools {
		all[i] = &examinee{addr: p.Name()}
	}
	// First this: it makes the restart guard look at the nodes.
	err := l.try(ctx, probe, all)
	if err == nil {
		err = l.examine(ctx, probe, all)
	}
	if err != nil {
		return nil, l.cutShort("check", []string{probe}, err)
	}
	return l.report(all), nil
}

// examinee is one node, and what it showed.
type examinee struct {
	*pool.Examination
	addr    string
	err     error // why there is no Examination
	scripts error // why locks could not be taken, renewed and released
	fencing error // why not with a fencing number
	twins   []string
}

// examine asks all nodes at once.
func (l *Locker) examine(ctx context.Context, probe string, all []*examinee) error {
	bounded, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	for i, p := range l.pools {
		wg.Go(func() {
			e := all[i]
			e.Examination, e.err = p.Examine(bounded, channelPrefix+l.keyPrefix+probe, reserved+"*")
		})
	}
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-l.closing:
		cancel()
		<-done
		return ErrClosed
	}
	if ended := contextError(ctx); ended != nil {
		return ended
	}
	byServer := make(map[string][]*examinee)
	for _, e := range all {
		if e.err == nil && distinct(e.Info["run_id"]) {
			byServer[e.Info["run_id"]] = append(byServer[e.Info["run_id"]], e)
		}
	}
	for _, same := range byServer {
		for _, e := range same {
			for _, other := range same {
				if other != e {
					e.twins = append(e.twins, other.addr)
				}
			}
		}
	}
	return nil
}

// try takes a lock on every node by itself, and gives it back.
func (l *Locker) try(ctx context.Context, probe string, all []*examinee) error {
	keys, token := []string{l.keyPrefix + probe}, newToken(l.owner)
	counters := []string{counterPrefix + keys[0]}
	fencing := scripts.Fencing{Counters: counters, Proposal: 1, TTL: probeTTL}
	steps := []struct {
		call *scripts.Call
		read func(reply any) error
		err  func(*examinee) *error
	}{
		{scripts.Acquire(keys, token, probeTTL, scripts.Fencing{}), wish(readAcquired(1)), (*examinee).locking},
		{scripts.Renew(keys, token, probeTTL), wish(readHold), (*examinee).locking},
		{scripts.Acquire(keys, token, probeTTL, fencing), wish(readAcquired(1)), (*examinee).numbering},
		{scripts.ConfirmReturned(keys, token, counters, 1, probeTTL), wish(readConfirmed), (*examinee).numbering},
		{scripts.Release(keys, token, true), wish(readDeleted(1)), (*examinee).locking},
	}
	for _, step := range steps {
		answers, err := l.survey(ctx, everybody(step.call))
		if err != nil {
			return err
		}
		for node, answer := range answers {
			err := answer.Err
			if err == nil {
				err = step.read(answer.Reply)
			}
			if seen := step.err(all[node]); *seen == nil {
				*seen = err
			}
		}
	}
	return nil
}

func (e *examinee) locking() *error   { return &e.scripts }
func (e *examinee) numbering() *error { return &e.fencing }

// wish returns why an answer is not the one that somebody wants who is alone.
func wish[R any](read func(any) (quorum.Vote, R, error)) func(any) error {
	return func(reply any) error {
		_, _, err := read(reply)
		return err
	}
}

// quarantined reports whether it is the restart guard that keeps the node from
// granting, which is no fault of the node's.
func (e *examinee) quarantined() bool { return errors.Is(e.scripts, pool.ErrRestarted) }
