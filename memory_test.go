package pubsub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"weak"

	"github.com/stretchr/testify/require"
)

// ballast is what a test gives away and then expects to be collected.
type ballast [512]byte

// requireCollected checks that nothing keeps p's target alive.
func requireCollected[T any](t *testing.T, p weak.Pointer[T], what string) {
	t.Helper()
	for range 100 {
		runtime.GC()
		if p.Value() == nil {
			return
		}
		runtime.Gosched() // A worker may be about to end.
	}
	require.Fail(t, what+" is still alive")
}

// requireAlive checks that p's target is not collected, so that a test that expects
// it to be, later, can fail.
func requireAlive[T any](t *testing.T, p weak.Pointer[T]) {
	t.Helper()
	runtime.GC()
	runtime.GC()
	require.NotNil(t, p.Value())
}

// bubbleGoroutines returns how many goroutines the caller's synctest bubble has.
func bubbleGoroutines() int {
	own := make([]byte, 1<<10)
	own = own[:runtime.Stack(own, false)]
	bubble := regexp.MustCompile(`synctest bubble \d+\]`).Find(own)
	all := make([]byte, 1<<20)
	all = all[:runtime.Stack(all, true)]
	return bytes.Count(all, bubble)
}

// raceDetector reports whether the race detector is on, under which memory is larger.
func raceDetector() bool {
	info, _ := debug.ReadBuildInfo()
	for _, setting := range info.Settings {
		if setting.Key == "-race" {
			return setting.Value == "true"
		}
	}
	return false
}

