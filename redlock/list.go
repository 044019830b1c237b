package redlock

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/redquorum/go-redlock/internal/quorum"
	"github.com/redquorum/go-redlock/internal/scripts"
)

// pageSize is about how many keys a node looks at for one page of a listing,
// and how many locks are inspected at once: a millisecond of the node's time.
const pageSize = 256

// List yields the locks whose name matches a glob pattern, as SCAN knows them:
// * is any text, ? any byte, [abc] [^abc] [a-c] one byte, and \ takes the next
// byte for itself. An empty pattern matches every name. The key prefix is put
// before it and stands for itself.
//
// It reads all nodes page by page, never blocking them for long (SCAN, not
// KEYS), and inspects each name once on all nodes. A lock that is held
// throughout comes exactly once; one that comes or goes meanwhile may be left
// out. Order means nothing. Memory holds the names yielded so far, about 100
// bytes each, and one page of statuses.
//
// Redis cannot tell a lock from any other short string: every key is listed that
// matches and holds a string of up to 256 bytes. Where other data shares the
// database, use a prefix or a pattern. The reserved space is left out, and so are
// the locks of [Locker.Check].
//
// A node that fails is yielded as a [NodeError] with a nil status, once, and
// the listing goes on without the names that only that node has, as long as a
// quorum is left; otherwise it ends with ErrNoQuorum. It ends with ErrClosed
// after Close, with the context's error if ctx ended, and with ErrConfig if the
// pattern is too long.
func (l *Locker) List(ctx context.Context, pattern string) iter.Seq2[*Status, error] {
	return func(yield func(*Status, error) bool) {
		pattern, err := checkPattern(pattern)
		if err != nil {
			yield(nil, err)
			return
		}
		g := &listing{
			locker:  l,
			pattern: pattern,
			glob:    escapeGlob(l.keyPrefix) + pattern,
			cursors: slices.Repeat([]string{scripts.FirstPage}, len(l.pools)),
			failed:  make([]error, len(l.pools)),
			seen:    make(map[string]struct{}),
		}
		for more := true; more; {
			more = g.page(ctx, yield)
		}
	}
}

// listing is one run of List. Every node is read at its own pace; what they show
// is brought together by name.
type listing struct {
	locker  *Locker
	pattern string
	glob    string
	cursors []string // where each node goes on; empty if it has no more
	failed  []error
	seen    map[string]struct{}
}

// page reads one page of every node, and yields the locks in it that have not
// been yielded. It returns false if that was the last.
func (g *listing) page(ctx context.Context, yield func(*Status, error) bool) bool {
	l := g.locker
	answers, err := l.survey(ctx, func(node int) *scripts.Call {
		if g.cursors[node] == "" {
			return nil
		}
		return scripts.Scan(g.cursors[node], g.glob, pageSize)
	})
	if err != nil {
		yield(nil, l.cutShort("list", []string{g.pattern}, err))
		return false
	}
	var fresh []string
	more := false
	for node, answer := range answers {
		if g.cursors[node] == "" {
			continue
		}
		cursor, keys, err := "", []string(nil), answer.Err
		if err == nil {
			cursor, keys, err = scripts.ParseScan(answer.Reply)
		}
		if err != nil {
			g.cursors[node], g.failed[node] = "", err
			if !yield(nil, fmt.Errorf("redlock: %w", &NodeError{Op: "list", Addr: l.pools[node].Name(), Err: err})) {
				return false
			}
			continue
		}
		if cursor == scripts.FirstPage {
			cursor = ""
		}
		g.cursors[node] = cursor
		more = more || cursor != ""
		fresh = g.fresh(fresh, keys)
	}
	if err := g.outage(); err != nil {
		yield(nil, err)
		return false
	}
	for names := range slices.Chunk(fresh, pageSize) {
		if !g.yield(ctx, names, yield) {
			return false
		}
	}
	return more
}

func checkPattern(pattern string) (string, error) {
	if len(pattern) > maxKey {
		return "", refuse("pattern %.20q…: longer than %d bytes", pattern, maxKey)
	}
	return cmp.Or(pattern, "*"), nil
}

// nameOf returns the name to which a key belongs, if it can be a lock's that
// matches the pattern. Nodes and publishers say what they like.
func (l *Locker) nameOf(key, pattern string) (name string, ok bool) {
	name, ok = strings.CutPrefix(key, l.keyPrefix)
	return name, ok && name != "" && len(key) <= maxKey && !strings.HasPrefix(key, reserved) &&
		!isProbe(name) && matchGlob(pattern, name)
}

// isProbe reports whether the name is one that Check makes.
func isProbe(name string) bool {
	random, ours := strings.CutPrefix(name, probePrefix)
	return ours && len(random) == probeChars && strings.Trim(random, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == ""
}

// fresh appends the names of those keys that were not seen before.
func (g *listing) fresh(names, keys []string) []string {
	for _, key := range keys {
		name, ours := g.locker.nameOf(key, g.pattern)
		if _, twice := g.seen[name]; !ours || twice {
			continue
		}
		g.seen[name] = struct{}{}
		names = append(names, name)
	}
	return names
}

func (g *listing) yield(ctx context.Context, names []string, yield func(*Status, error) bool) bool {
	keys := make([]string, len(names))
	for i, name := range names {
		keys[i] = g.locker.keyPrefix + name
	}
	all, err := g.locker.inspect(ctx, "list", names, keys)
	if err != nil {
		yield(nil, err)
		return false
	}
	for _, s := range all {
		// What nobody holds has ended meanwhile, or was never a lock.
		held := slices.ContainsFunc(s.Nodes, func(n NodeStatus) bool { return n.Held })
		if held && !yield(s, nil) {
			return false
		}
	}
	return true
}

// outage returns an error if the nodes that can be listed are no quorum.
func (g *listing) outage() error {
	n := len(g.failed)
	e := &QuorumError{Op: "list", Names: []string{g.pattern}, Quorum: quorum.Size(n), outcome: ErrNoQuorum}
	for node, err := range g.failed {
		if err != nil {
			e.Failed++
		}
		e.Nodes = append(e.Nodes, NodeError{Op: "list", Addr: g.locker.pools[node].Name(), Err: err})
	}
	if n-e.Failed >= e.Quorum {
		return nil
	}
	return e
}
