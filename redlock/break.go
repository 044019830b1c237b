package redlock

import (
	"context"
	"errors"

	"github.com/redquorum/go-redlock/internal/quorum"
	"github.com/redquorum/go-redlock/internal/scripts"
)

// Break takes a lock away from whoever has it: it deletes, on all nodes, exactly
// the tokens that the status shows, and announces the release. A holder that
// came later keeps the lock. It is for people who know that the holder is dead:
// one that is not finds out at its next renewal at the earliest, and works on
// under a lock that others may have until then.
//
// It waits for every node, as long as a node may take to answer, and returns
// ErrNoQuorum if so few confirmed that the lock may still be held, or if the
// status could not tell. ErrConfig is for a status without tokens. What is left
// on other nodes ends with its TTL, unless the holder, alive after all, renews
// it on a quorum.
func (l *Locker) Break(ctx context.Context, s *Status) error {
	if s == nil {
		return refuse("Break: no status")
	}
	t, err := l.begin(ctx, "break", []string{s.Name}, nil)
	if err != nil {
		return err
	}
	defer l.calls.Done()
	for i := range s.Nodes {
		if s.Nodes[i].Held && s.Nodes[i].Token == "" {
			return refuse("Break: the status does not have the tokens; they are not kept when one is encoded")
		}
	}
	holders := s.holders()
	if len(holders) == 0 && s.State != StateFree {
		return &QuorumError{
			Op: "break", Names: t.names, Quorum: quorum.Size(len(l.pools)),
			outcome: ErrNoQuorum, detail: "too few nodes said whether there is a holder",
		}
	}
	var all []error
	for token := range holders {
		all = append(all, l.breakToken(ctx, t, token))
	}
	return errors.Join(all...)
}

func (l *Locker) breakToken(ctx context.Context, t *target, token string) error {
	answers, err := l.survey(ctx, everybody(scripts.Release(t.keys, token, true)))
	if err != nil {
		return l.cutShort("break", t.names, err)
	}
	failed := &QuorumError{Op: "break", Names: t.names, Quorum: quorum.Size(len(answers)), outcome: ErrNoQuorum}
	for node, answer := range answers {
		err := answer.Err
		if err == nil {
			_, err = scripts.ParseRelease(answer.Reply, len(t.keys))
		}
		if err == nil {
			failed.Granted++
		} else {
			failed.Failed++
		}
		failed.Nodes = append(failed.Nodes, NodeError{Op: "break", Addr: l.pools[node].Name(), Err: err})
	}
	if failed.Granted < failed.Quorum {
		return failed
	}
	return nil
}