// TestIdleCost: what is idle has no goroutine and little memory, and what has ended
// holds nothing of the user's.
func TestIdleCost(t *testing.T) {
	bubble(t, "no goroutine while nothing is queued", func(t *testing.T, r testRig) {
		before := bubbleGoroutines()
		g := newGate(t)
		for range 25 {
			for _, m := range modes[1:] {
				r.sub("a", g.handle, m.opts...)
			}
		}
		require.Equal(t, before, bubbleGoroutines()) // none for being there
		r.pub("a", 1, 2)
		synctest.Wait()
		require.Equal(t, before+75, bubbleGoroutines()) // one for each with work
		g.open()
		require.Equal(t, before, bubbleGoroutines())
		require.EqualValues(t, 150, r.Stats().Delivered)
		// And the broker, neither closed nor empty, has none at the bubble's end.
	}, WithDeadLetterHandler(func(DeadLetter) {}))
	t.Run("at most 1 KiB for each idle subscription", idleBytes)
	t.Run("no init, no package state", noPackageState)
	t.Run("a large buffer goes, and every waiter with it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r, g := newTestRig(t), newGate(t)
			s := r.sub("a", g.handle, WithQueueSize(1000), WithDropPolicy(Block))
			for i := range 1002 {
				r.later(context.Background(), "a", i)
			}
			synctest.Wait()
			require.GreaterOrEqual(t, len(s.queue.in.slots)+len(s.queue.out.slots), 1000)
			g.open()
			require.Len(t, g.calls(), 1002)
			require.LessOrEqual(t, len(s.queue.in.slots)+len(s.queue.out.slots), 2*smallBuffer)
			require.Nil(t, s.queue.spare)
		})
	})
	t.Run("a broker dropped without Close is collected", func(t *testing.T) {
		broker, subs, cleaned := abandonedBroker(t)
		requireCollected(t, broker, "the broker")
		for _, s := range subs {
			requireCollected(t, s, "a subscription")
		}
		await(t, cleaned, "the cleanup")
	})
	for _, m := range modes {
		t.Run("what is Done lets go, also while its route is cached/"+m.name, func(t *testing.T) {
			for _, how := range []string{"Unsubscribe", "Drain", "WithMaxMessages", "Close"} {
				doneLetsGo(t, how, m.opts)
			}
		})
		t.Run("what is handled is let go of/"+m.name, func(t *testing.T) {
			r := newTestRig(t)
			r.sub("a", ignore, m.opts...)
			for range 10 {
				payload, value := publishBallast(r, "a")
				require.NoError(t, r.Flush(context.Background()))
				requireCollected(t, payload, "the payload")
				requireCollected(t, value, "a value of the publisher's ctx")
			}
			runtime.KeepAlive(r)
		})
	}
	t.Run("what is handled is let go of/while the next call runs", func(t *testing.T) {
		r, next, release := newTestRig(t), make(chan struct{}), make(chan struct{})
		r.sub("a", func(_ context.Context, msg Message) error {
			if msg.Payload == nil {
				close(next)
				<-release
			}
			return nil
		})
		payloads, values := [3]weak.Pointer[ballast]{}, [3]weak.Pointer[ballast]{}
		for i := range payloads {
			payloads[i], values[i] = publishBallast(r, "a")
		}
		r.pub("a", nil)
		<-next
		for i := range payloads {
			requireCollected(t, payloads[i], "the payload")
			requireCollected(t, values[i], "a value of the publisher's ctx")
		}
		close(release)
		require.NoError(t, r.Shutdown(context.Background()))
	})
	t.Run("what is dropped is let go of", droppedLetsGo)
	bubble(t, "a wait given up lets go", func(t *testing.T, r testRig) {
		g := newGate(t)
		r.sub("a", g.handle, WithQueueSize(1), WithDropPolicy(Block))
		r.pub("a", 1)
		synctest.Wait()
		r.pub("a", 2)
		payload := func() weak.Pointer[ballast] {
			canceled, cancel := context.WithCancel(context.Background())
			cancel()
			p := new(ballast)
			_, err := r.Publish(canceled, "a", p)
			require.ErrorIs(t, err, context.Canceled)
			return weak.Make(p)
		}()
		requireCollected(t, payload, "the payload")
		g.open()
	}, WithDeadLetterCapacity(0))
	bubble(t, "a wait that was given up leaves its waiter to the next", func(t *testing.T, r testRig) {
		g := newGate(t)
		s := r.sub("a", g.handle, WithQueueSize(1), WithDropPolicy(Block))
		r.pub("a", 1)
		synctest.Wait()
		r.pub("a", 2)
		canceled, cancel := context.WithCancel(context.Background())
		cancel()
		_, err := r.Publish(canceled, "a", 3)
		require.ErrorIs(t, err, context.Canceled)
		require.NotNil(t, s.queue.spare)
		require.Nil(t, s.queue.spare.item)
		g.open()
	})
	bubble(t, "a wait that was not needed after all lets go", func(t *testing.T, r testRig) {
		g := newGate(t)
		s := r.sub("a", g.handle, WithQueueSize(1), WithDropPolicy(Block))
		r.pub("a", 1)
		synctest.Wait()
		r.pub("a", 2)
		ctx := &askedCtx{Context: context.Background(), once: func() { g.one(nil) }}
		_, err := r.Publish(ctx, "a", 3)
		require.NoError(t, err)
		require.NotNil(t, s.queue.spare)
		require.Nil(t, s.queue.spare.item)
		g.open()
	})
}

// noPackageState checks the source: that importing the package does nothing, and that
// its variables are errors and names.
func noPackageState(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	seen := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, decl := range file.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				require.NotEqual(t, "init", decl.Name.Name, name)
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					v, ok := spec.(*ast.ValueSpec)
					if !ok || decl.Tok != token.VAR || v.Names[0].Name == "_" {
						continue
					}
					seen++
					require.Regexp(t, "^Err[A-Z]|Names$", v.Names[0].Name, name)
				}
			}
		}
	}
	require.Positive(t, seen)
}

