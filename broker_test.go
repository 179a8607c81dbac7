package pubsub

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// testRig is a broker in a test, and what the tests of its life need.
type testRig struct {
	*Broker
	t *testing.T
}

func newTestRig(t *testing.T, opts ...Option) testRig { return testRig{New(opts...), t} }

// bubble runs a subtest in a synctest bubble, with a broker made in it. The bubble
// ends only when no goroutine is left, so every subtest also proves that the broker
// leaves none.
func bubble(t *testing.T, name string, f func(t *testing.T, r testRig), opts ...Option) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { f(t, newTestRig(t, opts...)) })
	})
}

// sub subscribes.
func (r testRig) sub(pattern string, h Handler, opts ...SubscribeOption) *Subscription {
	r.t.Helper()
	s, err := r.Subscribe(pattern, h, opts...)
	require.NoError(r.t, err)
	return s
}

// pub publishes each payload, without an error.
func (r testRig) pub(topic string, payloads ...any) {
	r.t.Helper()
	for _, payload := range payloads {
		id, err := r.Publish(context.Background(), topic, payload)
		require.NoError(r.t, err)
		require.NotZero(r.t, id)
	}
}

// published is what a Publish returned.
type published struct {
	id  uint64
	err error
}

// later publishes in another goroutine; what it returned is in the channel.
func (r testRig) later(ctx context.Context, topic string, payload any) <-chan published {
	returned := make(chan published, 1)
	go func() {
		id, err := r.Publish(ctx, topic, payload)
		returned <- published{id, err}
	}()
	return returned
}

// storm publishes from several goroutines until stop is called, which waits for
// them. A Publish that fails otherwise than with ErrClosed fails the test.
func (r testRig) storm(publishers int, topic string) (stop func()) {
	var all sync.WaitGroup
	stopped := make(chan struct{})
	for range publishers {
		all.Go(func() {
			for {
				select {
				case <-stopped:
					return
				default:
				}
				_, err := r.Publish(context.Background(), topic, nil)
				if err != nil && !errors.Is(err, ErrClosed) {
					r.t.Errorf("Publish: %v", err)
				}
				runtime.Gosched() // so that few processors serve all
			}
		})
	}
	return func() {
		close(stopped)
		all.Wait()
	}
}

// letters are the dead letters kept, as "reason payload".
func (r testRig) letters() []string {
	letters := []string{}
	for _, l := range r.DeadLetters().Snapshot() {
		letters = append(letters, fmt.Sprint(l.Reason, " ", l.Message.Payload))
	}
	return letters
}

// gate is a handler that notes its message and then waits to be let go.
type gate struct {
	mu     sync.Mutex
	seen   []any
	ctx    context.Context // of the last call
	pass   chan error
	opened chan struct{}
	once   sync.Once
}

func newGate(t *testing.T) *gate {
	g := &gate{pass: make(chan error), opened: make(chan struct{})}
	t.Cleanup(func() { g.once.Do(func() { close(g.opened) }) })
	return g
}

func (g *gate) handle(ctx context.Context, msg Message) error {
	g.mu.Lock()
	g.seen = append(g.seen, msg.Payload)
	g.ctx = ctx
	g.mu.Unlock()
	select {
	case err := <-g.pass:
		return err
	case <-g.opened:
		return nil
	}
}

// one lets one call return, in a bubble.
func (g *gate) one(err error) {
	g.pass <- err
	synctest.Wait()
}

// open lets all calls return, in a bubble.
func (g *gate) open() {
	g.once.Do(func() { close(g.opened) })
	synctest.Wait()
}

// calls are the payloads of the calls that have begun, in order.
func (g *gate) calls() []any {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]any{}, g.seen...)
}

func (g *gate) lastCtx() context.Context {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.ctx
}

func ignore(context.Context, Message) error { return nil }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// await waits for c, and fails the test instead of hanging.
func await(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(5 * time.Minute): // Slow, emulated or paused machines are no fault.
		require.Fail(t, "never: "+what)
	}
}

// started are the calls that have ever begun.
func started(st SubscriptionStats) uint64 {
	return st.Delivered + st.Failed + uint64(st.Running)
}

// modes are the ways in which a subscription can take messages, with small queues.
var modes = []struct {
	name string
	sync bool
	opts []SubscribeOption
}{
	{"sync", true, []SubscribeOption{WithSync()}},
	{"drop_oldest", false, []SubscribeOption{WithQueueSize(4), WithDropPolicy(DropOldest)}},
	{"drop_newest", false, []SubscribeOption{WithQueueSize(4), WithDropPolicy(DropNewest)}},
	{"block", false, []SubscribeOption{WithQueueSize(4), WithDropPolicy(Block)}},
}

// with adds options to those of a mode.
func with(opts []SubscribeOption, more ...SubscribeOption) []SubscribeOption {
	return append(append([]SubscribeOption{}, opts...), more...)
}

