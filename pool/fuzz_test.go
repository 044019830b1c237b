package pool_test

import (
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/pool"
)

// Whatever a node sends, and when: every call gets one result, and Close ends
// everything.
func FuzzAnswers(f *testing.F) {
	for _, data := range []string{
		"", ":1\r\n", ":1\r\n:1\r\n:1\r\n:1\r\n", "-ERR no\r\n", "-NOSCRIPT no\r\n", "-LOADING wait\r\n", "$-1\r\n", "*3\r\n:1\r\n:0\r\n:1\r\n",
		"*1000000000\r\n", "$5\r\nab", "HTTP/1.1 400 Bad Request\r\n\r\n", "\x15\x03\x01\x00\x02\x02\x0a",
	} {
		f.Add([]byte(data), false, false)
		f.Add([]byte(data), true, true)
	}
	f.Fuzz(func(t *testing.T, data []byte, greets, hangsUp bool) {
		synctest.Test(t, func(t *testing.T) {
			server := serve(t, &fake{
				opened: func(n int, conn net.Conn) bool {
					if n > 1 {
						_ = conn.Close()
						return false
					}
					if greets {
						_, _ = conn.Write(data)
						go func() { _, _ = io.Copy(io.Discard, conn) }()
						if hangsUp {
							_ = conn.Close()
						}
					}
					return !greets
				},
				handle: func(_ int, conn net.Conn, _ []string) string {
					_, _ = conn.Write(data)
					if hangsUp {
						_ = conn.Close()
					}
					return ""
				},
			})
			rig, b := server.rig(t), newBox()
			ids := []int{rig.send(b, acquire("key", "token")), rig.send(b, renew()), rig.send(b, release("key"))}
			time.Sleep(5 * timeout) // connecting may take four
			require.NoError(t, rig.Close())
			for _, id := range ids {
				results := b.peek(id)
				require.Len(t, results, 1, "a call is delivered once")
				require.True(t, results[0].Err != nil || results[0].Sent == pool.Answered)
			}
		})
	})
}

// Whatever a node sends to those who listen, nobody is told that they hear
// unless it says so.
func FuzzMessages(f *testing.F) {
	subscribed := "*3\r\n" + bulk("subscribe") + bulk(channel) + ":1\r\n"
	message := "*3\r\n" + bulk("message") + bulk(channel) + bulk("owner")
	for _, data := range []string{
		"", subscribed, message, subscribed + message + message, "*2\r\n" + bulk("pong") + bulk(""), "-NOPERM no\r\n", "+OK\r\n",
		"*1000000000\r\n", "*3\r\n:1\r\n:1\r\n:1\r\n", "*0\r\n", "*-1\r\n", "*1\r\n" + bulk("message"),
		"*3\r\n" + bulk("subscribe") + bulk("another") + ":1\r\n", "*4\r\n" + bulk("pmessage") + bulk("*") + bulk(channel) + bulk(""),
	} {
		f.Add([]byte(data))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		synctest.Test(t, func(t *testing.T) {
			server := serve(t, &fake{handle: func(int, net.Conn, []string) string { return string(data) }})
			rig, h := server.rig(t), &hearer{}
			rig.Listen(channel, h)
			time.Sleep(time.Second)
			for _, err := range h.subscriptions() {
				if err == nil {
					require.Contains(t, string(data), "subscribe")
					require.Contains(t, string(data), channel)
				}
			}
			if h.messages() > 0 {
				require.Contains(t, string(data), channel)
			}
			rig.Unlisten(channel, h)
			require.NoError(t, rig.Close())
		})
	})
}

// Old servers hide the error of a command in that of the script that called it.
// It is as permanent there as it is bare.
func FuzzPermanent(f *testing.F) {
	for _, text := range []string{
		"", "READONLY You can't write against a read only replica.", "NOPERM this user has no permissions", "ERR", "LOADING",
		"ERR unknown command 'EVALSHA'", "BUSY", "WRONGTYPE: ", "ERR Error running script", "NOSCRIPT ", ": -",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		bare := pool.Permanent(redis.Error(text))
		if strings.HasPrefix(text, "ERR Error running script") || strings.HasPrefix(text, "-") {
			return
		}
		hidden := "ERR Error running script (call to f_0123abcd): @user_script:12: -" + text
		require.Equal(t, bare, pool.Permanent(redis.Error(hidden)), hidden)
	})
}
