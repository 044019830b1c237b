package pool

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const defaultPort = "6379"

// Address says where a node is and as whom to speak to it.
type Address struct {
	// Network is "tcp" or "unix".
	Network string
	// Endpoint is host:port, or the path of the socket.
	Endpoint string
	// User and Password are what AUTH gets; without Password there is no AUTH.
	User, Password string
	// Database is the number to SELECT.
	Database int
	// TLS asks for an encrypted connection.
	TLS bool

	// plaintext says that the address asked for no encryption, by its scheme.
	plaintext bool
}

// String returns the address as a URL, or as plain host:port where that says
// it all. It never shows the password.
func (a Address) String() string {
	scheme := "redis"
	switch {
	case a.Network == "unix":
		scheme = "unix"
	case a.TLS:
		scheme = "rediss"
	case a.User == "" && a.Password == "" && a.Database == 0:
		return a.Endpoint
	}
	u := url.URL{Scheme: scheme}
	if a.User != "" {
		u.User = url.User(a.User)
	}
	if a.Network == "unix" {
		u.Path = a.Endpoint
		if a.Database != 0 {
			u.RawQuery = "db=" + strconv.Itoa(a.Database)
		}
		return u.String()
	}
	u.Host = a.Endpoint
	if a.Database != 0 {
		u.Path = "/" + strconv.Itoa(a.Database)
	}
	return u.String()
}

// ParseAddress reads "host:port", "redis://[[user]:password@]host[:port][/database]",
// the same with rediss:// for TLS, or "unix://[[user]:password@]/path[?db=database]".
// An IPv6 host stands in brackets. The port of a URL defaults to 6379.
//
// A URL with user info but no colon in it, redis://secret@host, carries a
// password, as redis-cli reads it. Errors never repeat user info, nor a query.
func ParseAddress(s string) (Address, error) {
	if !strings.Contains(s, "://") {
		endpoint, err := endpoint(s, "")
		if err != nil {
			return Address{}, fmt.Errorf("address %q: %w", withoutSecrets(s), err)
		}
		return Address{Network: "tcp", Endpoint: endpoint}, nil
	}
	a, err := parseURL(s)
	if err != nil {
		return Address{}, fmt.Errorf("address %q: %w", withoutSecrets(s), err)
	}
	return a, nil
}

func parseURL(s string) (Address, error) {
	u, err := url.Parse(s)
	if err != nil {
		// The reason may quote any part of the URL, and what is malformed is
		// often a password with a reserved character in it.
		return Address{}, errors.New("not a URL; a reserved character in a password must be percent-encoded")
	}
	if u.Fragment != "" {
		return Address{}, errors.New("a fragment (#) means nothing here; write it as %23 inside a password")
	}
	a := Address{Network: "tcp"}
	a.User, a.Password = userInfo(u.User)
	if a.User != "" && a.Password == "" {
		return Address{}, errors.New("a user without a password, which AUTH needs")
	}
	switch u.Scheme {
	case "unix":
		return a.unix(u)
	case "rediss":
		a.TLS = true
	case "redis":
		a.plaintext = true
	default:
		return Address{}, errors.New("unknown scheme: want redis, rediss or unix")
	}
	if u.RawQuery != "" {
		return Address{}, errors.New("a query (?) means nothing here")
	}
	if a.Endpoint, err = endpoint(u.Host, defaultPort); err != nil {
		return Address{}, err
	}
	a.Database, err = database(strings.TrimPrefix(u.Path, "/"))
	return a, err
}

func (a Address) unix(u *url.URL) (Address, error) {
	if u.Host != "" {
		return Address{}, errors.New("a unix socket has no host: want unix:///path")
	}
	if u.Path == "" || u.Path == "/" {
		return Address{}, errors.New("no path of a socket")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return Address{}, errors.New("malformed query")
	}
	for key, values := range query {
		if key != "db" || len(values) != 1 {
			return Address{}, errors.New("the query of a unix address may hold db=N and nothing else")
		}
	}
	a.Network, a.Endpoint = "unix", u.Path
	a.Database, err = database(query.Get("db"))
	return a, err
}

func userInfo(info *url.Userinfo) (user, password string) {
	if info == nil {
		return "", ""
	}
	if password, set := info.Password(); set {
		return info.Username(), password
	}
	return "", info.Username()
}

func endpoint(s, port string) (string, error) {
	host, given, err := net.SplitHostPort(s)
	if err != nil {
		var bad *net.AddrError
		missing := errors.As(err, &bad) && bad.Err == "missing port in address"
		if !missing || port == "" {
			if bad != nil {
				return "", errors.New(bad.Err)
			}
			return "", err
		}
		host, given = s, port
		if inner, ok := strings.CutPrefix(s, "["); ok {
			host = strings.TrimSuffix(inner, "]")
		}
	}
	if host == "" {
		return "", errors.New("missing host")
	}
	if strings.ContainsAny(host, "/@?#[]\\,\"<>") || strings.ContainsFunc(host, unprintable) {
		return "", errors.New("malformed host")
	}
	if n, err := strconv.ParseUint(given, 10, 16); err != nil || n == 0 {
		return "", errors.New("the port is not a number from 1 to 65535")
	}
	name, zone, zoned := strings.Cut(host, "%")
	host = strings.ToLower(name)
	if zoned {
		host += "%" + zone // the name of a network interface
	}
	return net.JoinHostPort(host, strings.TrimLeft(given, "0")), nil
}

func unprintable(r rune) bool {
	return r == utf8.RuneError || !unicode.IsGraphic(r) || unicode.IsSpace(r)
}

func database(s string) (int, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		return 0, errors.New("the database is not a number from 0 to 65535")
	}
	return int(n), nil
}

// withoutSecrets cuts out all that may hold a password: everything between the
// scheme and the last @, and, for the ways of other clients to write one, a
// query, a fragment and what follows a comma.
func withoutSecrets(s string) string {
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok || strings.ContainsAny(scheme, ":@/?#,") {
		scheme, rest = "", s
	} else {
		scheme += "://"
	}
	at, tail := strings.LastIndexByte(rest, '@'), strings.IndexAny(rest, "?#,")
	switch {
	case tail >= 0 && tail < at:
		return scheme + "…" // a password with ? in it, or a query with @ in it
	case tail >= 0:
		rest = rest[:tail+1] + "…"
	}
	if at >= 0 {
		rest = "…" + rest[at:]
	}
	return scheme + rest
}