// A broker works without options, with nil ones, and with each of its own.
func TestNew(t *testing.T) {
	t.Run("nil options, clock and dead-letter handler are the default", func(t *testing.T) {
		r := newTestRig(t, nil, WithClock(nil), WithDeadLetterHandler(nil))
		before := time.Now()
		var got Message
		r.sub("a", func(_ context.Context, msg Message) error { got = msg; return fmt.Errorf("no") }, nil, WithSync())
		r.pub("a", 1)
		require.WithinRange(t, got.Time, before, time.Now())
		require.NoError(t, r.Shutdown(context.Background())) // A nil handler would have panicked.
		require.Equal(t, []string{"error 1"}, r.letters())
	})
	t.Run("clock", func(t *testing.T) {
		noon := time.Date(2020, 1, 2, 12, 0, 0, 0, time.UTC)
		r := newTestRig(t, WithClock(func() time.Time { return noon }))
		var got Message
		r.sub("a", func(_ context.Context, msg Message) error { got = msg; return nil }, WithSync())
		r.pub("a", 1)
		require.Equal(t, noon, got.Time)
	})
	for _, c := range []struct{ capacity, kept int }{{-1, 0}, {0, 0}, {1, 1}, {2, 2}, {1000, 1000}} {
		t.Run(fmt.Sprint("dead letter capacity ", c.capacity), func(t *testing.T) {
			opts := []Option{WithDeadLetterCapacity(c.capacity)}
			if c.capacity == 1000 {
				opts = nil // The default.
			}
			r := newTestRig(t, opts...)
			r.sub("a", func(context.Context, Message) error { return fmt.Errorf("no") }, WithSync())
			for i := range 1003 {
				r.pub("a", i)
			}
			require.Equal(t, c.kept, r.DeadLetters().Len())
			require.Len(t, r.DeadLetters().Snapshot(), c.kept)
			require.EqualValues(t, 1003, r.DeadLetters().Total())
		})
	}
}

// Topics are what CreateTopic has made and DeleteTopic has not removed, sorted.
func TestTopicRegistry(t *testing.T) {
	for _, strict := range []bool{false, true} {
		t.Run(fmt.Sprint("strict=", strict), func(t *testing.T) {
			var opts []Option
			if strict {
				opts = append(opts, WithStrictTopics())
			}
			r := newTestRig(t, opts...)
			require.Empty(t, r.Topics())
			for _, name := range []string{"c", "a.b", "c", "b", "a"} {
				require.NoError(t, r.CreateTopic(name)) // "c" twice: idempotent
			}
			require.Equal(t, []string{"a", "a.b", "b", "c"}, r.Topics())
			require.Equal(t, 4, r.Stats().Topics)

			require.NoError(t, r.DeleteTopic("c")) // once, though made twice
			require.ErrorIs(t, r.DeleteTopic("c"), ErrUnknownTopic)
			require.ErrorIs(t, r.DeleteTopic("x"), ErrUnknownTopic)
			require.Equal(t, []string{"a", "a.b", "b"}, r.Topics())

			for _, bad := range []string{"", "a..b", "*", "a.#", strings.Repeat("a", 65_536)} {
				require.ErrorIs(t, r.CreateTopic(bad), ErrInvalidTopic)
				require.ErrorIs(t, r.DeleteTopic(bad), ErrInvalidTopic)
			}
			r.Topics()[0] = "changed" // The slice is the caller's.
			require.Equal(t, []string{"a", "a.b", "b"}, r.Topics())

			r.sub("q", ignore)
			_, err := r.Publish(context.Background(), "q", nil)
			require.Equal(t, strict, err != nil)
			require.Equal(t, []string{"a", "a.b", "b"}, r.Topics()) // Neither adds one.
			for _, name := range r.Topics() {
				require.NoError(t, r.DeleteTopic(name))
			}
			require.Empty(t, r.Topics())
			require.NoError(t, r.CreateTopic("again"))
			require.Equal(t, []string{"again"}, r.Topics())
			require.NoError(t, r.Shutdown(context.Background()))
			require.Equal(t, []string{"again"}, r.Topics())
		})
	}
}

// With WithStrictTopics only what CreateTopic has made can be published to, also
// when the topic's route is in the cache; subscriptions stay.
func TestStrictTopics(t *testing.T) {
	r := newTestRig(t, WithStrictTopics())
	handled := 0
	r.sub("a.*", func(context.Context, Message) error { handled++; return nil }, WithSync())
	refused := func(topic string) {
		t.Helper()
		id, err := r.Publish(context.Background(), topic, nil)
		require.ErrorIs(t, err, ErrUnknownTopic)
		require.Contains(t, err.Error(), topic)
		require.Zero(t, id)
	}
	refused("a.b")
	require.Zero(t, r.Stats().Published) // It took no id.
	require.NoError(t, r.CreateTopic("a.b"))
	for round := 1; round <= 3; round++ {
		r.pub("a.b", 1, 2) // The second finds a cached route.
		require.Equal(t, 2*round, handled)
		refused("a.c")
		require.NoError(t, r.DeleteTopic("a.b"))
		refused("a.b")
		require.Len(t, r.Subscriptions(), 1)
		require.NoError(t, r.CreateTopic("a.b"))
	}
	require.EqualValues(t, 6, r.Stats().Published)
	_, err := r.Publish(context.Background(), "a.*", nil)
	require.ErrorIs(t, err, ErrInvalidTopic) // not merely unknown
}

