package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
)

const (
	// pingEvery keeps a subscription proven: a connection on which not even a
	// PING is answered is replaced.
	pingEvery = 2 * time.Second
	// linger is how long the connection stays without any listener. It is not
	// pinged meanwhile: without a subscription the answer would be another.
	linger = pingEvery
	// forbiddenPause is how long a user without the channel is left alone, or one
	// without a connection to spare.
	forbiddenPause = time.Minute
)

// errOneConnection keeps a subscription from taking the place of the calls.
var errOneConnection = errors.New("the redigo pool has one connection only, which is for the calls")

// Listener hears what is published on a channel, or on all channels that match
// a pattern, of one node. Its methods are called by a goroutine of the pool,
// must not block, and must not call the pool.
//
// Pub/sub loses messages and anybody may publish: what is heard is a hint.
type Listener interface {
	// Subscribed is called when the node has confirmed that messages from now
	// on are heard: once, and again whenever the connection was replaced and
	// messages may have been missed. With an error it says that they cannot be
	// had for now.
	Subscribed(err error)
	// Heard is called for each message.
	Heard(channel, message string)
}

// notices is the one connection on which a pool subscribes, for all listeners;
// there is another for patterns, which a user who may hear of single channels
// may have to do without.
type notices struct {
	pool     *Pool
	patterns bool   // topics are patterns, not channels
	unheard  string // what follows from not being allowed to subscribe

	// telling is held, and taken before mu, while listeners are told of their
	// subscription: in the order in which things happened, or one that hears
	// might believe for good that it does not.
	telling sync.Mutex

	mu      sync.Mutex // guards what follows; no listener is called under it
	topics  map[string]*topic
	running bool          // there is a goroutine
	changed chan struct{} // capacity 1: the topics have changed
	lost    error         // why there is no connection
	said    bool          // the goroutine's: that the node forbids it has been logged
	// unconfirmed counts the SUBSCRIBEs of a channel that were sent on the
	// present connection and not confirmed: the confirmation of one that was
	// undone since must not pass for that of the last.
	unconfirmed map[string]int
}

// topic is one channel or pattern.
type topic struct {
	listeners []Listener // replaced, never changed in place
	sent      bool       // SUBSCRIBE has been sent on the present connection
	confirmed bool
}

// Listen makes the listener hear the channel, until [Pool.Unlisten]. It does
// not wait for the node. The listener must be comparable.
func (p *Pool) Listen(channel string, l Listener) { p.notices.listen(channel, l) }

// Unlisten ends what Listen began. The listener may still be called by what is
// under way.
func (p *Pool) Unlisten(channel string, l Listener) { p.notices.unlisten(channel, l) }

// Follow is [Pool.Listen] for all channels that match a glob pattern, on a
// connection of its own.
func (p *Pool) Follow(pattern string, l Listener) { p.patterns.listen(pattern, l) }

// Unfollow ends what Follow began, as [Pool.Unlisten] does.
func (p *Pool) Unfollow(pattern string, l Listener) { p.patterns.unlisten(pattern, l) }

func (n *notices) listen(channel string, l Listener) {
	n.telling.Lock()
	defer n.telling.Unlock()
	n.mu.Lock()
	if n.topics == nil {
		n.topics = make(map[string]*topic)
		n.changed = make(chan struct{}, 1)
	}
	t := n.topics[channel]
	if t == nil {
		t = &topic{}
		n.topics[channel] = t
	}
	t.listeners = append(slices.Clip(t.listeners), l)
	confirmed, lost := t.confirmed, n.lost
	started := n.running || n.start()
	n.running = started
	n.wakeLocked()
	n.mu.Unlock()
	switch {
	case !started:
		l.Subscribed(ErrClosed)
	case confirmed:
		l.Subscribed(nil)
	case lost != nil:
		l.Subscribed(lost)
	}
}

func (n *notices) unlisten(channel string, l Listener) {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := n.topics[channel]
	if t == nil {
		return
	}
	if i := slices.Index(t.listeners, l); i >= 0 {
		t.listeners = slices.Delete(slices.Clone(t.listeners), i, i+1)
	}
	if len(t.listeners) == 0 && !t.sent {
		delete(n.topics, channel) // or they would pile up while there is no connection
	}
	n.wakeLocked()
}

func (n *notices) wakeLocked() {
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

// start starts the goroutine that keeps the subscriptions; it returns false if
// the pool is closed.
func (n *notices) start() bool {
	p := n.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == Closed {
		return false
	}
	p.wg.Go(n.keep)
	return true
}

// keep holds a connection for as long as anybody listens.
func (n *notices) keep() {
	p := n.pool
	next := minPause
	for {
		began := p.clock.Elapsed()
		err := n.attend()
		if n.ended(err) || p.ctx.Err() != nil {
			return
		}
		if err == nil {
			continue // somebody has begun to listen in the last moment
		}
		if p.clock.Elapsed()-began > pingEvery {
			next = minPause // it had worked for a while
		}
		pause := next
		next = min(2*next, maxPause)
		if hasCode(err, "NOPERM") || errors.Is(err, errOneConnection) {
			pause = forbiddenPause
			if !n.said {
				p.logger.Warn(n.unheard, "node", p.name, "error", err)
			}
			n.said = true
		}
		if !p.sleep(pause) || n.idle(err) {
			return
		}
	}
}

// ended records why the connection ended and tells the listeners. It returns
// true if nobody listens: the goroutine must then end, and it counts as ended.
func (n *notices) ended(err error) bool {
	n.telling.Lock()
	defer n.telling.Unlock()
	n.mu.Lock()
	var all []Listener
	for _, t := range n.topics {
		t.sent, t.confirmed = false, false
		if err != nil {
			all = append(all, t.listeners...)
		}
	}
	n.unconfirmed = nil
	idle := n.idleLocked(err)
	n.mu.Unlock()
	for _, l := range all {
		l.Subscribed(err)
	}
	return idle
}

// idle is ended for when there has been no connection meanwhile.
func (n *notices) idle(err error) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.idleLocked(err)
}

