package pubsub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A broker that runs for long, with topics that never come again, patterns that come
// and go, handlers that fail and queues that drop, stays as it was: the heap, the
// goroutines and all that is bounded inside. PUBSUB_SOAK=10m says for how long; without
// it, it is a second.
func TestSoak(t *testing.T) {
	length := time.Second
	if text := os.Getenv("PUBSUB_SOAK"); text != "" {
		var err error
		length, err = time.ParseDuration(text)
		require.NoError(t, err)
	}
	const rounds = 40
	w := newSoak(t)
	for range 10 { // Until every cache and every ring is full.
		w.round(0)
	}
	var samples []soakSample
	for range rounds {
		w.round(length / rounds)
		samples = append(samples, w.sample())
	}
	first, second := samples[:rounds/2], samples[rounds/2:]
	heap := func(s soakSample) int64 { return s.heap }
	goroutines := func(s soakSample) int { return s.goroutines }
	from, to := medianOf(first, heap), medianOf(second, heap)
	t.Logf("%d messages to as many topics, %d subscriptions: heap %d, then %d bytes; %+v",
		w.topics.Load(), w.patterns.Load(), from, to, samples[rounds-1])
	// What was left by each message or subscription would be megabytes by now. The
	// heap of a test binary moves by itself, by less than this.
	allowed := max(256<<10, from/20)
	require.LessOrEqual(t, to-from, allowed, "the median of the second half of %v", samples)
	require.LessOrEqual(t, trendOf(samples, heap)*rounds, float64(2*allowed), "the trend of %v", samples)
	require.LessOrEqual(t, medianOf(second, goroutines), medianOf(first, goroutines))
	for i, s := range samples {
		require.LessOrEqual(t, s.goroutines, w.goroutines, "round %d", i)
		require.Equal(t, samples[0].inside, s.inside, "round %d", i)
	}
	w.audit()
}

// soak is a broker under a load that is always new.
type soak struct {
	testRig
	topics, patterns    atomic.Uint64 // how many there have been: the next one's number
	accepted, announced atomic.Uint64
	goroutines          int // before there was a broker
}

func newSoak(t *testing.T) *soak {
	w := &soak{goroutines: runtime.NumGoroutine()}
	w.testRig = newTestRig(t, WithDeadLetterCapacity(200), WithDeadLetterHandler(func(DeadLetter) {
		if w.announced.Add(1)%100 == 0 {
			panic("a dead-letter handler's")
		}
	}))
	for _, m := range modes {
		for _, pattern := range []string{"soak.#", "soak.*.*"} {
			w.sub(pattern, w.handle, m.opts...)
		}
	}
	return w
}

// handle fails now and then, in each way but a Goexit, which would end the publishers.
func (w *soak) handle(_ context.Context, msg Message) error {
	switch msg.ID % 50 {
	case 0:
		panic(msg.Topic)
	case 1, 2, 3:
		return fmt.Errorf("failed at %s", msg.Topic)
	case 4, 5, 6, 7:
		runtime.Gosched()
	}
	return nil
}

// round publishes and subscribes for a time, and at least a few hundred times, and lets
// all of it be handled.
func (w *soak) round(length time.Duration) {
	var busy sync.WaitGroup
	end := time.Now().Add(length)
	for p := range 2 {
		busy.Go(func() {
			for i := 0; i < 200 || time.Now().Before(end); i++ {
				if i%10 == p {
					w.churn()
				}
				w.publish(i)
			}
		})
	}
	busy.Wait()
	if err := w.Flush(context.Background()); err != nil {
		w.t.Error(err)
	}
}

func (w *soak) publish(i int) {
	ctx := context.Background()
	if i%20 == 0 { // Whoever needs room gives up, and so is a letter.
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		cancel()
	}
	topic := fmt.Sprintf("soak.%d.x", w.topics.Add(1))
	id, err := w.Publish(ctx, topic, topic)
	if id == 0 || err != nil && !errors.Is(err, context.Canceled) {
		w.t.Error(err)
	}
	w.accepted.Add(1)
}

