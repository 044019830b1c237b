package matrix

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/go-redlock/redlock"
)

// The times of a matrix.
const (
	nodeTimeout = 500 * time.Millisecond
	// ttl is so long that no key ends with it in a round: what is gone was deleted.
	ttl = 5 * time.Minute
	// shortTTL is of the lock that is left alone.
	shortTTL = 2 * time.Second
	// watch is how long that one is looked at.
	watch = shortTTL + shortTTL/10
	// outage is the outage tolerance of the one who waits.
	outage = 300 * time.Millisecond
	// waits is how long it waits at the most.
	waits = 2 * time.Second
	// late is how much later than its deadline a lock may be reported lost.
	late = 700 * time.Millisecond
	// patience bounds whatever the matrix waits for, such as that nothing is left once the nodes are well. It is many
	// times what the library's longest pauses come to, and a fraction of the TTL.
	patience = 15 * time.Second
)

// A try is one cell under way: one operation on one cluster under one fault.
type try struct {
	want   Expectation
	name   string // of the lock
	locker *redlock.Locker
	rival  *redlock.Locker // somebody else's
	unit   *unit

	lock   *redlock.Lock           // held by locker
	theirs *redlock.Lock           // held by rival
	waiter chan error              // what the one who waits comes to
	enough context.CancelCauseFunc // makes it give up

	err  error // of the operation, under the fault
	got  Outcome
	took time.Duration

	mu       sync.Mutex
	problems []string
}

func (t *try) problem(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.problems = append(t.problems, fmt.Sprintf(format, args...))
}

// An operation is a column of the table.
type operation struct {
	// before sets up what the operation needs.
	before func(context.Context, *try) error
	// under does it while the fault lasts.
	under func(context.Context, *try)
	// after looks at what the fault has left, now that it is over.
	after func(context.Context, *try)
}

var operations = map[string]operation{
	acquire: {
		before: func(context.Context, *try) error { return nil },
		under: func(ctx context.Context, t *try) {
			began := time.Now()
			t.lock, t.err = t.locker.TryAcquire(ctx, t.name, redlock.WithTTL(ttl))
			t.conclude(began)
			if t.lock == nil {
				return
			}
			if theirs, err := t.rival.TryAcquire(ctx, t.name, redlock.WithTTL(ttl)); err == nil {
				t.problem("two holders: a rival acquired the lock, too")
				_ = theirs.Release(ctx)
			}
		},
		after: finish,
	},
	renew: {
		before: hold(redlock.WithTTL(ttl)),
		under: func(ctx context.Context, t *try) {
			deadline := time.Now().Add(t.lock.Validity())
			began := time.Now()
			t.err = t.lock.Renew(ctx)
			t.conclude(began)
			now := time.Now().Add(t.lock.Validity())
			switch {
			case t.got == NoQuorum && (t.lock.Err() != nil || now.Before(deadline.Add(-late))):
				t.problem("the failed renewal cost the lock: %v, valid for another %v", t.lock.Err(), t.lock.Validity())
			case t.got == NoQuorum && now.After(deadline.Add(late)):
				t.problem("the failed renewal moved the deadline by %v", now.Sub(deadline))
			}
		},
		after: func(ctx context.Context, t *try) {
			// The node may be well for a moment before the library finds out.
			err := t.lock.Renew(ctx)
			for ctx.Err() == nil && errors.Is(err, redlock.ErrNoQuorum) {
				time.Sleep(20 * time.Millisecond)
				err = t.lock.Renew(ctx)
			}
			if healed := classify(err); healed != t.want.Healed {
				t.problem("once the nodes were well, a renewal came to %s, not %s: %v", healed, t.want.Healed, err)
			}
			finish(ctx, t)
		},
	},
	release: {
		before: hold(redlock.WithTTL(ttl)),
		under: func(ctx context.Context, t *try) {
			began := time.Now()
			t.err = t.lock.Release(ctx)
			t.conclude(began)
			if again := t.lock.Release(ctx); classify(again) != t.got {
				t.problem("a second release came to something else: %v", again)
			}
			if left := t.lock.Validity(); left != 0 {
				t.problem("still valid for %v after the release", left)
			}
			t.lock = nil
		},
		after: func(context.Context, *try) {},
	},
	waiting: {
		before: func(ctx context.Context, t *try) (err error) {
			t.theirs, err = t.rival.TryAcquire(ctx, t.name, redlock.WithTTL(ttl))
			if err != nil {
				return err
			}
			t.waiter = make(chan error, 1)
			ctx, t.enough = context.WithCancelCause(ctx)
			go func() { // ends with ctx
				lock, err := t.locker.Acquire(ctx, t.name, redlock.WithTTL(ttl))
				t.lock = lock
				t.waiter <- err
			}()
			return t.awaitListening()
		},
		under: func(ctx context.Context, t *try) {
			began := time.Now()
			// What the holder is told is the cell of release; here it may be anything.
			_ = t.theirs.Release(ctx)
			enough := time.AfterFunc(waits, func() { t.enough(errEnough) })
			t.err = <-t.waiter
			enough.Stop()
			t.enough(nil)
			t.conclude(began)
		},
		after: finish,
	},
	autoRenew: {
		before: hold(redlock.WithTTL(shortTTL), redlock.WithAutoRenew(true)),
		under: func(_ context.Context, t *try) {
			began := time.Now()
			left := t.lock.Validity()
			select {
			case <-t.lock.Done():
				t.took = time.Since(began)
				t.err = t.lock.Err()
				t.got = classify(t.err)
				// The deadline only ever moves away, so before it only the nodes can have ended the lock.
				if t.got == Lost && t.took >= left-10*time.Millisecond {
					t.got = Expires
				}
				if t.took > shortTTL+late {
					t.problem("reported lost %v after it could last have been renewed", t.took)
				}
			case <-time.After(watch):
				t.took = time.Since(began)
				t.err = t.lock.Err()
				t.got = classify(t.err)
			}
			t.judge()
		},
		after: finish,
	},
}

