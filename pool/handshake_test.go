package pool_test

import (
	"bufio"
	"io"
	"net"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/pool"
)

// All of the handshake together has four timeouts, not each reply.
func TestAHandshakeThatDripsIsGivenUpInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := serve(t, &fake{load: func(int, string) string {
			time.Sleep(3 * timeout)
			return bulk("hash")
		}})
		r := f.rig(t)
		r.send(newBox(), acquire("key", "token"))
		time.Sleep(4*timeout + time.Millisecond)
		assert.Zero(t, f.nowOpen())
		require.ErrorIs(t, r.Stat().Cause, pool.ErrTimeout)
		assert.NotErrorIs(t, r.Stat().Cause, net.ErrClosed)
	})
}

func TestWhatTheServerSaysBeforeItHangsUpIsTheCause(t *testing.T) {
	for _, answer := range []string{
		"ERR max number of clients reached",
		"DENIED Redis is running in protected mode",
		"NOAUTH Authentication required.",
	} {
		t.Run(answer, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := serve(t, &fake{opened: func(_ int, conn net.Conn) bool {
					_, _ = bufio.NewReader(conn).ReadString('\n')
					_, _ = io.WriteString(conn, "-"+answer+"\r\n")
					_ = conn.Close()
					return false
				}})
				r := f.rig(t)
				result := r.call(t, acquire("key", "token"))
				var said redis.Error
				require.ErrorAs(t, result.Err, &said)
				assert.Equal(t, answer, string(said))
				assert.Equal(t, pool.Never, result.Sent)
			})
		})
	}
}

func TestAnInfoThatIsNoTextIsAnUnknownIdentity(t *testing.T) {
	for _, reply := range []string{"$-1\r\n", ":1\r\n", "*0\r\n", "+OK\r\n", bulk("")} {
		t.Run(strconv.Quote(reply), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := serve(t, &fake{info: func(int) string { return reply }})
				r := f.rig(t)
				r.mustCall(t, acquire("key", "token"))
				require.Error(t, r.Stat().Identity.Err)
				assert.Empty(t, r.Stat().Identity.RunID)
			})
		})
	}
}

func TestTheIdentityIsWhatInfoSays(t *testing.T) {
	t.Parallel()
	id := pool.ParseIdentity("# Server\r\nrun_id:abc\r\nuptime_in_seconds:5\r\n", nil)
	assert.Equal(t, pool.Identity{RunID: "abc", Uptime: 5 * time.Second}, id)
	id = pool.ParseIdentity("run_id:abc\nuptime_in_seconds:0", nil)
	assert.Equal(t, pool.Identity{RunID: "abc"}, id)
	for _, text := range []string{
		"", "run_id:abc", "uptime_in_seconds:5", "run_id:\r\nuptime_in_seconds:5",
		"run_id:abc\r\nuptime_in_seconds:-1", "run_id:abc\r\nuptime_in_seconds:99999999999",
		"run_id:abc\r\nuptime_in_seconds:9999999999999999999999",
	} {
		require.Error(t, pool.ParseIdentity(text, nil).Err, text)
	}
	denied := redis.Error("NOPERM")
	assert.Equal(t, pool.Identity{Err: denied}, pool.ParseIdentity("run_id:abc\r\nuptime_in_seconds:5", denied))
}

func FuzzParseIdentity(f *testing.F) {
	f.Add("# Server\r\nrun_id:abc\r\nuptime_in_seconds:5\r\n")
	f.Add("uptime_in_seconds:-5\nrun_id:")
	f.Add("run_id:a:b\r\nuptime_in_seconds:3153600000")
	f.Fuzz(func(t *testing.T, text string) {
		id := pool.ParseIdentity(text, nil)
		assert.GreaterOrEqual(t, id.Uptime, time.Duration(0))
		if id.Err != nil {
			assert.Zero(t, id.Uptime, "or the guard could rely on it")
			return
		}
		assert.NotEmpty(t, id.RunID)
		assert.Contains(t, text, "run_id:"+id.RunID)
		assert.Contains(t, text, "uptime_in_seconds:")
		assert.NotContains(t, id.RunID, "\n")
	})
}
