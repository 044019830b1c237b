package scripts_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/internal/scripts"
	"github.com/redquorum/go-redlock/redlocktest"
)

// BenchmarkPair measures what a pair of acquire and release costs a node: 64
// pairs go out in one piece, so the server's own time is most of it. It
// compares the acquire script with the plain SET that does the same for a free
// name.
func BenchmarkPair(b *testing.B) {
	addr := os.Getenv(realNode)
	if addr == "" {
		addr = redlocktest.Start(b, 1).Addrs()[0]
	}
	conn, err := redis.Dial("tcp", addr)
	require.NoError(b, err)
	defer conn.Close()
	hashes := map[string]string{}
	for _, script := range scripts.All() {
		hashes[script.Name()], err = redis.String(conn.Do("SCRIPT", "LOAD", script.Source()))
		require.NoError(b, err)
	}
	const batch, token = 64, "0123456789abcdefghijkl.benchmark:12345"
	evalsha := func(call *scripts.Call) {
		require.NoError(b, conn.Send("EVALSHA", append([]any{hashes[call.Script.Name()]}, call.Args...)...))
	}
	acquires := map[string]func(key string){
		"script": func(key string) {
			evalsha(scripts.Acquire([]string{key}, token, time.Minute, scripts.Fencing{}))
		},
		"SET": func(key string) {
			require.NoError(b, conn.Send("SET", key, token, "NX", "PX", time.Minute.Milliseconds()))
		},
	}
	for name, acquire := range acquires {
		b.Run("acquire="+name, func(b *testing.B) {
			for done := 0; done < b.N; done += batch {
				for i := range batch {
					key := fmt.Sprintf("bench-pair-%d", i)
					acquire(key)
					evalsha(scripts.Release([]string{key}, token, true))
				}
				require.NoError(b, conn.Flush())
				for range 2 * batch {
					_, err := conn.Receive()
					require.NoError(b, err)
				}
			}
		})
	}
}