// publishBallast publishes a payload, with a value in the ctx, that only the broker
// then has.
func publishBallast(r testRig, topic string) (payload, value weak.Pointer[ballast]) {
	p, v := new(ballast), new(ballast)
	ctx := context.WithValue(context.Background(), ballast{}, v)
	_, err := r.Publish(ctx, topic, p)
	require.NoError(r.t, err)
	return weak.Make(p), weak.Make(v)
}

// idleBytes measures the heap that idle subscriptions with distinct patterns take,
// their part of the index and the lists included, before and after a burst.
func idleBytes(t *testing.T) {
	n := 20_000
	if raceDetector() { // for what it does besides
		n = 2_000
	}
	patterns := make([]string, n)
	for i := range patterns {
		patterns[i] = fmt.Sprintf("orders.%d.created.%d", i%1000, i)
	}
	var release atomic.Pointer[chan struct{}]
	handler := func(context.Context, Message) error { <-*release.Load(); return nil }
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	b := New(WithDeadLetterCapacity(0))
	for _, pattern := range patterns {
		if _, err := b.Subscribe(pattern, handler); err != nil {
			t.Fatal(err)
		}
	}
	check := func(when string) {
		t.Helper()
		var each int64
		for range 20 {
			each = (int64(heap()) - int64(before)) / int64(n)
			if each <= 1024 || raceDetector() {
				break
			}
			runtime.Gosched() // Workers may be about to end.
		}
		t.Logf("%d bytes %s", each, when)
		if !raceDetector() {
			require.LessOrEqual(t, each, int64(1024), when)
			require.Positive(t, each)
		}
	}
	check("new")
	const burst, together = 40, 50
	idle := runtime.NumGoroutine()
	for i := 0; i < n; i += together {
		c := make(chan struct{})
		release.Store(&c)
		for range burst {
			for _, pattern := range patterns[i : i+together] {
				if _, err := b.Publish(context.Background(), pattern, nil); err != nil {
					t.Fatal(err)
				}
			}
		}
		close(c)
		// No more than these have a worker: the runtime keeps what a goroutine took,
		// some 400 bytes, and where there is one thread nobody makes way.
		for range 10_000 {
			if runtime.NumGoroutine() <= idle {
				break
			}
			runtime.Gosched()
		}
	}
	require.NoError(t, b.Flush(context.Background()))
	check("after a burst")
	require.Equal(t, n, b.Stats().Subscriptions)
	require.EqualValues(t, n*burst, b.Stats().Delivered)
}

// abandonedBroker returns only weak pointers to a broker that has been used in every
// way and is idle, with its subscriptions.
func abandonedBroker(t *testing.T) (weak.Pointer[Broker], []weak.Pointer[Subscription], <-chan struct{}) {
	r := newTestRig(t, WithStrictTopics(), WithDeadLetterHandler(func(DeadLetter) {}))
	require.NoError(t, r.CreateTopic("a"))
	subs := []weak.Pointer[Subscription]{}
	for _, m := range modes {
		for _, h := range []Handler{ignore, func(context.Context, Message) error { return errors.New("no") }} {
			subs = append(subs, weak.Make(r.sub("a", h, m.opts...)))
		}
		r.sub("a", func(context.Context, Message) error { return r.DeleteTopic("unknown") }, m.opts...)
		subs = append(subs, weak.Make(r.sub("a", ignore, with(m.opts, WithMaxMessages(1))...)))
	}
	for range 5 {
		r.pub("a", r) // A message may lead to its broker.
	}
	require.NoError(t, r.Flush(context.Background()))
	requireAlive(t, subs[0])
	cleaned := make(chan struct{})
	runtime.AddCleanup(r.Broker, func(c chan struct{}) { close(c) }, cleaned)
	return weak.Make(r.Broker), subs, cleaned
}

