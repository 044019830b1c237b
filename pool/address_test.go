package pool_test

import (
	"crypto/tls"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/pool"
)

func TestAddressesAreRead(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		address pool.Address
		name    string
	}{
		"localhost:6379":                 {pool.Address{Network: "tcp", Endpoint: "localhost:6379"}, "localhost:6379"},
		"LocalHost:06379":                {pool.Address{Network: "tcp", Endpoint: "localhost:6379"}, "localhost:6379"},
		"10.0.0.1:1":                     {pool.Address{Network: "tcp", Endpoint: "10.0.0.1:1"}, "10.0.0.1:1"},
		"[::1]:6379":                     {pool.Address{Network: "tcp", Endpoint: "[::1]:6379"}, "[::1]:6379"},
		"[FE80::1%Eth0]:6379":            {pool.Address{Network: "tcp", Endpoint: "[fe80::1%Eth0]:6379"}, "[fe80::1%Eth0]:6379"},
		"redis://host":                   {pool.Address{Network: "tcp", Endpoint: "host:6379"}, "host:6379"},
		"REDIS://host:7000/":             {pool.Address{Network: "tcp", Endpoint: "host:7000"}, "host:7000"},
		"redis://[::1]":                  {pool.Address{Network: "tcp", Endpoint: "[::1]:6379"}, "[::1]:6379"},
		"redis://host/3":                 {pool.Address{Network: "tcp", Endpoint: "host:6379", Database: 3}, "redis://host:6379/3"},
		"redis://secret@host":            {pool.Address{Network: "tcp", Endpoint: "host:6379", Password: "secret"}, "redis://host:6379"},
		"redis://:secret@host":           {pool.Address{Network: "tcp", Endpoint: "host:6379", Password: "secret"}, "redis://host:6379"},
		"redis://bob:secret@host:1/2":    {pool.Address{Network: "tcp", Endpoint: "host:1", User: "bob", Password: "secret", Database: 2}, "redis://bob@host:1/2"},
		"redis://b%40b:p%2F%23%3A@host":  {pool.Address{Network: "tcp", Endpoint: "host:6379", User: "b@b", Password: "p/#:"}, "redis://b%40b@host:6379"},
		"redis://:@host":                 {pool.Address{Network: "tcp", Endpoint: "host:6379"}, "host:6379"},
		"rediss://host":                  {pool.Address{Network: "tcp", Endpoint: "host:6379", TLS: true}, "rediss://host:6379"},
		"rediss://bob:secret@[::1]:1/2":  {pool.Address{Network: "tcp", Endpoint: "[::1]:1", User: "bob", Password: "secret", Database: 2, TLS: true}, "rediss://bob@[::1]:1/2"},
		"rediss://[fe80::1%25eth0]":      {pool.Address{Network: "tcp", Endpoint: "[fe80::1%eth0]:6379", TLS: true}, "rediss://[fe80::1%25eth0]:6379"},
		"unix:///run/redis.sock":         {pool.Address{Network: "unix", Endpoint: "/run/redis.sock"}, "unix:///run/redis.sock"},
		"unix:///run/A%20b@c.sock?db=5":  {pool.Address{Network: "unix", Endpoint: "/run/A b@c.sock", Database: 5}, "unix:///run/A%20b@c.sock?db=5"},
		"unix://bob:secret@/r.sock?db=1": {pool.Address{Network: "unix", Endpoint: "/r.sock", User: "bob", Password: "secret", Database: 1}, "unix://bob@/r.sock?db=1"},
		"unix://secret@/r.sock":          {pool.Address{Network: "unix", Endpoint: "/r.sock", Password: "secret"}, "unix:///r.sock"},
	} {
		got, err := pool.ParseAddress(text)
		require.NoError(t, err, text)
		assert.Equal(t, want.name, got.String(), text)
		assert.EqualExportedValues(t, want.address, got, text)
	}
}

