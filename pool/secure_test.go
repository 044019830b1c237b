package pool_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/clock"
	"github.com/redquorum/go-redlock/pool"
	"github.com/redquorum/go-redlock/redlocktest"
)

// authority is a CA, made for a test, and a server's certificate from it for
// the given host.
func authority(t *testing.T, host string) (roots *x509.CertPool, server *tls.Config) {
	t.Helper()
	now := time.Now()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	ca, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	roots = x509.NewCertPool()
	roots.AddCert(ca)

	serverKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: host},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if ip := net.ParseIP(host); ip != nil {
		leaf.IPAddresses = []net.IP{ip}
	} else {
		leaf.DNSNames = []string{host}
	}
	der, err = x509.CreateCertificate(rand.Reader, leaf, ca, serverKey.Public(), key)
	require.NoError(t, err)
	return roots, &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: serverKey}}}
}

// overSockets is a rig in real time, with a timeout that a loaded machine can keep.
func overSockets(t *testing.T, address string, options ...pool.Option) *rig {
	t.Helper()
	p, err := pool.New(address, append([]pool.Option{pool.WithTimeout(time.Minute)}, options...)...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.Close()) })
	return &rig{Pool: p, clock: clock.System()}
}

func TestAnEncryptedConnectionIsVerified(t *testing.T) {
	t.Parallel()
	roots, server := authority(t, "127.0.0.1")
	node := miniredis.NewMiniRedis()
	require.NoError(t, node.StartTLS(server))
	t.Cleanup(node.Close)
	trusting := pool.WithTLSConfig(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12})

	for _, address := range []string{"rediss://" + node.Addr(), node.Addr()} {
		r := overSockets(t, address, trusting)
		r.mustCall(t, acquire("key", "token"))
		for range 50 {
			r.mustCall(t, renew())
		}
	}

	stranger := overSockets(t, "rediss://"+node.Addr())
	result := stranger.call(t, acquire("key", "token"))
	var unknown x509.UnknownAuthorityError
	require.ErrorAs(t, result.Err, &unknown)
	assert.Equal(t, pool.Never, result.Sent)
	assert.True(t, pool.Permanent(result.Err))

	misled := overSockets(t, node.Addr(), pool.WithTLSConfig(&tls.Config{RootCAs: roots, ServerName: "elsewhere.example", MinVersion: tls.VersionTLS12}))
	var hostname x509.HostnameError
	require.ErrorAs(t, misled.call(t, acquire("key", "token")).Err, &hostname)

	// redigo's own way, with its layer above the connection that is watched.
	r := overSockets(t, node.Addr(), pool.WithDialOptions(redis.DialUseTLS(true), redis.DialTLSConfig(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12})))
	r.mustCall(t, renew())
}

// Where redigo encrypts, its replies cannot be checked for their size; what
// makes it panic must not take the process along.
func TestGarbageUnderRedigosOwnEncryptionIsAnError(t *testing.T) {
	_, server := authority(t, "fake")
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := serve(t, &fake{
			wrap: func(conn net.Conn) net.Conn { return tls.Server(conn, server) },
			handle: func(_ int, _ net.Conn, args []string) string {
				if args[3] == "garbage" {
					return "*999999999999999999\r\n"
				}
				return ":1\r\n"
			},
		})
		r := f.rig(t, pool.WithDialOptions(redis.DialUseTLS(true), redis.DialTLSSkipVerify(true)))
		r.mustCall(t, acquire("key", "token"))
		result := r.call(t, acquire("garbage", "token"))
		require.ErrorContains(t, result.Err, "cannot be read")
		r.mustCall(t, acquire("key", "token"))
	})
}

// Our own encryption is below the guard.
func TestRepliesAreCheckedUnderEncryption(t *testing.T) {
	roots, server := authority(t, "fake")
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := serve(t, &fake{
			wrap: func(conn net.Conn) net.Conn { return tls.Server(conn, server) },
			handle: func(int, net.Conn, []string) string {
				return "*5000\r\n"
			},
		})
		config := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12, Time: func() time.Time { return time.Time{} }}
		config.InsecureSkipVerify = true // the bubble's clock says 2000, before the certificate
		r := f.rig(t, pool.WithTLSConfig(config))
		result := r.call(t, acquire("key", "token"))
		assert.ErrorIs(t, result.Err, pool.ErrOversized)
	})
}

func TestAHungEncryptedHandshakeIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := serve(t, &fake{opened: func(int, net.Conn) bool { return false }})
		for name, option := range map[string]pool.Option{
			"ours":   pool.WithTLSConfig(&tls.Config{MinVersion: tls.VersionTLS12}),
			"redigo": pool.WithDialOptions(redis.DialUseTLS(true)),
		} {
			r := f.rig(t, option)
			r.send(newBox(), acquire("key", "token"))
			time.Sleep(4*timeout + time.Millisecond)
			require.ErrorIs(t, r.Stat().Cause, pool.ErrTimeout, name)
			assert.Zero(t, f.nowOpen(), name)
			time.Sleep(50 * time.Millisecond) // the next attempt is under way
			started := r.clock.Elapsed()
			require.NoError(t, r.Close())
			assert.Equal(t, started, r.clock.Elapsed(), "%s: Close waits for nothing", name)
		}
	})
}

func TestANodeIsReachedThroughAUnixSocket(t *testing.T) {
	t.Parallel()
	cluster := redlocktest.Start(t, 1)
	path := filepath.Join(t.TempDir(), "node.sock")
	proxy(t, path, cluster.Node(0).Addr())
	r := overSockets(t, "unix://"+path, pool.WithTLSConfig(&tls.Config{MinVersion: tls.VersionTLS12}))
	assert.Equal(t, "unix:"+path, r.Endpoint())
	r.mustCall(t, acquire("key", "token"))
	value, _, _ := cluster.Node(0).Get("key")
	assert.Equal(t, "token", value)
}

// proxy connects a socket with an address, until the test ends.
func proxy(t *testing.T, path, address string) {
	t.Helper()
	lis, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	require.NoError(t, err)
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	t.Cleanup(func() { _ = lis.Close() })
	wg.Go(func() {
		for {
			client, err := lis.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", address)
			if err != nil {
				_ = client.Close()
				continue
			}
			for _, pair := range [][2]net.Conn{{client, server}, {server, client}} {
				wg.Go(func() {
					_, _ = io.Copy(pair[0], pair[1])
					_ = pair[0].Close()
					_ = pair[1].Close()
				})
			}
		}
	})
}

func TestTheAddressSaysAsWhomToLogIn(t *testing.T) {
	t.Parallel()
	node := miniredis.NewMiniRedis()
	node.RequireUserAuth("bob", "s/e@s#ame")
	require.NoError(t, node.Start())
	t.Cleanup(node.Close)

	r := overSockets(t, "redis://bob:s%2Fe%40s%23ame@"+node.Addr()+"/3")
	r.mustCall(t, acquire("key", "token"))
	value, err := node.DB(3).Get("key")
	require.NoError(t, err)
	assert.Equal(t, "token", value)

	for _, address := range []string{node.Addr(), "redis://bob:wrong-one@" + node.Addr(), "redis://s%2Fe%40s%23ame@" + node.Addr()} {
		result := overSockets(t, address).call(t, acquire("key", "token"))
		var said redis.Error
		require.ErrorAs(t, result.Err, &said, address)
		assert.True(t, pool.Permanent(result.Err), "%v", result.Err)
		assert.Equal(t, pool.Never, result.Sent)
		assert.NotContains(t, result.Err.Error(), "wrong-one")
	}
}

func TestAPasswordAloneLogsInAsTheDefaultUser(t *testing.T) {
	t.Parallel()
	node := miniredis.NewMiniRedis()
	node.RequireAuth("sesame")
	require.NoError(t, node.Start())
	t.Cleanup(node.Close)
	for _, address := range []string{"redis://sesame@" + node.Addr(), "redis://:sesame@" + node.Addr()} {
		overSockets(t, address).mustCall(t, acquire("key", "token"))
	}
}

func TestAPoolWorksOverSockets(t *testing.T) {
	t.Parallel()
	cluster := redlocktest.Start(t, 1)
	r := overSockets(t, cluster.Node(0).Addr())
	r.mustCall(t, acquire("key", "token"))
	b := newBox()
	const n = 500
	for range n {
		r.send(b, renew())
	}
	for id := 2; id <= 1+n; id++ {
		require.NoError(t, b.await(t, id).Err, "call %d of %d", id, n)
	}
	assert.IsIncreasing(t, b.delivered())
	cluster.Node(0).Stop()
	assert.Error(t, r.call(t, renew()).Err)
}
