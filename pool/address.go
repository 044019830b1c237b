package pool

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
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

// ParseAddress reads "host:port", "redis://[user[:password]@]host[:port][/database]",
// the same with rediss:// for TLS, or "unix://[user[:password]@]/path[?db=database]".
// An IPv6 host stands in brackets. The port of a URL defaults to 6379.
//
// A URL with user info but no colon in it, redis://secret@host, carries a
// password, as redis-cli reads it. Errors never repeat user info.
func ParseAddress(s string) (Address, error) {
	if !strings.Contains(s, "://") {
		endpoint, err := endpoint(s, "")
		if err != nil {
			return Address{}, fmt.Errorf("address %q: %w", withoutUserInfo(s), err)
		}
		return Address{Network: "tcp", Endpoint: endpoint}, nil
	}
	a, err := parseURL(s)
	if err != nil {
		return Address{}, fmt.Errorf("address %q: %w", withoutUserInfo(s), err)
	}
	return a, nil
}

func parseURL(s string) (Address, error) {
	u, err := url.Parse(s)
	if err != nil {
		var bad *url.Error
		if errors.As(err, &bad) {
			err = bad.Err // without the URL, which may hold a password
		}
		return Address{}, fmt.Errorf("not a URL: %s", redact(err.Error(), s))
	}
	if u.Fragment != "" {
		return Address{}, errors.New("a fragment (#) means nothing here; write it as %23 inside a password")
	}
	a := Address{Network: "tcp"}
	a.User, a.Password = userInfo(u.User)
	switch u.Scheme {
	case "unix":
		return a.unix(u)
	case "rediss":
		a.TLS = true
	case "redis":
		a.plaintext = true
	default:
		return Address{}, fmt.Errorf("unknown scheme %q: want redis, rediss or unix", u.Scheme)
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
		host, given = strings.Trim(s, "[]"), port
	}
	if host == "" {
		return "", errors.New("missing host")
	}
	if strings.ContainsAny(host, " \t\r\n/@?#[]\\") {
		return "", errors.New("malformed host")
	}
	if n, err := strconv.ParseUint(given, 10, 16); err != nil || n == 0 {
		return "", fmt.Errorf("port %q is not a number from 1 to 65535", given)
	}
	return net.JoinHostPort(strings.ToLower(host), strings.TrimLeft(given, "0")), nil
}

func database(s string) (int, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("database %q is not a number from 0 to 65535", s)
	}
	return int(n), nil
}

// withoutUserInfo cuts out all that may hold a password: everything between
// the scheme and the last @.
func withoutUserInfo(s string) string {
	at := strings.LastIndexByte(s, '@')
	if at < 0 {
		return s
	}
	scheme := ""
	if i := strings.Index(s, "://"); i >= 0 && i < at {
		scheme = s[:i+len("://")]
	}
	return scheme + "…" + s[at:]
}

// redact drops the detail of a URL error where the URL has user info: the
// detail may quote it.
func redact(detail, s string) string {
	if strings.ContainsRune(s, '@') {
		return "malformed"
	}
	return detail
}
