package redlock

import (
	"context"

	"github.com/redquorum/go-redlock/internal/scripts"
	"github.com/redquorum/go-redlock/pool"
)

// Inspect returns what all nodes say of the lock on name: who holds it, and for
// how long. It changes nothing, and waits for every node, as long as a node may
// take to answer ([WithNodeTimeout]).
//
// That nodes do not answer is no error: the status says what the rest amounts
// to, and of each node what is wrong with it. Inspect returns ErrConfig if the
// name makes no sense, ErrClosed after Close, and the context's error if ctx
// ended.
func (l *Locker) Inspect(ctx context.Context, name string) (*Status, error) {
	t, err := l.begin(ctx, "inspect", []string{name}, nil)
	if err != nil {
		return nil, err
	}
	defer l.calls.Done()
	all, err := l.inspect(ctx, "inspect", t.names, t.keys)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// inspect takes one look at several locks.
func (l *Locker) inspect(ctx context.Context, op string, names, keys []string) ([]*Status, error) {
	asked := l.clock.Elapsed()
	answers, err := l.survey(ctx, everybody(scripts.Inspect(keys)))
	if err != nil {
		return nil, l.cutShort(op, names, err)
	}
	answered := l.clock.Elapsed()
	all := make([]*Status, len(names))
	for i, name := range names {
		all[i] = &Status{Name: name, Nodes: make([]NodeStatus, len(l.pools)), asked: asked, answered: answered}
	}
	for node, answer := range answers {
		seen, err := readInspected(answer, len(keys))
		for i, s := range all {
			n := &s.Nodes[node]
			*n = NodeStatus{Addr: l.pools[node].Name(), Err: err}
			if err == nil {
				n.fill(&seen[i])
			}
		}
	}
	for _, s := range all {
		s.merge()
	}
	return all, nil
}

func readInspected(answer pool.Result, keys int) ([]scripts.Inspected, error) {
	if answer.Err != nil {
		return nil, answer.Err
	}
	return scripts.ParseInspect(answer.Reply, keys)
}

func (n *NodeStatus) fill(seen *scripts.Inspected) {
	n.FencingToken = uint64(seen.Fence)
	n.Err = seen.Err
	if seen.Held {
		n.Held, n.Token, n.Owner, n.TTL = true, seen.Value, ownerOf(seen.Value), seen.TTL
	}
}

// cutShort is the error of an operation whose context ended, if that is why it
// did.
func (l *Locker) cutShort(op string, names []string, err error) error {
	if err == ErrClosed { //nolint:errorlint // a context's cause may be an ErrClosed, too
		return err
	}
	return l.nothingSent(op, names, err)
}
