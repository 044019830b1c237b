package pool

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/gomodule/redigo/redis"
)

// Causes that this package adds to those of redigo and the network.
var (
	// ErrTimeout is the cause when a node did not answer in time. Whatever
	// timer noticed it, it is this error and never context.DeadlineExceeded,
	// which is left to mean the caller's own context.
	ErrTimeout error = timeoutError{}
	// ErrClosed is the cause when the pool was closed.
	ErrClosed = errors.New("pool closed")
	// ErrOverloaded is the cause when too many calls are waiting for the node.
	ErrOverloaded = errors.New("too many calls are waiting for this node")
	// ErrRestarted is the cause when the restart guard keeps a node from
	// granting locks.
	ErrRestarted = errors.New("node restarted too recently to grant locks")
	// ErrUnwanted is the cause when the caller no longer wanted a call that had
	// not been sent yet.
	ErrUnwanted = errors.New("outcome was certain before the call was sent")
)

type timeoutError struct{}

func (timeoutError) Error() string   { return "no answer within the node timeout" }
func (timeoutError) Timeout() bool   { return true }
func (timeoutError) Temporary() bool { return true }

// errConnectTimeout is ErrTimeout before there was a connection.
var errConnectTimeout = fmt.Errorf("connecting: %w", ErrTimeout)

// normalise gives one failure one identity, whoever reported it: redigo shows
// the same deadline now as a context's error, now as an i/o timeout.
func normalise(err error) error {
	var network net.Error
	switch {
	case errors.Is(err, context.Canceled):
		// Of a context of the dialer's. To a caller it would mean theirs, so it
		// is not wrapped.
		return errors.New("cancelled by the dialer: " + err.Error())
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded),
		errors.As(err, &network) && network.Timeout():
		return ErrTimeout
	}
	return err
}

// A permanent failure is one that waiting does not mend: somebody has to
// change the configuration of this client or of that server.
var permanent = []string{
	"READONLY",    // a replica
	"NOAUTH",      // no password given
	"DENIED",      // protected mode
	"WRONGPASS",   // not this one
	"NOPERM",      // ACL
	"MOVED",       // a cluster node
	"CROSSSLOT",   // likewise
	"CLUSTERDOWN", // likewise
	"WRONGTYPE",   // the name is used by something else
	"ERR unknown command",
	"ERR invalid password",
	"ERR Client sent AUTH, but no password is set",
	"ERR AUTH <password> called without any password", // the same, since 6.0
	"ERR wrong number of arguments for 'auth'",        // a user, before 6.0
	"ERR DB index is out of range",
	"ERR invalid DB index",
	"ERR This instance has cluster support enabled",
	"ERR SELECT is not allowed in cluster mode",
	"ERR The user executing the script", // ACL, from within a script
	"ERR ACL failure in script",         // the same, since 7.2
}

// permanentAlerts are those of TLS by which a server refuses this client's
// certificate or what it offers (RFC 8446, section 6.2).
var permanentAlerts = []tls.AlertError{
	40,                     // handshake_failure
	42, 43, 44, 45, 46, 48, // the certificate: bad, unsupported, revoked, expired, unknown, or its CA
	49,       // access_denied
	70,       // protocol_version
	71,       // insufficient_security
	112,      // unrecognized_name
	116, 120, // certificate_required, no_application_protocol
}

// Permanent reports whether a failure will stay until somebody changes the
// configuration, so that trying again is pointless.
func Permanent(err error) bool {
	var (
		untrusted *tls.CertificateVerificationError
		plain     tls.RecordHeaderError // the other side does not speak TLS
		alert     tls.AlertError        // the other side refuses us
	)
	switch {
	case errors.As(err, &untrusted), errors.As(err, &plain):
		return true
	case errors.As(err, &alert):
		return slices.Contains(permanentAlerts, alert)
	}
	var answer redis.Error
	if !errors.As(err, &answer) {
		return false
	}
	text := fromScript(string(answer))
	for _, prefix := range permanent {
		if strings.HasPrefix(text, prefix) {
			return true
		}
	}
	return false
}

// fromScript takes the error of a command out of that of the script that called
// it, which before Redis 7 hides it:
// "ERR Error running script (call to f_…): @user_script:12: -READONLY You can't …".
func fromScript(answer string) string {
	if !strings.HasPrefix(answer, "ERR Error running script") {
		return answer
	}
	_, rest, _ := strings.Cut(answer, "script:") // the line number follows
	_, text, found := strings.Cut(rest, ": ")
	if !found {
		return answer
	}
	return strings.TrimPrefix(text, "-")
}

// hasCode reports whether the server answered with this error code.
func hasCode(err error, code string) bool {
	if err == nil {
		return false // the usual case, and errors.As would allocate
	}
	var answer redis.Error
	return errors.As(err, &answer) && strings.HasPrefix(string(answer), code)
}

// suspectError is what a call to a suspect node fails with.
func suspectError(cause error) error {
	return fmt.Errorf("node is suspect: %w", cause)
}
