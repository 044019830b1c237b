package main

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	redsyncgoredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	redsyncredigo "github.com/go-redsync/redsync/v4/redis/redigo"
	"github.com/gomodule/redigo/redis"
	goredis "github.com/redis/go-redis/v9"

	"github.com/redquorum/go-redlock/redlock"
)

const (
	lockTTL = 10 * time.Second
	// nodeTimeout is our default, and what the peers' clients are set to: theirs wait without end, or seconds.
	nodeTimeout = redlock.DefaultNodeTimeout
	// idleConns keeps the peers from dialling in the midst of a measurement; each of their calls takes a connection.
	idleConns = 1024
)

// The names of the subjects, as the tables show them.
const (
	nameOurs       = "go-redlock"
	nameHealthy    = "go-redlock, healthy"
	nameRedsync    = "redsync"
	nameFailFast   = "redsync fail-fast"
	nameGoRedis    = "redsync, go-redis"
	nameBSM        = "redislock, 1 node"
	nameFloor      = "floor"
	nameFloorEach  = "floor, goroutines"
	nameFencing    = "with fencing"
	nameOneByOne   = "10 × TryAcquire"
	nameTheirTen   = "redsync, 10 ×"
	nameOursTenAll = "TryAcquireAll of 10"
)

// held is a lock that somebody holds. All implementations are one pointer wide, so that an interface of them costs
// the subject no allocation.
type held interface {
	renew(ctx context.Context) error
	release(ctx context.Context) error
}

// locks is a client library, connected to nodes.
type locks interface {
	// try makes one attempt.
	try(ctx context.Context, name string) (held, error)
	// wait waits until it gets the lock or ctx ends.
	wait(ctx context.Context, name string) (held, error)
	close() error
}

// dialer opens connections, and counts those that are open.
type dialer struct {
	net.Dialer
	open, total atomic.Int64
}

func (d *dialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	d.open.Add(1)
	d.total.Add(1)
	return &countedConn{Conn: conn, open: &d.open}, nil
}

type countedConn struct {
	net.Conn
	open *atomic.Int64
	once sync.Once
}

func (c *countedConn) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}

type ours struct {
	locker *redlock.Locker
}

func openOurs(addrs []string, opts ...redlock.Option) (locks, error) {
	locker, err := redlock.New(addrs, append([]redlock.Option{redlock.WithTTL(lockTTL)}, opts...)...)
	if err != nil {
		return nil, err
	}
	return &ours{locker: locker}, nil
}

type ourLock struct{ *redlock.Lock }

func (k ourLock) renew(ctx context.Context) error   { return k.Renew(ctx) }
func (k ourLock) release(ctx context.Context) error { return k.Release(ctx) }

func (o *ours) try(ctx context.Context, name string) (held, error) {
	k, err := o.locker.TryAcquire(ctx, name)
	return ourLock{k}, err
}

func (o *ours) wait(ctx context.Context, name string) (held, error) {
	k, err := o.locker.Acquire(ctx, name)
	return ourLock{k}, err
}

func (o *ours) close() error { return o.locker.Close() }

type theirs struct {
	*redsync.Redsync
	options []redsync.Option
	closers []func() error
}

func openRedigo(addrs []string, d *dialer, options ...redsync.Option) locks {
	t := &theirs{options: options}
	var pools []redsyncredis.Pool
	for _, addr := range addrs {
		dial := []redis.DialOption{redis.DialReadTimeout(nodeTimeout), redis.DialWriteTimeout(nodeTimeout)}
		if d == nil {
			dial = append(dial, redis.DialConnectTimeout(nodeTimeout))
		} else {
			dial = append(dial, redis.DialContextFunc(d.dial))
		}
		p := &redis.Pool{MaxIdle: idleConns, DialContext: func(ctx context.Context) (redis.Conn, error) {
			return redis.DialContext(ctx, "tcp", addr, dial...)
		}}
		t.closers = append(t.closers, p.Close)
		pools = append(pools, redsyncredigo.NewPool(p))
	}
	t.Redsync = redsync.New(pools...)
	return t
}

func openGoRedis(addrs []string, goroutines int) locks {
	t := &theirs{}
	var pools []redsyncredis.Pool
	for _, addr := range addrs {
		c := goRedisClient(addr, goroutines)
		t.closers = append(t.closers, c.Close)
		pools = append(pools, redsyncgoredis.NewPool(c))
	}
	t.Redsync = redsync.New(pools...)
	return t
}

// goRedisClient has a connection for each goroutine: with go-redis' default, calls would queue for one.
func goRedisClient(addr string, goroutines int) *goredis.Client {
	return goredis.NewClient(&goredis.Options{
		Addr: addr, PoolSize: max(20, goroutines), DialTimeout: nodeTimeout, ReadTimeout: nodeTimeout, WriteTimeout: nodeTimeout,
	})
}

type theirLock struct{ *redsync.Mutex }

func (k theirLock) renew(ctx context.Context) error {
	ok, err := k.ExtendContext(ctx)
	return orRefused(ok, err)
}

func (k theirLock) release(ctx context.Context) error {
	ok, err := k.UnlockContext(ctx)
	return orRefused(ok, err)
}

var errRefused = errors.New("refused")

func orRefused(ok bool, err error) error {
	if ok {
		return nil // whatever the minority said
	}
	return errors.Join(errRefused, err)
}

func (t *theirs) mutex(name string, options ...redsync.Option) *redsync.Mutex {
	return t.NewMutex(name, append(append(options, redsync.WithExpiry(lockTTL)), t.options...)...)
}

func (t *theirs) try(ctx context.Context, name string) (held, error) {
	m := t.mutex(name)
	return theirLock{m}, m.TryLockContext(ctx)
}

// wait leaves redsync its default delays and takes only the bound on tries away, which is ours to choose.
func (t *theirs) wait(ctx context.Context, name string) (held, error) {
	m := t.mutex(name, redsync.WithTries(1<<30))
	return theirLock{m}, m.LockContext(ctx)
}

func (t *theirs) close() error {
	var errs []error
	for _, c := range t.closers {
		errs = append(errs, c())
	}
	return errors.Join(errs...)
}

type bsm struct {
	*redislock.Client
	client *goredis.Client
}

func openBSM(addr string, goroutines int) locks {
	c := goRedisClient(addr, goroutines)
	return &bsm{redislock.New(c), c}
}

type bsmLock struct{ *redislock.Lock }

func (k bsmLock) renew(ctx context.Context) error   { return k.Refresh(ctx, lockTTL, nil) }
func (k bsmLock) release(ctx context.Context) error { return k.Release(ctx) }

func (b *bsm) try(ctx context.Context, name string) (held, error) {
	k, err := b.Obtain(ctx, name, lockTTL, nil)
	return bsmLock{k}, err
}

func (b *bsm) wait(ctx context.Context, name string) (held, error) {
	k, err := b.Obtain(ctx, name, lockTTL, &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)})
	return bsmLock{k}, err
}

func (b *bsm) close() error { return b.client.Close() }

// pair takes a lock and gives it back.
func pair(ctx context.Context, l locks, name string) error {
	k, err := l.try(ctx, name)
	if err != nil {
		return err
	}
	return k.release(ctx)
}

// freshNames numbers names, so that none is used twice: a key that a fail-fast redsync left behind must not make it
// fail later. It costs two allocations.
var freshNames atomic.Int64

func freshName() string {
	return string(strconv.AppendInt([]byte("bench-"), freshNames.Add(1)+1e9, 10))
}
