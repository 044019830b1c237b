package redlockprom

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/go-redlock/pool"
)

// kind is why a node did not do what it was asked to.
type kind uint8

const (
	kindTimeout kind = iota
	kindUnreachable
	kindTLS
	kindQuarantined
	kindOverloaded
	kindReadonly
	kindOOM
	kindMisconf
	kindNoReplicas
	kindLoading
	kindBusy
	kindDenied
	kindCluster
	kindWrongType
	kindAnswer
	kindOther
)

// The last are other errors that the server answered, and the rest.
var kinds = [...]string{
	"timeout", "unreachable", "tls", "quarantined", "overloaded", "readonly", "oom", "misconf", "noreplicas", "loading", "busy",
	"denied", "cluster", "wrongtype", "answer", "other",
}

// codes are the beginnings of answers.
var codes = []struct {
	prefix string
	kind   kind
}{
	{"READONLY", kindReadonly},
	{"OOM", kindOOM},
	{"MISCONF", kindMisconf},
	{"NOREPLICAS", kindNoReplicas},
	{"LOADING", kindLoading},
	{"BUSY", kindBusy},
	{"WRONGTYPE", kindWrongType},
	{"NOAUTH", kindDenied},
	{"WRONGPASS", kindDenied},
	{"DENIED", kindDenied},
	{"NOPERM", kindDenied},
	{"ERR The user executing the script", kindDenied}, // ACL, from within a script
	{"ERR ACL failure in script", kindDenied},         // the same, since 7.2
	{"MOVED", kindCluster},
	{"CROSSSLOT", kindCluster},
	{"CLUSTERDOWN", kindCluster},
}

// disables reports whether a node with this error cannot grant anything. Of
// WRONGTYPE it is one name; what the connection has to say of the node other
// events tell.
func (k kind) disables() bool { return k >= kindReadonly && k <= kindAnswer && k != kindWrongType }

// kindOf sorts the cause of a vote.
func kindOf(err error) kind {
	var answer redis.Error
	var untrusted *tls.CertificateVerificationError
	var network net.Error
	switch {
	case errors.Is(err, pool.ErrTimeout):
		return kindTimeout
	case errors.Is(err, pool.ErrRestarted):
		return kindQuarantined
	case errors.Is(err, pool.ErrOverloaded):
		return kindOverloaded
	case errors.As(err, &answer):
		return kindOfAnswer(string(answer))
	case errors.As(err, &untrusted):
		return kindTLS
	case errors.As(err, &network), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		return kindUnreachable
	}
	return kindOther
}

func kindOfAnswer(answer string) kind {
	for _, code := range codes {
		// Before Redis 7, the error of a command in a script stands in the
		// middle: "ERR Error running script (…): @user_script:12: -READONLY You can't …".
		if strings.HasPrefix(answer, code.prefix) || strings.Contains(answer, ": -"+code.prefix+" ") {
			return code.kind
		}
	}
	return kindAnswer
}
