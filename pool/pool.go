// Package pool speaks to one node: its address, its redigo pool, one pipelined
// connection on it, and its health.
//
// Callers hand a [Call] to [Pool.Start] and continue; the answer comes to the
// call's [Receiver]. Calls share one connection, which keeps them in order: a
// release that was started after an acquire cannot overtake it. Whoever finds
// nobody writing writes what has queued up, in one system call; one goroutine
// per connection reads the answers. No goroutine, connection or timer is spent
// on a single call.
//
// A node that does not answer in time, or refuses connections, is suspect:
// calls to it fail at once, with the cause, while one goroutine looks for its
// return with increasing pauses.
//
// When a connection breaks, each call on it learns whether it was [Never] sent
// or whether its outcome is unknown ([Maybe]).
//
// Programs need [New], [Wrap], the options, [Pool.Stat] and [Pool.Close], and
// the errors, which are causes of those of package redlock. The rest is for
// that package, and can change without notice.
package pool

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"
)

// maxWaiting bounds the calls that wait for one node. With the node timeout it
// bounds memory, whatever the node does.
const maxWaiting = 1 << 14

// A caller writes by itself only while so little is on its way that the
// system's buffers surely take it without blocking, even if the node has
// stopped reading; beyond that a goroutine writes. Each small packet that is
// not acknowledged yet may cost a send buffer of 16 KiB some 1.3 KiB.
const (
	inlineCalls = 4
	inlineBytes = 8 << 10
)

// Pool is one node. All methods are safe for concurrent use.
type Pool struct {
	settings
	address Address
	name    string
	redis   *redis.Pool
	owned   bool // the redigo pool is ours to close

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // every goroutine and armed timer of the pool

	notices  notices
	patterns notices

	// identity is written with mu held, and read without.
	identity atomic.Pointer[Identity]

	mu       sync.Mutex // guards what follows; nothing is sent, dialled or delivered under it
	state    State
	cause    error   // why the node is suspect
	waiting  backlog // accepted, not yet taken by a writer
	link     *link   // while state is Up
	last     *link   // the link before, or the same
	watchdog *time.Timer
	watching bool          // the watchdog is armed
	due      time.Duration // what for
	connects int
	missed   bool // the last attempt to connect has failed

	changes changes // for the monitor

	answers   uint32        // counted to measure some
	roundTrip time.Duration // of a call, smoothed; 0: not known

	// The restart guard outlives links: a node that is cut off and reached
	// again stays in quarantine.
	runID       string // the last one known
	quarantined bool
	grants      time.Duration // when the quarantine ends
}

// State is what the pool thinks of its node.
type State uint8

// A pool begins as Idle and ends as Closed; in between its state follows the
// connection.
const (
	Idle       State = iota // never used, or an idle connection was given back
	Connecting              // calls wait for the connection
	Up                      // calls are sent
	Suspect                 // calls fail at once, a probe is under way
	Closed
)

func (s State) String() string {
	return [...]string{"idle", "connecting", "up", "suspect", "closed"}[s]
}

// New returns the pool of the node at address, in one of the forms that
// [ParseAddress] reads. It does not connect: that happens with the first call.
// The redigo pool behind it keeps no idle connections.
func New(address string, options ...Option) (*Pool, error) {
	a, err := ParseAddress(address)
	if err != nil {
		return nil, err
	}
	s, err := newSettings(options)
	if err != nil {
		return nil, err
	}
	if s.tls != nil && a.plaintext {
		return nil, fmt.Errorf("address %q asks for no encryption, but a TLS configuration is given", a)
	}
	p := newPool(a.String(), s)
	p.address = a
	p.owned = true
	p.redis = &redis.Pool{DialContext: p.dialRedis}
	return p, nil
}