// When DeleteTopic has returned no publish succeeds, when CreateTopic has, all do,
// whatever other publishers put into the cache meanwhile.
func TestStrictTopicsUnderPublishers(t *testing.T) {
	r := newTestRig(t, WithStrictTopics())
	r.sub("a", ignore, WithSync())
	var all sync.WaitGroup
	stopped := make(chan struct{})
	for range 2 {
		all.Go(func() {
			for !isClosed(stopped) {
				_, _ = r.Publish(context.Background(), "a", nil)
			}
		})
	}
	for range 2000 {
		require.NoError(t, r.CreateTopic("a"))
		r.pub("a", nil)
		require.NoError(t, r.DeleteTopic("a"))
		_, err := r.Publish(context.Background(), "a", nil)
		require.ErrorIs(t, err, ErrUnknownTopic)
	}
	close(stopped)
	all.Wait()
}

// Subscriptions are in the order they were made, whichever have ended.
func TestSubscriptionsOrder(t *testing.T) {
	r := newTestRig(t)
	want := []*Subscription{}
	for i := range 50 {
		want = append(want, r.sub(fmt.Sprint("p", i%7), ignore))
	}
	for len(want) > 0 {
		require.Equal(t, len(want), r.Stats().Subscriptions)
		got := r.Subscriptions()
		require.Len(t, got, len(want))
		for i := range want {
			require.Same(t, want[i], got[i])
		}
		got[0] = nil // The slice is the caller's.
		i := len(want) * 3 / 7
		want[i].Unsubscribe()
		want = append(want[:i], want[i+1:]...)
	}
	require.Empty(t, r.Subscriptions())
}

// The accessors say what Subscribe was given, also after the end; IDs are never
// used again, neither those of ended subscriptions nor concurrently.
func TestSubscriptionIdentity(t *testing.T) {
	r := newTestRig(t)
	s := r.sub("a.*", ignore, WithName("mail"))
	s.Unsubscribe()
	require.Equal(t, "mail", s.Name())
	require.Equal(t, "a.*", s.Pattern())

	ids := make([][]uint64, 4)
	var all sync.WaitGroup
	for i := range ids {
		all.Go(func() {
			for range 200 {
				s, err := r.Subscribe("a", ignore)
				if err != nil {
					t.Error(err)
					return
				}
				ids[i] = append(ids[i], s.ID())
				s.Unsubscribe()
			}
		})
	}
	all.Wait()
	seen := map[uint64]bool{s.ID(): true, 0: true}
	for _, some := range ids {
		require.IsIncreasing(t, some)
		for _, id := range some {
			require.False(t, seen[id], "id %d twice", id)
			seen[id] = true
		}
	}
}

// ErrClosed comes before any other error.
func TestErrorPrecedence(t *testing.T) {
	r := newTestRig(t, WithStrictTopics())
	refused := func(pattern string, h Handler, want error, opts ...SubscribeOption) {
		t.Helper()
		s, err := r.Subscribe(pattern, h, opts...)
		require.ErrorIs(t, err, want)
		require.Nil(t, s)
	}
	refusedAll := func(topic, name, pattern, handler, option, unknown error) {
		t.Helper()
		_, err := r.Publish(context.Background(), "a..b", nil)
		require.ErrorIs(t, err, topic)
		_, err = r.Publish(context.Background(), "unknown", nil)
		require.ErrorIs(t, err, unknown)
		require.ErrorIs(t, r.CreateTopic("*"), name)
		require.ErrorIs(t, r.DeleteTopic("*"), name)
		require.ErrorIs(t, r.DeleteTopic("unknown"), unknown)
		refused("a.#.b", ignore, pattern)
		refused("a", nil, handler)
		for _, bad := range []SubscribeOption{WithQueueSize(0), WithDropPolicy(3), WithDropPolicy(-1), WithMaxMessages(0)} {
			refused("a", ignore, option, bad)
			refused("a", ignore, option, WithSync(), bad, WithQueueSize(1), WithDropPolicy(Block), WithMaxMessages(1))
		}
	}
	refusedAll(ErrInvalidTopic, ErrInvalidTopic, ErrInvalidPattern, ErrNilHandler, ErrInvalidOption, ErrUnknownTopic)
	require.Zero(t, r.Stats()) // Nothing refused leaves a trace.
	require.Empty(t, r.Subscriptions())
	require.NoError(t, r.Close())
	refusedAll(ErrClosed, ErrClosed, ErrClosed, ErrClosed, ErrClosed, ErrClosed)
}