// doneLetsGo checks what a subscription that is Done still holds, while it is held
// itself, and so is a route to it.
func doneLetsGo(t *testing.T, how string, opts []SubscribeOption) {
	r := newTestRig(t, WithDeadLetterCapacity(0))
	if how == "WithMaxMessages" {
		opts = with(opts, WithMaxMessages(3))
	}
	release := make(chan struct{})
	s, handler, lifetime := func() (*Subscription, weak.Pointer[ballast], weak.Pointer[call]) {
		captured := new(ballast)
		s := r.sub("a", func(context.Context, Message) error {
			<-release
			runtime.KeepAlive(captured)
			return nil
		}, opts...)
		return s, weak.Make(captured), weak.Make(s.ctx)
	}()
	var all sync.WaitGroup
	payloads := [3]weak.Pointer[ballast]{}
	values := [3]weak.Pointer[ballast]{}
	for i := range payloads {
		ready := make(chan struct{})
		all.Go(func() {
			defer close(ready)
			if s.sync {
				ready <- struct{}{} // Its Publish waits.
			}
			payloads[i], values[i] = publishBallast(r, "a")
		})
		<-ready
	}
	cached := fresh(r.Broker, "a")
	for how != "WithMaxMessages" && cached == nil { // a synchronous publish still on its way
		runtime.Gosched()
		cached = fresh(r.Broker, "a")
	}
	requireAlive(t, handler)
	switch how {
	case "Unsubscribe":
		s.Unsubscribe()
	case "Close":
		require.NoError(t, r.Close())
	case "Drain":
		all.Go(func() {
			if err := s.Drain(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	close(release)
	all.Wait()
	await(t, s.Done(), "Done")
	requireCollected(t, handler, how+": the handler")
	if !s.sync {
		requireCollected(t, lifetime, how+": the ctx")
	}
	for i := range payloads {
		requireCollected(t, payloads[i], how+": a payload")
		requireCollected(t, values[i], how+": a value of a publisher's ctx")
	}
	s.mu.Lock() // Its worker may only be about to end.
	slots := len(s.queue.in.slots) + len(s.queue.out.slots)
	s.mu.Unlock()
	require.Zero(t, slots)
	runtime.KeepAlive(s)
	runtime.KeepAlive(cached)
	runtime.KeepAlive(r)
}

// droppedLetsGo checks that messages evicted, refused or discarded, and dead letters
// evicted, taken or announced, are not kept alive.
func droppedLetsGo(t *testing.T) {
	for _, m := range modes[1:3] {
		r, release := newTestRig(t, WithDeadLetterCapacity(1), WithDeadLetterHandler(func(DeadLetter) {})), make(chan struct{})
		var stuck atomic.Int64
		s := r.sub("a", func(context.Context, Message) error { stuck.Add(1); <-release; return nil }, m.opts...)
		r.pub("a", nil)
		for stuck.Load() == 0 {
			runtime.Gosched()
		}
		payloads, values := [12]weak.Pointer[ballast]{}, [12]weak.Pointer[ballast]{}
		for i := range payloads {
			payloads[i], values[i] = publishBallast(r, "a")
		}
		dropped, queued := payloads[:8], payloads[8:]
		if s.policy == DropNewest {
			dropped, queued = payloads[4:], payloads[:4]
		}
		last := dropped[7]
		for _, p := range dropped {
			if p != last {
				requireCollected(t, p, "what was dropped")
			}
		}
		requireAlive(t, last) // It is the one dead letter kept.
		require.Len(t, r.DeadLetters().Take(), 1)
		requireCollected(t, last, "what was taken")
		for _, p := range queued {
			requireAlive(t, p)
		}
		s.Unsubscribe()
		require.EqualValues(t, 12, r.DeadLetters().Total())
		r.DeadLetters().Take()
		for i := range payloads { // while the call still runs
			requireCollected(t, payloads[i], "what was discarded")
			requireCollected(t, values[i], "a value of its publisher's ctx")
		}
		close(release)
		require.NoError(t, r.Shutdown(context.Background()))
		runtime.KeepAlive(s)
	}
}