func (n *notices) idleLocked(err error) bool {
	for channel, t := range n.topics {
		if len(t.listeners) == 0 {
			delete(n.topics, channel)
		}
	}
	idle := len(n.topics) == 0
	n.lost = err
	if idle {
		n.running, n.lost = false, nil
	}
	return idle
}

// attend subscribes on a new connection and stays until it breaks, or until
// there has been nobody to listen for a while.
func (n *notices) attend() error {
	p := n.pool
	if !p.owned && p.redis.MaxActive == 1 {
		return errOneConnection
	}
	l, err := p.dialLink()
	if err != nil {
		return err
	}
	var reader sync.WaitGroup
	// A node that reads nothing can keep us in a write.
	uncut := context.AfterFunc(p.ctx, l.cut)
	defer func() {
		uncut()
		reader.Wait()
		l.dirty = true // what it is subscribed to is of no use to anybody
		l.hangUp()
	}()
	conn := redis.PubSubConn{Conn: l.conn}
	broken, over := make(chan error, 1), make(chan struct{})
	reader.Go(func() { broken <- n.hear(conn, pingEvery+p.timeout, over) })
	defer func() {
		close(over)
		if l.wire == nil {
			_ = conn.Ping("") // wakes the reader, as nothing can be cut
		}
		l.cut()
	}()

	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	idle := time.NewTimer(linger)
	defer idle.Stop()
	for before := false; ; {
		subscribe, unsubscribe, wanted := n.changes()
		if wanted || before {
			idle.Reset(linger)
		}
		before = wanted
		if err := n.change(conn, subscribe, unsubscribe); err != nil {
			return normalise(err)
		}
		select {
		case <-n.changed:
		case <-ping.C:
			if !wanted {
				continue
			}
			if err := conn.Ping(""); err != nil {
				return normalise(err)
			}
		case <-idle.C:
			if !wanted {
				return nil
			}
		case err := <-broken:
			return normalise(err)
		case <-p.ctx.Done():
			return ErrClosed
		}
	}
}

// changes returns what must be said to the node.
func (n *notices) changes() (subscribe, unsubscribe []any, wanted bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for channel, t := range n.topics {
		switch {
		case len(t.listeners) == 0:
			if t.sent {
				unsubscribe = append(unsubscribe, channel)
			}
			delete(n.topics, channel)
		case !t.sent:
			t.sent = true
			subscribe = append(subscribe, channel)
			if n.unconfirmed == nil {
				n.unconfirmed = make(map[string]int)
			}
			n.unconfirmed[channel]++
		}
	}
	return subscribe, unsubscribe, len(n.topics) > 0
}

func (n *notices) change(conn redis.PubSubConn, subscribe, unsubscribe []any) error {
	begin, end := conn.Subscribe, conn.Unsubscribe
	if n.patterns {
		begin, end = conn.PSubscribe, conn.PUnsubscribe
	}
	if len(unsubscribe) > 0 {
		if err := end(unsubscribe...); err != nil {
			return err
		}
	}
	if len(subscribe) > 0 {
		return begin(subscribe...)
	}
	return nil
}

// hear reads until the connection breaks, or until it is over and something
// arrives.
func (n *notices) hear(conn redis.PubSubConn, timeout time.Duration, over <-chan struct{}) error {
	for {
		message := receiveMessage(conn, timeout)
		select {
		case <-over:
			return ErrClosed
		default:
		}
		switch m := message.(type) {
		case error:
			return m
		case redis.Subscription:
			if m.Kind == "subscribe" || m.Kind == "psubscribe" {
				n.confirm(m.Channel)
			}
		case redis.Message:
			topic := m.Channel
			if n.patterns {
				topic = m.Pattern
			}
			for _, l := range n.listeners(topic) {
				l.Heard(m.Channel, string(m.Data))
			}
		}
	}
}

// receiveMessage reads one message, or an error. As with [link.receive], redigo
// may panic where no wire guards the stream.
func receiveMessage(conn redis.PubSubConn, timeout time.Duration) (message any) {
	defer func() {
		if r := recover(); r != nil {
			message = fmt.Errorf("message cannot be read: %v", r)
		}
	}()
	return conn.ReceiveWithTimeout(timeout)
}

// confirm takes the node's answer to a SUBSCRIBE.
func (n *notices) confirm(channel string) {
	n.telling.Lock()
	defer n.telling.Unlock()
	n.mu.Lock()
	n.lost = nil
	pending := n.unconfirmed[channel]
	switch {
	case pending > 1:
		n.unconfirmed[channel]--
	case pending == 1:
		delete(n.unconfirmed, channel)
		if t := n.topics[channel]; t != nil {
			t.confirmed = true
		}
	}
	n.mu.Unlock()
	if pending != 1 {
		return
	}
	for _, l := range n.listeners(channel) {
		l.Subscribed(nil)
	}
}

func (n *notices) listeners(channel string) []Listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	if t := n.topics[channel]; t != nil {
		return t.listeners
	}
	return nil
}