// Wrap returns the pool of a node that the caller reaches through a redigo
// pool of their own. name identifies the node in errors. One connection is
// taken out of the redigo pool while there are calls, and given back when
// there have been none for a while, so that the pool's TestOnBorrow and
// IdleTimeout stay in force. While somebody listens ([Pool.Listen]) there is
// one more, and another while somebody follows ([Pool.Follow]), unless MaxActive
// is 1. The redigo pool remains the caller's to close.
//
// Its connections must implement [redis.ConnWithTimeout], as those that redigo
// dials do. A type of your own around one, for tracing for instance, has to pass
// DoWithTimeout and ReceiveWithTimeout on; without them the node is suspect, for
// "connection does not support ConnWithTimeout".
//
// How such a connection is dialled is not visible here, so options about
// dialling are refused, and replies are not checked for their size.
func Wrap(name string, p *redis.Pool, options ...Option) (*Pool, error) {
	if name == "" {
		return nil, errors.New("a node needs a name")
	}
	if p == nil {
		return nil, errors.New("nil redigo pool")
	}
	s, err := newSettings(options)
	if err != nil {
		return nil, err
	}
	if s.dialled {
		return nil, errors.New("options about dialling have no effect on a redigo pool that is given: set them there")
	}
	wrapped := newPool(name, s)
	wrapped.redis = p
	return wrapped, nil
}

func newPool(name string, s settings) *Pool {
	p := &Pool{settings: s, name: name}
	p.notices = notices{pool: p, unheard: "node cannot announce releases: waiting goes by timers"}
	p.patterns = notices{pool: p, patterns: true, unheard: "node cannot be followed: watching goes by timers"}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// Name returns the node's address without secrets, or the name given to
// [Wrap].
func (p *Pool) Name() string { return p.name }

// Endpoint returns what the node is dialled at, network and address; empty
// for a pool made by [Wrap].
func (p *Pool) Endpoint() string {
	if p.address.Endpoint == "" {
		return ""
	}
	return p.address.Network + ":" + p.address.Endpoint
}

// Timeout returns how long the node may take to answer a command.
func (p *Pool) Timeout() time.Duration { return p.timeout }

// Suspect reports whether calls to the node fail at once.
func (p *Pool) Suspect() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state == Suspect
}

// RoundTrip returns about how long the node takes to answer a call, or 0 if it
// has not answered any.
func (p *Pool) RoundTrip() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.roundTrip
}

// Identity returns what the node said of itself when the last connection was
// opened: the same pointer until the next one is. It is nil if none ever was.
func (p *Pool) Identity() *Identity { return p.identity.Load() }

// Stat is a snapshot of a pool.
type Stat struct {
	State    State // of the node
	Cause    error // of a suspect node
	Waiting  int   // calls not sent yet
	InFlight int   // calls sent and not answered
	Connects int   // connections that were established
	Identity Identity
}

// Stat returns a snapshot.
func (p *Pool) Stat() Stat {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := Stat{
		State:    p.state,
		Cause:    p.cause,
		Waiting:  p.waiting.len(),
		Connects: p.connects,
	}
	if id := p.identity.Load(); id != nil {
		s.Identity = *id
	}
	if p.link != nil {
		s.InFlight = p.link.flight.len()
	}
	return s
}

// Start sends the call, now or as soon as there is a connection, and returns
// without waiting for the answer. It never blocks on the network. If the call
// cannot be sent, its result is delivered before Start returns.
func (p *Pool) Start(c *Call) {
	c.deadline = c.Began + p.timeout
	p.mu.Lock()
	if err := p.admitLocked(c); err != nil {
		p.mu.Unlock()
		c.To.Deliver(c.Node, Result{Err: err})
		return
	}
	p.waiting.fresh.push(c)
	l := p.appointLocked()
	p.mu.Unlock()
	if l != nil {
		p.write(l, true)
	}
}