func TestBadAddressesAreNamedWithoutTheirSecrets(t *testing.T) {
	t.Parallel()
	for text, named := range map[string]string{
		"":                          `address "":`,
		"host":                      `"host"`,
		":6379":                     `":6379"`,
		"host:":                     `"host:"`,
		"host:0":                    `"host:0"`,
		"host:65536":                `"host:65536"`,
		"host:+1":                   `"host:+1"`,
		"::1:6379":                  `"::1:6379"`,
		"a b:1":                     `"a b:1"`,
		"http://host":               `"http://host"`,
		"redis://":                  `"redis://"`,
		"redis://host:x":            `"redis://host:x"`,
		"redis://host/x":            `"redis://host/x"`,
		"redis://host/-1":           `"redis://host/-1"`,
		"redis://host/1/2":          `"redis://host/1/2"`,
		"redis://host/65536":        `"redis://host/65536"`,
		"redis://host]":             `"redis://host]"`,
		"redis:///1":                `"redis:///1"`,
		"unix://":                   `"unix://"`,
		"unix:///":                  `"unix:///"`,
		"unix://host/path":          `"unix://host/path"`,
		"unix:///path?db=x":         `"unix:///path?…"`,
		"unix:///path?db=1&db=2":    `"unix:///path?…"`,
		"redis://bob:@host":         `"redis://…@host"`,
		"bob:HIDDEN@host:6379":      `"…@host:6379"`,
		"HIDDEN@host:6379":          `"…@host:6379"`,
		"redis://:HIDDEN@":          `"redis://…@"`,
		"redis://:HIDDEN@host:x":    `"redis://…@host:x"`,
		"redis://:HID%ZZDEN@host":   `"redis://…@host"`,
		"redis://:HIDDEN\n@host":    `"redis://…@host"`,
		"redis://:HID/HIDDEN@host":  `"redis://…@host"`,
		"redis://u:1/HIDDEN@host":   `"redis://…@host"`,
		"redis://u:99999999/H@host": `"redis://…@host"`,
		"redis://:HID?HIDDEN@host":  `"redis://…"`,
		"redis://:HID#HIDDEN@host":  `"redis://…"`,
		"redis://u:1?HIDDEN@host":   `"redis://…"`,
		"redis://:a@HIDDEN@host/x":  `"redis://…@host/x"`,
		"mysql://:HIDDEN@host":      `"mysql://…@host"`,
		"a:HIDDEN://x@host":         `"…@host"`,
		"bob:HIDDEN@redis://host":   `"…@redis://host"`,
		// As other clients write them.
		"redis://host?password=HIDDEN":         `"redis://host?…"`,
		"redis://host/0?password=HID@HIDDEN":   `"redis://…"`,
		"unix:///run/r.sock?password=HIDDEN":   `"unix:///run/r.sock?…"`,
		"host:6379,password=HIDDEN,ssl=False":  `"host:6379,…"`,
		"redis://bob:HIDDEN@host?db=1":         `"redis://…@host?…"`,
		"unix://:HIDDEN@/run/r.sock?db=HIDDEN": `"unix://…@/run/r.sock?…"`,
	} {
		_, err := pool.ParseAddress(text)
		if assert.Error(t, err, text) {
			assert.ErrorContains(t, err, named)
			assert.NotContains(t, err.Error(), "HID", text)
			assert.NotContains(t, err.Error(), "99999999", text)
			assert.NotContains(t, err.Error(), "\n")
		}
	}
}

func TestAnAddressWithoutEncryptionIsNotEncryptedSilently(t *testing.T) {
	t.Parallel()
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	_, err := pool.New("redis://:HIDDEN@host", pool.WithTLSConfig(config))
	require.ErrorContains(t, err, `"redis://host:6379"`)
	assert.NotContains(t, err.Error(), "HIDDEN")
	for _, address := range []string{"host:6379", "rediss://host", "unix:///r.sock"} {
		p, err := pool.New(address, pool.WithTLSConfig(config))
		require.NoError(t, err, address)
		require.NoError(t, p.Close())
	}
}

func TestAPoolNamesItsNodeWithoutThePassword(t *testing.T) {
	t.Parallel()
	p, err := pool.New("rediss://bob:HIDDEN@host/3")
	require.NoError(t, err)
	assert.Equal(t, "rediss://bob@host:6379/3", p.Name())
	assert.Equal(t, "tcp:host:6379", p.Endpoint())
	require.NoError(t, p.Close())
}

func FuzzParseAddress(f *testing.F) {
	for _, s := range []string{
		"localhost:6379", "[::1]:6379", "redis://bob:sesame-open@host:1/2", "rediss://sesame-open@[fe80::1%25eth0]",
		"unix://:sesame-open@/run/r.sock?db=1", "redis://bob:sesame/open@host", "unix:////x", "redis://ho%20st",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := pool.ParseAddress(s)
		if err != nil {
			return
		}
		name := a.String()
		again, err := pool.ParseAddress(name)
		require.NoError(t, err, name)
		assert.Equal(t, a.Endpoint, again.Endpoint)
		assert.Equal(t, a.Network, again.Network)
		assert.Equal(t, a.Database, again.Database)
		assert.Equal(t, a.TLS, again.TLS)
		public := a.Endpoint + " " + a.User + " " + url.PathEscape(a.Endpoint) + url.PathEscape(a.User) + "rediss://unix://?db="
		if len(a.Password) >= 4 && !strings.Contains(public, a.Password) {
			assert.NotContains(t, name, a.Password)
		}
	})
}

// Whatever is wrong with an address, and wherever, its error does not show
// the password.
func FuzzAddressErrors(f *testing.F) {
	f.Add("redis://", "bob:", "s/e/s", "@host:1/x", true)
	f.Add("redis://", "1:", "2?sesame", "@host", false)
	f.Add("", "", "sesame", "@host", true)
	f.Fuzz(func(t *testing.T, scheme, user, password, rest string, query bool) {
		s := scheme + user + password + "@" + rest
		if query {
			s = scheme + rest + "?password=" + password
		}
		if len(password) < 4 || strings.Contains(password, "://") || strings.ContainsAny(scheme+user+rest, "@?#,") ||
			strings.Contains(scheme+user+rest+" "+scheme+rest+"://", password) || strings.Count(scheme, "://") > 1 {
			return
		}
		if _, err := pool.ParseAddress(s); err != nil {
			// The reason behind it is one of a few fixed texts.
			quoted, err := strconv.QuotedPrefix(strings.TrimPrefix(err.Error(), "address "))
			require.NoError(t, err)
			named, err := strconv.Unquote(quoted)
			require.NoError(t, err)
			assert.NotContains(t, named, password)
		}
	})
}
