package demo

import (
	"context"
	"net"
	"time"

	"github.com/redquorum/go-redlock/cmd/redlock/internal/term"
)

// What the tests need to reach.
var (
	Bar       = bar
	LabelsFor = labelsFor
	Show      = show
	Minority  = minority
	WaitsOf   = waitsOf
)

// Broken returns the options with a lock that excludes nobody.
func (o Options) Broken() Options {
	o.broken = true
	return o
}

// Faulty is what both kinds of nodes can be made to do.
type Faulty = node

// Proxy gives the tests a proxy.
type Proxy struct{ *proxy }

func NewProxy(network, target string) (Proxy, error) {
	p, err := newProxy(network, target)
	return Proxy{p}, err
}

func (p Proxy) Dial(ctx context.Context) (net.Conn, error) { return p.dial(ctx) }
func (p Proxy) Close()                                     { p.close() }

// Embedded gives the tests an embedded node, and the way to it.
func Embedded() (_ Faulty, dial func(context.Context) (net.Conn, error), stop func(), err error) {
	c, err := newEmbedded(1)
	if err != nil {
		return nil, nil, nil, err
	}
	return c.nodes[0], func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", c.addrs[0])
	}, c.close, nil
}

// Row renders a row of the timeline.
func Row(paint term.Painter, labels []string, nodes int, from, until time.Duration, holds []Hold, outages []Outage, texts ...string) string {
	s := slice{from: from, until: until, holds: holds, outages: outages}
	for _, text := range texts {
		s.events = append(s.events, event{at: from, text: text})
	}
	return renderer{paint: paint, labels: labels, nodes: nodes}.row(s)
}

// Columns renders the heading of the timeline.
func Columns(labels []string, nodes int) string {
	return renderer{labels: labels, nodes: nodes}.columns()
}

// Summary renders the table at the end.
func Summary(labels []string, ended time.Duration, holds []Hold, waits [][]time.Duration, outages []Outage, failures map[string]int) string {
	h := history{ended: ended, holds: sorted(holds), waits: waits, outages: outages, failures: make(map[failure]int)}
	for kind, n := range failures {
		h.failures[failure{"acquire", kind}] = n
	}
	return renderer{labels: labels, nodes: 5}.summary(h)
}

// Evidence renders the verdict.
func Evidence(paint term.Painter, labels []string, v Verdict, left int) string {
	return renderer{paint: paint, labels: labels}.verdict(v, left)
}

// Kinds says what kinds of errors err is.
func Kinds(err error) []string {
	var all []string
	for _, f := range kinds("acquire", err) {
		all = append(all, f.kind)
	}
	return all
}