// admitLocked decides whether a call can be accepted now, and then sees to its
// being watched and to there being a connection.
func (p *Pool) admitLocked(c *Call) error {
	waiting := p.waiting.len()
	if p.link != nil {
		waiting += p.link.flight.len()
	}
	switch {
	case p.state == Closed:
		return ErrClosed
	case p.state == Suspect:
		return suspectError(p.cause)
	case waiting >= maxWaiting:
		return ErrOverloaded
	case !p.watchLocked(c):
		// The caller was late, not the node, which must not suffer for it.
		return ErrTimeout
	}
	if p.state == Idle {
		p.state = Connecting
		p.connectLocked(0)
	}
	return nil
}

// Close breaks off what is under way, ends every goroutine of the pool and
// waits for them; it must not be called by a [Receiver]. Calls that were not
// answered get [ErrClosed]. It is idempotent.
//
// With [Wrap] it may take as long as a node may take to answer, two seconds
// more if somebody listens ([Pool.Listen]), and as long as a Dial or
// TestOnBorrow of the redigo pool takes that knows no context.
func (p *Pool) Close() error {
	p.mu.Lock()
	if p.state == Closed {
		p.mu.Unlock()
		p.wg.Wait()
		return nil
	}
	p.state = Closed
	never := p.waiting.take()
	l := p.link
	if l != nil {
		p.link = nil
		l.dirty = l.flight.len() > 0
		l.failLocked(ErrClosed)
	}
	p.unwatchLocked()
	p.mu.Unlock()

	p.cancel()
	switch {
	case l == nil:
	case len(l.left) == 0:
		l.close()
	default:
		l.cut()
		l.deliverLeft()
	}
	deliver(never, Result{Err: ErrClosed})
	p.wg.Wait()
	if p.owned {
		return p.redis.Close()
	}
	return nil
}

func deliver(calls []*Call, result Result) {
	for _, c := range calls {
		c.To.Deliver(c.Node, result)
	}
}

// watchLocked makes sure that the watchdog looks when c must have been
// answered. Timeouts are all alike, so the oldest call is the first to be due,
// and a timer that is armed already is early enough. (A call that is sent again
// is due later than those behind it, by as long as they have waited.) It
// returns false if it sees that c is overdue: without a look at the clock only
// a call that is due before the timer can be.
func (p *Pool) watchLocked(c *Call) bool {
	if p.watching && c.deadline >= p.due {
		return true
	}
	now := p.clock.Elapsed()
	if c.deadline <= now {
		return false
	}
	if !p.watching {
		p.armLocked(now, c.deadline)
	}
	return true
}

func (p *Pool) armLocked(now, due time.Duration) {
	p.watching, p.due = true, due
	p.wg.Add(1)
	if p.watchdog == nil {
		p.watchdog = time.AfterFunc(due-now, p.bark)
	} else {
		p.watchdog.Reset(due - now)
	}
}

func (p *Pool) unwatchLocked() {
	if p.watching && p.watchdog.Stop() {
		p.watching = false
		p.wg.Done()
	}
}

// bark runs when a call may be overdue.
func (p *Pool) bark() {
	defer p.wg.Done()
	p.mu.Lock()
	p.watching = false
	now := p.clock.Elapsed()
	oldest := p.waiting.peek()
	if p.link != nil && p.link.flight.len() > 0 {
		oldest = p.link.flight.peek()
	}
	switch {
	case p.state == Closed || oldest == nil || p.watchLocked(oldest):
		p.mu.Unlock()
	case now-p.due > p.timeout/2:
		// It is us who are late: the process was stopped, say. The answers may
		// be there, to be read.
		p.armLocked(now, now+p.timeout/2)
		p.mu.Unlock()
	case p.link != nil:
		r := p.breakLocked(p.link, ErrTimeout)
		p.mu.Unlock()
		p.repair(r)
	default:
		// The connection is not there in time. The goroutine that tries to
		// make it continues, as the probe.
		never := p.suspectLocked(errConnectTimeout)
		p.mu.Unlock()
		p.report()
		deliver(never, Result{Err: suspectError(errConnectTimeout)})
	}
}
