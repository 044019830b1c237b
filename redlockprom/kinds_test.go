package redlockprom_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"

	"github.com/redquorum/go-redlock/pool"
	"github.com/redquorum/go-redlock/redlock"
)

func TestEveryCauseHasItsKind(t *testing.T) {
	for _, example := range []struct {
		err  error
		kind string
	}{
		{pool.ErrTimeout, "timeout"},
		{fmt.Errorf("node is suspect: %w", pool.ErrTimeout), "timeout"},
		{pool.ErrRestarted, "quarantined"},
		{pool.ErrOverloaded, "overloaded"},
		{io.EOF, "unreachable"},
		{&net.OpError{Op: "dial", Err: errors.New("connection refused")}, "unreachable"},
		{fmt.Errorf("TLS: %w", &tls.CertificateVerificationError{Err: errors.New("expired")}), "tls"},
		{redis.Error("READONLY You can't write"), "readonly"},
		{redis.Error("OOM command not allowed"), "oom"},
		{redis.Error("MISCONF Redis is configured"), "misconf"},
		{redis.Error("NOREPLICAS Not enough good replicas"), "noreplicas"},
		{redis.Error("LOADING Redis is loading"), "loading"},
		{redis.Error("BUSY Redis is busy"), "busy"},
		{redis.Error("WRONGTYPE Operation against"), "wrongtype"},
		{redis.Error("NOAUTH Authentication required."), "denied"},
		{redis.Error("WRONGPASS invalid username"), "denied"},
		{redis.Error("NOPERM this user"), "denied"},
		{redis.Error("ERR ACL failure in script: no"), "denied"},
		{redis.Error("MOVED 1234 10.0.0.1:6379"), "cluster"},
		{redis.Error("ERR Error running script (call to f_1): @user_script:12: -READONLY You can't"), "readonly"},
		{redis.Error("ERR max number of clients reached"), "answer"},
		{errors.New("what else"), "other"},
	} {
		c, read := newCollector(t)
		c.Observe(redlock.Renewed{Names: []string{"a"}, Votes: []redlock.NodeVote{{Node: "n", Vote: redlock.VoteUnknown, Err: example.err}}})
		assert.InDelta(t, 1, read.value("redlock_node_errors_total{kind="+example.kind+",node=n}"), 0, "%v", example.err)
	}
}
