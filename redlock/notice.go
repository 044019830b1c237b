package redlock

import (
	"fmt"
	"time"
)

// NoticeKind says what has become of a lock.
type NoticeKind uint8

// The kinds.
const (
	// NoticeFound is a lock that was held already when the watching began.
	NoticeFound NoticeKind = iota + 1
	// NoticeAcquired is a lock with a new holder.
	NoticeAcquired
	// NoticeRenewed is a lock whose TTL began anew.
	NoticeRenewed
	// NoticeReleased is a lock whose holder gave it up, or that was broken: it
	// was announced, or the keys were gone before their TTL was over. One that
	// was released within its minimum hold ([WithMinHold]) still has a TTL, and
	// nothing more is said of it when that is over.
	NoticeReleased
	// NoticeExpired is a lock that ended with its TTL: the holder has died, or
	// works on without it.
	NoticeExpired
	// NoticeStuck is a lock that has been held for longer than
	// [WithStuckAfter]. It comes once for each holder.
	NoticeStuck
	// NoticeSplit and NoticeLostMajority are states of that name that did not
	// pass within two node timeouts. Released or expired follows when they do.
	NoticeSplit
	NoticeLostMajority
	// NoticeBlind says that too few nodes can be listed, and why; nothing is
	// known until NoticeSighted. They have no name.
	NoticeBlind
	NoticeSighted
)

func (k NoticeKind) String() string {
	return word(k, "nothing", "found", "acquired", "renewed", "released", "expired", "stuck", "split", "lost majority", "blind", "sighted")
}

// MarshalText encodes the kind as its name.
func (k NoticeKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Notice is what [Locker.Watch] saw.
type Notice struct {
	Kind  NoticeKind // what has happened
	At    time.Time  // by this machine's wall clock, when it was seen
	Name  string
	Owner string        // the label in the holder's token; of the one before, if the lock has ended
	TTL   time.Duration // what is left of it
	Held  time.Duration // how long the holder has been seen to have it
	// Longer says that nobody saw it being acquired: before the watching began, or
	// while that was blind. So it has been held for longer than Held.
	Longer bool
	// Status is the look at the nodes behind it; nil if there is none.
	Status *Status
	Err    error // for NoticeBlind
}

// String returns one line, without a token.
func (n Notice) String() string {
	switch n.Kind {
	case NoticeBlind:
		return fmt.Sprintf("%v: %v", n.Kind, n.Err)
	case NoticeSighted:
		return n.Kind.String()
	default:
		longer := ""
		if n.Longer {
			longer = " or longer"
		}
		return fmt.Sprintf("%v: %q, owner %q, held for %v%s, TTL %v", n.Kind, n.Name, n.Owner, n.Held, longer, n.TTL)
	}
}

// WatchOption is what [Locker.Watch] takes.
type WatchOption func(*watchConfig)

type watchConfig struct {
	every, stuck time.Duration
}

// DefaultLookEvery is how often [Locker.Watch] looks at all locks, unless
// [WithLookEvery] says otherwise.
const DefaultLookEvery = 2 * time.Second

// WithLookEvery sets how often all locks are listed, and so how late a change is
// seen that was not announced. Default 2 s. It must be positive. Each listing
// costs what [Locker.List] does.
func WithLookEvery(d time.Duration) WatchOption {
	return func(c *watchConfig) { c.every = d }
}

// WithStuckAfter sets for how long a lock may be held, from when it was first
// seen, before there is a [NoticeStuck]. Default 0: for ever. Not negative.
func WithStuckAfter(d time.Duration) WatchOption {
	return func(c *watchConfig) { c.stuck = d }
}

func newWatchConfig(opts []WatchOption) (watchConfig, error) {
	c := watchConfig{every: DefaultLookEvery}
	for i, o := range opts {
		if o == nil {
			return c, refuse("option %d is nil", i+1)
		}
		o(&c)
	}
	switch {
	case c.every <= 0:
		return c, refuse("WithLookEvery(%v): not positive", c.every)
	case c.stuck < 0:
		return c, refuse("WithStuckAfter(%v): negative", c.stuck)
	}
	return c, nil
}
