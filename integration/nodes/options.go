package nodes

import (
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
)

// An Option changes how the nodes of a cluster are configured. All nodes of a cluster are configured alike.
type Option func(*config)

// WithConfig adds a directive of redis.conf, as in WithConfig("maxmemory", "1mb"). The last of several with one
// name wins, as in Redis, those of the harness included.
func WithConfig(name string, args ...string) Option {
	return func(c *config) { c.directives = append(c.directives, append([]string{name}, args...)) }
}

// WithAOF makes the nodes write every command to the disk before they answer it, so that what they granted
// survives [Node.Stop] and [Node.Kill]. Embedded nodes imitate it.
func WithAOF() Option {
	return func(c *config) { c.aof = true }
}

// WithTLS makes the nodes speak TLS and nothing else. The certificates are made for the cluster;
// [Cluster.TLSConfig] is what a client needs. A client may present its certificate, and need not.
func WithTLS() Option {
	return func(c *config) { c.tls = true }
}

// WithACL closes the nodes to all but the given user, who may do what the rules say, as in
// WithACL("locker", "secret", "~lock:*", "+@all"). [Node.Do] goes in by another door.
func WithACL(user, password string, rules ...string) Option {
	return func(c *config) { c.user, c.password, c.rules = user, password, rules }
}

// WithUnixSocket makes the nodes listen on a Unix socket and nothing else. Only for [Process].
func WithUnixSocket() Option {
	return func(c *config) { c.unixSocket = true }
}

// WithIPv6 makes the nodes listen on the IPv6 loopback address. The test is skipped where there is none.
func WithIPv6() Option {
	return func(c *config) { c.ipv6 = true }
}

type config struct {
	directives     [][]string
	aof            bool
	tls            bool
	user, password string
	rules          []string
	unixSocket     bool
	ipv6           bool

	// authority made the certificates; nil without TLS.
	authority *authority
	// The harness's own door past the ACL; empty without one.
	adminUser, adminPassword string
}

func newConfig(opts []Option) (*config, error) {
	c := &config{}
	for _, opt := range opts {
		opt(c)
	}
	if c.user != "" {
		c.adminUser, c.adminPassword = "harness", rand.Text()
	}
	if c.tls {
		a, err := newAuthority()
		if err != nil {
			return nil, err
		}
		c.authority = a
	}
	return c, nil
}

// host is the address that nodes are reached at on this machine.
func (c *config) host() string {
	if c.ipv6 {
		return "::1"
	}
	return "127.0.0.1"
}

// unavailable says why this machine or this kind of node cannot honour the options, or nothing.
func (c *config) unavailable(kind Kind) string {
	if kind == Embedded && (len(c.directives) > 0 || c.tls || c.user != "" || c.unixSocket || c.ipv6) {
		return "embedded nodes can be configured in nothing but WithAOF"
	}
	if kind == Container && c.unixSocket {
		return "the Unix socket of a container is not on this machine"
	}
	if c.ipv6 {
		l, err := net.Listen("tcp", "[::1]:0")
		if err != nil {
			return "no IPv6 loopback here: " + err.Error()
		}
		_ = l.Close()
	}
	return ""
}

// A place is where a server finds its surroundings: on this machine for a process, within its own file system
// for a container.
type place struct {
	port           int
	bind           string // addresses, as the bind directive has them
	dir            string
	certs          string // the directory of the files of authority
	unixSocketPath string
}

// redisConf is the configuration file of one node. The harness's directives come first, so that the test's win.
func (c *config) redisConf(p place) string {
	var b strings.Builder
	directive := func(args ...string) {
		for i, arg := range args {
			if i > 0 {
				b.WriteByte(' ')
				arg = quote(arg)
			}
			b.WriteString(arg)
		}
		b.WriteByte('\n')
	}

	switch {
	case c.unixSocket:
		directive("port", "0")
		directive("unixsocket", p.unixSocketPath)
		directive("unixsocketperm", "700")
	case c.tls:
		directive("port", "0")
		directive("tls-port", fmt.Sprint(p.port))
		directive("tls-cert-file", p.certs+"/"+certFile)
		directive("tls-key-file", p.certs+"/"+keyFile)
		directive("tls-ca-cert-file", p.certs+"/"+caFile)
		directive("tls-auth-clients", "optional")
	default:
		directive("port", fmt.Sprint(p.port))
	}
	directive(append([]string{"bind"}, strings.Fields(p.bind)...)...)
	directive("protected-mode", "no")
	directive("daemonize", "no")
	directive("dir", p.dir)
	// A snapshot at shutdown would carry keys over a stop that is meant to forget them.
	directive("save", "")
	if c.aof {
		directive("appendonly", "yes")
		directive("appendfsync", "always")
	}
	if c.user != "" {
		if c.user != "default" {
			directive("user", "default", "off")
		}
		directive(append([]string{"user", c.user, "on", ">" + c.password}, c.rules...)...)
		directive("user", c.adminUser, "on", ">"+c.adminPassword, "~*", "&*", "+@all")
	}
	for _, d := range c.directives {
		directive(d...)
	}
	return b.String()
}

// quote makes one argument of whatever s holds, by the rules of redis.conf.
func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s) + `"`
}

// clientTLS is a copy, as callers like to change it.
func (c *config) clientTLS() *tls.Config {
	if c.authority == nil {
		return nil
	}
	return c.authority.client.Clone()
}
