package pool

import "net"

const (
	MaxBulk    = maxBulk
	MaxArray   = maxArray
	MaxLine    = maxLine
	MaxDepth   = maxDepth
	MaxWaiting = maxWaiting
	Retire     = retire

	PingEvery      = pingEvery
	Linger         = linger
	ForbiddenPause = forbiddenPause
)

var (
	ParseIdentity = parseIdentity
	Normalise     = normalise
	ErrOversized  = errOversized
)

// Guard checks a stream that comes in chunks.
type Guard struct{ guard guard }

func (g *Guard) Check(p []byte) error { return g.guard.check(p) }

// NewWire returns what redigo reads from when this package dialled.
func NewWire(conn net.Conn) net.Conn { return &wire{Conn: conn} }

// Queue is the queue of calls.
type Queue struct{ queue }

func (q *Queue) Push(c *Call) { q.push(c) }
func (q *Queue) Pop() *Call   { return q.pop() }
func (q *Queue) Len() int     { return q.len() }
func (q *Queue) Cap() int     { return cap(q.calls) }

// Topics returns how many channels are known, and of how many a confirmation is
// outstanding.
func (p *Pool) Topics() (topics, unconfirmed int) {
	p.notices.mu.Lock()
	defer p.notices.mu.Unlock()
	return len(p.notices.topics), len(p.notices.unconfirmed)
}