// churn has a pattern come that never was, get a message or a few, and go in one of the
// ways there are.
func (w *soak) churn() {
	n := w.patterns.Add(1)
	form := []string{"soak.churn%d.x", "soak.churn%d.*", "soak.*.churn%d", "churn%d.a.b.c.#"}[n%4]
	topic := fmt.Sprintf([]string{"soak.churn%d.x", "soak.churn%d.y", "soak.z.churn%d", "churn%d.a.b.c.d.e"}[n%4], n)
	opts := with(modes[rand.IntN(len(modes))].opts, WithName(topic))
	if n%3 == 0 {
		opts = append(opts, WithMaxMessages(1+int(n%5)))
	}
	s := w.sub(fmt.Sprintf(form, n), w.handle, opts...)
	for range n % 8 {
		if _, err := w.Publish(context.Background(), topic, topic); err != nil {
			w.t.Error(err)
		}
		w.accepted.Add(1)
	}
	if n%16 == 0 {
		_ = w.CreateTopic(topic)
		_ = w.DeleteTopic(topic)
	}
	if n%2 == 0 {
		s.Unsubscribe()
	} else if err := s.Drain(context.Background()); err != nil {
		w.t.Error(err)
	}
}

// soakSample is what must stay as it was.
type soakSample struct {
	heap       int64
	goroutines int
	inside     inside
}

// inside is what is the same whenever nothing is queued.
type inside struct {
	topics, subscriptions, unfinished      int
	edges, letters, slots, active, waiting int
}

func (w *soak) sample() (s soakSample) {
	// When Flush has returned, workers and the announcer may be about to end.
	for range 1_000_000 {
		if s.inside = w.look(); s.inside.active+s.inside.unfinished == s.inside.subscriptions {
			break
		}
		runtime.Gosched()
	}
	for range 1_000_000 {
		if s.goroutines = runtime.NumGoroutine(); s.goroutines <= w.goroutines {
			break
		}
		runtime.Gosched()
	}
	narrow, wide := cached(w.Broker)
	if narrow > routeSlots || wide > 0 {
		w.t.Errorf("%d and %d routes are cached", narrow, wide)
	}
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	s.heap = int64(m.HeapAlloc)
	return s
}

func (w *soak) look() inside {
	st := w.Stats()
	s := inside{topics: st.Topics, subscriptions: st.Subscriptions, letters: w.DeadLetters().Len()}
	w.mu.RLock()
	s.unfinished = len(w.live) + len(w.ending)
	s.edges = len(w.index.edges)
	w.mu.RUnlock()
	for _, sub := range w.Subscriptions() {
		sub.mu.Lock()
		add(&s, &sub.queue)
		sub.mu.Unlock()
	}
	d := w.DeadLetters()
	d.mu.Lock()
	add(&s, &d.announcements)
	d.mu.Unlock()
	return s
}

// add counts what a queue has that an idle one has not.
func add[T any](s *inside, q *queue[T]) {
	if q.active {
		s.active++
	}
	if slots := len(q.in.slots) + len(q.out.slots); slots > 2*smallBuffer {
		s.slots += slots
	}
	s.waiting += len(q.marks)
	if q.waiters.first != nil {
		s.waiting++
	}
}

// audit is the row Accounting, at the end of a long life.
func (w *soak) audit() {
	t := w.t
	subs := w.Subscriptions()
	require.Len(t, subs, 2*len(modes))
	require.NoError(t, w.Shutdown(context.Background()))
	st := w.Stats()
	require.Equal(t, w.accepted.Load(), st.Published)
	require.Equal(t, st.Matched, st.Delivered+st.Failed+st.Dropped)
	require.Equal(t, st.Failed+st.Dropped, w.DeadLetters().Total())
	require.Zero(t, st.Queued+st.Running+st.Subscriptions+st.Topics)
	require.LessOrEqual(t, w.announced.Load(), w.DeadLetters().Total())
	for _, n := range []uint64{st.Delivered, st.Failed, st.Dropped, w.announced.Load()} {
		require.NotZero(t, n)
	}
	for _, s := range subs {
		if st := s.Stats(); s.Pattern() == "soak.#" {
			require.GreaterOrEqual(t, st.Matched, w.topics.Load())
			require.Equal(t, st.Matched, st.Delivered+st.Failed+st.Dropped)
		}
	}
	requireEmptyIndex(t, &w.index)
}

func medianOf[T any, N cmp.Ordered](samples []T, of func(T) N) N {
	all := make([]N, len(samples))
	for i, s := range samples {
		all[i] = of(s)
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// trendOf is the growth from one sample to the next: the median over all pairs, which a
// few that are far off do not move.
func trendOf[T any](samples []T, of func(T) int64) float64 {
	var slopes []float64
	for i, a := range samples {
		for j, b := range samples[:i] {
			slopes = append(slopes, float64(of(a)-of(b))/float64(i-j))
		}
	}
	slices.Sort(slopes)
	return slopes[len(slopes)/2]
}