// hold acquires the lock.
func hold(opts ...redlock.LockOption) func(context.Context, *try) error {
	return func(ctx context.Context, t *try) (err error) {
		t.lock, err = t.locker.TryAcquire(ctx, t.name, opts...)
		return err
	}
}

// finish releases what is held.
func finish(ctx context.Context, t *try) {
	if t.lock == nil {
		return
	}
	held := t.lock.Err() == nil
	switch err := t.lock.Release(ctx); {
	case err == nil, errors.Is(err, redlock.ErrNoQuorum):
		// The library may not have found the nodes again. The keys must go all the same.
	case held:
		t.problem("the release of the lock, which was held: %v", err)
	}
}

// errEnough is why the one who waits gives up.
var errEnough = errors.New("waited long enough")

// awaitListening waits until every node has the subscription of the one who waits.
func (t *try) awaitListening() error {
	channel := "redlock:released:" + t.name
	return await("subscription to "+channel, func() (bool, error) {
		for _, n := range t.unit.cluster.Nodes() {
			counts, err := redis.IntMap(n.Do("PUBSUB", "NUMSUB", channel))
			if err != nil || counts[channel] == 0 {
				return false, err
			}
		}
		return true, nil
	})
}

// conclude takes the operation as over.
func (t *try) conclude(began time.Time) {
	t.took = time.Since(began)
	t.got = classify(t.err)
	t.judge()
}

// identities are the errors that callers branch on. An error that is two of them is a problem of its own.
var identities = []struct {
	err     error
	outcome Outcome
}{
	{redlock.ErrTaken, Taken},
	{redlock.ErrNoQuorum, NoQuorum},
	{redlock.ErrLost, Lost},
	{redlock.ErrReleased, Unexplained},
	{redlock.ErrClosed, Unexplained},
	{redlock.ErrConfig, Unexplained},
	{errEnough, Unexplained}, // but for the above: there must have been a reason to wait
	{context.DeadlineExceeded, Unexplained},
}

// classify says which outcome an error is.
func classify(err error) Outcome {
	if err == nil {
		return OK
	}
	if errors.Is(err, errEnough) && errors.Is(err, redlock.ErrTaken) && !errors.Is(err, redlock.ErrNoQuorum) {
		return GivesUp
	}
	found := Unexplained
	for _, id := range identities {
		if !errors.Is(err, id.err) {
			continue
		}
		if found != Unexplained {
			return Unexplained
		}
		found = id.outcome
	}
	return found
}

// judge compares what was seen with what was expected.
func (t *try) judge() {
	if !t.want.Allows(t.got) {
		t.problem("came to %s, not %s", t.got, t.want.Text)
	}
	if t.want.Within > 0 && t.took > t.want.Within {
		t.problem("took %v, more than %v", t.took.Round(time.Millisecond), t.want.Within)
	}
	if t.err != nil {
		t.judgeError()
	}
}

// judgeError looks at what the error says of the nodes.
func (t *try) judgeError() {
	text := t.err.Error()
	if strings.ContainsAny(text, "\n\r") || !strings.HasPrefix(text, "redlock: ") {
		t.problem("the text of the error is not one line that begins with redlock: %q", text)
	}
	if strings.Contains(text, password) {
		t.problem("the error shows the password: %q", text)
	}
	var failed *redlock.QuorumError
	if !errors.As(t.err, &failed) {
		if t.got != Lost && t.got != Expires {
			t.problem("the error has no QuorumError: %v", t.err)
		}
		return
	}
	if len(failed.Nodes) != Size {
		t.problem("the error knows of %d nodes", len(failed.Nodes))
	}
	if t.got == GivesUp {
		if !errors.Is(t.err, context.Canceled) {
			t.problem("the error is not that of the context: %v", t.err)
		}
		return
	}
	for _, n := range failed.Nodes {
		switch {
		case !t.unit.isSick(n.Addr):
		case n.Err == nil:
			t.problem("the error says that all went well at %s, which has the fault: %v", n.Addr, t.err)
		case len(t.want.Cause) > 0 && !slices.ContainsFunc(t.want.Cause, func(cause string) bool { return strings.Contains(n.Err.Error(), cause) }):
			t.problem("%s has the fault and shows none of %q: %v", n.Addr, t.want.Cause, n.Err)
		}
	}
}

// judgeKnown waits for the library to know the fault, and what the user is told by then.
func (t *try) judgeKnown(ctx context.Context) {
	if t.want.Known == "" {
		return
	}
	err := await("error that says for every node that has the fault "+t.want.Known, func() (bool, error) {
		lock, err := t.locker.TryAcquire(ctx, "known-"+t.want.Operation, redlock.WithTTL(ttl))
		if err == nil {
			return false, errors.Join(errors.New("the lock was acquired"), lock.Release(ctx))
		}
		return t.unit.blames(err, t.want.Known), err
	})
	if err != nil {
		t.problem("%v", err)
	}
}

// blames reports whether the text of the error has the address of every node that has the fault, with the cause.
func (u *unit) blames(err error, cause string) bool {
	var failed *redlock.QuorumError
	if !errors.As(err, &failed) {
		return false
	}
	return !slices.ContainsFunc(failed.Nodes, func(n redlock.NodeError) bool {
		told := n.Error() // with the address
		return u.isSick(n.Addr) && (!strings.Contains(told, cause) || !strings.Contains(err.Error(), told))
	})
}
