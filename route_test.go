package pubsub

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"
	"weak"

	"github.com/stretchr/testify/require"
)

func nothing(context.Context, Message) error { return nil }

// cached counts the routes in the cache, narrow and wide.
func cached(b *Broker) (narrow, wide int) {
	for i := range b.routes.routes {
		if b.routes.routes[i].Load() != nil {
			narrow++
		}
	}
	for i := range b.routes.wide {
		if b.routes.wide[i].Load() != nil {
			wide++
		}
	}
	return narrow, wide
}

// routeOf returns the route that a publish to a topic would take.
func routeOf(t *testing.T, b *Broker, topic string) route {
	if r := fresh(b, topic); r != nil {
		return r.route
	}
	found, _, err := b.match(topic, nil)
	require.NoError(t, err)
	return newRoute(found)
}

// fresh returns the cached route of a topic that a publish would use, or nil.
func fresh(b *Broker, topic string) *cachedRoute {
	return b.routes.get(b.routes.hash(topic), topic, b.generation.Load())
}

// apart returns a broker in whose cache no topic takes another's place.
func apart(t *testing.T, opts []Option, topics ...string) *rig {
	for {
		r := &rig{T: t, Broker: New(opts...)}
		slots := make(map[uint64]bool)
		for _, topic := range topics {
			slots[r.routes.hash(topic)%routeSlots] = true
		}
		if len(slots) == len(topics) {
			return r
		}
	}
}

// Dropping queues are served first, then Block queues, then synchronous handlers, each
// in order of subscription, in whatever order the index found them.
func TestRouteServesInOrder(t *testing.T) {
	var found []*Subscription
	for id := range uint64(30) {
		s := &Subscription{id: id}
		switch id % 4 {
		case 1:
			s.policy = DropNewest
		case 2:
			s.policy = Block
		case 3:
			s.sync, s.policy = true, DropPolicy(id%3) // A policy that is not used.
		}
		found = append(found, s)
	}
	rand.New(rand.NewPCG(5, 6)).Shuffle(len(found), func(i, j int) { found[i], found[j] = found[j], found[i] })
	r := newRoute(found)
	require.Equal(t, 30, r.size())
	ids := func(subs []*Subscription) (ids []uint64) {
		for _, s := range subs {
			ids = append(ids, s.id)
		}
		return ids
	}
	require.Equal(t, []uint64{0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29}, ids(r.dropping))
	require.Equal(t, []uint64{2, 6, 10, 14, 18, 22, 26}, ids(r.blocking))
	require.Equal(t, []uint64{3, 7, 11, 15, 19, 23, 27}, ids(r.synchronous))
	empty := newRoute(nil)
	require.Zero(t, empty.size())
}

// A cached route is an answer to one topic at one generation, whatever else falls on
// the same slot.
func TestRouteCacheAnswersOnlyWhatWasAsked(t *testing.T) {
	b := New()
	all := make([]*Subscription, wideRoute)
	for i := range all {
		all[i] = &Subscription{id: uint64(i)}
	}
	topics := make([]string, 2*routeSlots)
	for i := range topics { // Twice as many as slots: each is replaced, or replaces.
		topics[i] = fmt.Sprint("topic.", i)
		found := append([]*Subscription(nil), all[:wideRoute*(i%2)]...)
		r := &cachedRoute{topics[i], 5, newRoute(found)}
		hash := b.routes.hash(topics[i])
		b.routes.put(hash, r)
		require.Same(t, r, b.routes.get(hash, topics[i], 5))
		require.Nil(t, b.routes.get(hash, topics[i], 4))
		require.Nil(t, b.routes.get(hash, topics[i], 6))
		require.Nil(t, b.routes.get(hash, topics[i]+"x", 5))
	}
	for _, topic := range topics {
		if r := b.routes.get(b.routes.hash(topic), topic, 5); r != nil {
			require.Equal(t, topic, r.topic)
		}
	}
	narrow, wide := cached(b)
	require.Greater(t, narrow, routeSlots/2)
	require.Equal(t, wideRouteSlots, wide)
}

// A publish to a topic seen lately asks the cache only: the route is the same object
// until the registry changes.
func TestRouteIsBuiltOnce(t *testing.T) {
	r := apart(t, nil, "a.b", "nobody")
	r.on("a.*", nothing, WithSync())
	require.Nil(t, fresh(r.Broker, "a.b"))
	r.pub("a.b", nil)
	first := fresh(r.Broker, "a.b")
	require.NotNil(t, first)
	require.NoError(t, r.CreateTopic("a.b"), "which changes no route without strict topics")
	r.pub("a.b", nil)
	require.NoError(t, r.DeleteTopic("a.b"))
	r.pub("a.b", nil)
	require.Same(t, first, fresh(r.Broker, "a.b"))
	r.pub("nobody", nil)
	require.NotNil(t, fresh(r.Broker, "nobody"), "that nobody listens is worth knowing too")
}

// Topics that do not recur, however many, push out of the cache nothing that is up to
// date, and everything that is not; one that recurs takes the place of another.
func TestOnlyTopicsThatRecurPushOthersOut(t *testing.T) {
	r := &rig{T: t, Broker: New()}
	r.on("#", nothing, WithSync())
	once := func() {
		for i := range 20 * routeSlots {
			r.pub(fmt.Sprint("once.", i), nil)
		}
	}
	all := func() (routes []*cachedRoute) {
		for i := range r.routes.routes {
			routes = append(routes, r.routes.routes[i].Load())
		}
		return routes
	}
	once()
	before := all()
	require.NotContains(t, before, (*cachedRoute)(nil), "the first of each slot is kept")
	once()
	require.Equal(t, before, all())

	slot := r.routes.hash("hot") % routeSlots
	r.pub("hot", nil)
	require.Same(t, before[slot], r.routes.routes[slot].Load())
	r.pub("hot", nil)
	require.Same(t, fresh(r.Broker, "hot"), r.routes.routes[slot].Load())

	r.on("else", nothing)
	once()
	for _, route := range all() {
		require.Equal(t, r.generation.Load(), route.generation, "a route out of date keeps the ended alive")
	}
}

// A route that was put while the registry changed does not stay: after Close nothing
// else would let go of it.
func TestRouteThatIsLateIsDropped(t *testing.T) {
	r := &rig{T: t, Broker: New()}
	for name, n := range map[string]int{"narrow": 1, "wide": wideRoute} {
		for range n {
			r.on(name, nothing, WithSync())
		}
		late := &cachedRoute{topic: name, route: routeOf(t, r.Broker, name)}
		hash := r.routes.hash(name)
		r.routes.put(hash, late)
		r.routes.drop(hash, &cachedRoute{topic: name, route: late.route})
		require.Same(t, late, r.routes.slot(hash, late).Load(), "not the one that was put")
		r.routes.drop(hash, late)
		require.Nil(t, r.routes.slot(hash, late).Load())

		current := &cachedRoute{name, r.generation.Load(), late.route}
		r.keep(hash, current)
		require.Same(t, current, fresh(r.Broker, name))
	}
	before := &cachedRoute{"narrow", r.generation.Load(), routeOf(t, r.Broker, "narrow")}
	require.NoError(t, r.Close())
	r.keep(r.routes.hash("narrow"), before)
	narrow, wide := cached(r.Broker)
	require.Zero(t, narrow+wide, "the registry has changed since")
}

// Whatever changes the answer makes the cached one out of date before it returns.
func TestRouteCacheIsOutOfDateAfterEveryChange(t *testing.T) {
	for change, do := range map[string]func(r *rig, s *Subscription){
		"Subscribe":           func(r *rig, _ *Subscription) { r.on("else", nothing) },
		"Unsubscribe":         func(_ *rig, s *Subscription) { s.Unsubscribe() },
		"Drain":               func(r *rig, s *Subscription) { require.NoError(r, s.Drain(context.Background())) },
		"the last of n":       func(r *rig, _ *Subscription) { r.pub("a", nil) },
		"the last of n, sync": func(r *rig, _ *Subscription) { r.pub("sync", nil) },
		"Close":               func(r *rig, _ *Subscription) { require.NoError(r, r.Close()) },
		"Shutdown":            func(r *rig, _ *Subscription) { require.NoError(r, r.Shutdown(context.Background())) },
		"CreateTopic":         func(r *rig, _ *Subscription) { require.NoError(r, r.CreateTopic("new")) },
		"DeleteTopic":         func(r *rig, _ *Subscription) { require.NoError(r, r.DeleteTopic("sync")) },
	} {
		t.Run(change, func(t *testing.T) {
			r := apart(t, []Option{WithStrictTopics()}, "a", "sync")
			require.NoError(t, r.CreateTopic("a"))
			require.NoError(t, r.CreateTopic("sync"))
			s := r.on("a", nothing, WithMaxMessages(2))
			r.on("sync", nothing, WithMaxMessages(2), WithSync())
			r.pub("a", nil)
			r.pub("sync", nil)
			require.NotNil(t, fresh(r.Broker, "a"))
			require.NotNil(t, fresh(r.Broker, "sync"))
			do(r, s)
			require.Nil(t, fresh(r.Broker, "a"))
			require.Nil(t, fresh(r.Broker, "sync"))
			require.NoError(t, r.Shutdown(context.Background()))
		})
	}
}

// A route of very many subscriptions is kept in few places, and not once it is out of
// date: else 1,024 topics that all match hold 1,024 times all subscriptions.
func TestWideRoutesAreFew(t *testing.T) {
	r := &rig{T: t, Broker: New()}
	var n atomic.Int32
	for range wideRoute - 1 {
		r.on("#", func(context.Context, Message) error { n.Add(1); return nil }, WithSync())
	}
	r.pub("narrow", nil)
	narrow, wide := cached(r.Broker)
	require.Equal(t, 1, narrow)
	require.Zero(t, wide)
	s := r.on("#", nothing, WithSync())
	for i := range 50 {
		r.pub(fmt.Sprint("topic.", i), nil)
		r.pub(fmt.Sprint("topic.", i), nil) // For that which has the slot of "narrow".
		require.NotNil(t, fresh(r.Broker, fmt.Sprint("topic.", i)))
	}
	narrow, wide = cached(r.Broker)
	require.LessOrEqual(t, narrow, 1)
	require.Equal(t, wideRouteSlots, wide)
	require.EqualValues(t, 101*(wideRoute-1), n.Load())
	s.Unsubscribe()
	_, wide = cached(r.Broker)
	require.Zero(t, wide)
}

// Closing lets go of all routes, and so of all subscriptions.
func TestRouteCacheIsClearedByClose(t *testing.T) {
	r := &rig{T: t, Broker: New()}
	last := r.on("#", nothing, WithSync())
	for i := range 2000 {
		r.pub(fmt.Sprint("topic.", i), nil)
	}
	for range wideRoute {
		r.on("wide", nothing, WithSync())
	}
	r.pub("wide", nil)
	r.pub("wide", nil)
	narrow, wide := cached(r.Broker)
	require.Greater(t, narrow, routeSlots/2)
	require.Equal(t, 1, wide)
	require.NoError(t, r.Close())
	narrow, wide = cached(r.Broker)
	require.Zero(t, narrow+wide)
	requireEmptyIndex(t, &r.index)
	require.Zero(t, last.place, "one that the user still has keeps no part of the index alive")
	_, err := r.Publish(context.Background(), "topic.1", nil)
	require.ErrorIs(t, err, ErrClosed)
	narrow, wide = cached(r.Broker)
	require.Zero(t, narrow+wide)
}

// A topic is often cut from a request: neither the cache nor a message keeps that.
func TestRouteKeepsNoBufferAlive(t *testing.T) {
	r := &rig{T: t, Broker: New()}
	var got sightings
	r.on("#", got.handle, WithSync())
	request := "GET orders " + strings.Repeat("x", 1000)
	gone := weak.Make(unsafe.StringData(request))
	r.pub(request[4:10], nil) // Neither a message whose topic is not cached
	r.pub(request[4:10], nil) // nor the cache keeps it.
	request = ""
	runtime.GC()
	require.Nil(t, gone.Value())
	require.Equal(t, "orders", fresh(r.Broker, "orders").topic)
	require.Equal(t, "orders", got.msgs[0].Topic)
	require.Equal(t, "orders", got.msgs[1].Topic)
}

// The same for a topic that gets into no cache, as long as somebody gets the message; the
// name of one that nobody gets is not even copied.
func TestTopicThatIsNotCachedKeepsNoBufferAlive(t *testing.T) {
	r := &rig{T: t, Broker: New()}
	var got sightings
	r.on("heard", got.handle, WithSync())
	taken := func(topic string) string { // another topic of its slot, which is then cached
		for i := 0; ; i++ {
			other := fmt.Sprint("other.", i)
			if r.routes.hash(other)%routeSlots == r.routes.hash(topic)%routeSlots {
				r.pub(other, nil)
				return other
			}
		}
	}
	other := taken("heard")
	request := "GET heard " + strings.Repeat("x", 1000)
	gone := weak.Make(unsafe.StringData(request))
	r.pub(request[4:9], nil)
	request = ""
	runtime.GC()
	require.Nil(t, gone.Value())
	require.Equal(t, "heard", got.msgs[0].Topic)
	require.NotNil(t, fresh(r.Broker, other))
	require.Nil(t, fresh(r.Broker, "heard"))

	var once []string
	for i := range 1200 {
		once = append(once, fmt.Sprint("nobody.", i))
		r.pub(fmt.Sprint("fills.", i), nil)
	}
	once = slices.DeleteFunc(once, func(topic string) bool {
		return r.routes.routes[r.routes.hash(topic)%routeSlots].Load() == nil
	})
	require.Greater(t, len(once), 500)
	next := 0
	require.Zero(t, testing.AllocsPerRun(500, func() {
		_, _ = r.Publish(context.Background(), once[next], nil)
		next++
	}))
}

// A route that is out of date stays in its slot until another comes: what it leads to
// must be gone all the same, the handler with what it refers to, the context and the
// queue.
func TestCachedRouteOfTheUnsubscribedKeepsLittleAlive(t *testing.T) {
	type state struct{ buffer [4096]byte }
	for name, opts := range map[string][]SubscribeOption{"asynchronous": nil, "synchronous": {WithSync()}} {
		t.Run(name, func(t *testing.T) {
			r := &rig{T: t, Broker: New()}
			gone, payload := func() (weak.Pointer[state], weak.Pointer[state]) {
				held, sent := new(state), new(state)
				s := r.on("a", func(context.Context, Message) error { held.buffer[0]++; return nil }, opts...)
				for range 10 {
					r.pub("a", sent)
				}
				r.settled([]*Subscription{s}) // The worker of the burst has ended.
				r.pub("a", sent)              // A small buffer is kept for the next, but not by one that is done.
				r.settled([]*Subscription{s})
				require.Equal(t, !s.sync, s.queue.in.slots != nil)
				s.Unsubscribe()
				<-s.Done()
				require.EqualValues(t, 11, held.buffer[0])
				return weak.Make(held), weak.Make(sent)
			}()
			narrow, _ := cached(r.Broker)
			require.Equal(t, 1, narrow)
			runtime.GC()
			require.Nil(t, gone.Value())
			require.Nil(t, payload.Value())
			for i := range r.routes.routes {
				if stale := r.routes.routes[i].Load(); stale != nil {
					s := append(stale.dropping, stale.synchronous...)[0]
					s.mu.Lock() // Whoever else has finished it may be about to look.
					defer s.mu.Unlock()
					require.Nil(t, s.handler)
					require.Nil(t, s.ctx)
					require.Nil(t, s.queue.in.slots)
					require.Nil(t, s.queue.out.slots)
				}
			}
		})
	}
}

// The rule of the generation, while everything changes at once: what has been
// subscribed before a publish gets it, what has been unsubscribed does not, whoever
// else looks up the same topic, and so builds and caches routes, at the same time.
func TestRouteCacheUnderChange(t *testing.T) {
	b := New(WithStrictTopics())
	defer b.Close()
	var wrong atomic.Int32
	must := func(err error) {
		if err != nil {
			wrong.Add(1)
		}
	}
	must(b.CreateTopic("shared.a"))
	stop := make(chan struct{})
	var readers, writers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_, err := b.Publish(context.Background(), "shared.a", 0)
					must(err)
					runtime.Gosched() // Where there is one thread, nobody else makes way.
				}
			}
		})
	}
	for w := range 3 {
		writers.Go(func() {
			own := fmt.Sprint("own.", w)
			for i := range 400 {
				var got atomic.Int32
				s, err := b.Subscribe("shared.*", func(_ context.Context, msg Message) error {
					if msg.Payload == w+1 {
						got.Add(1)
					}
					return nil
				}, WithSync())
				must(err)
				publish := func() {
					_, err := b.Publish(context.Background(), "shared.a", w+1)
					must(err)
				}
				publish()
				if i%2 == 0 {
					s.Unsubscribe()
				} else {
					must(s.Drain(context.Background()))
				}
				publish()
				if got.Load() != 1 {
					wrong.Add(1)
				}
				must(b.CreateTopic(own))
				_, err = b.Publish(context.Background(), own, nil)
				must(err)
				must(b.DeleteTopic(own))
				if _, err = b.Publish(context.Background(), own, nil); err == nil {
					wrong.Add(1)
				}
			}
		})
	}
	writers.Wait()
	close(stop)
	readers.Wait()
	require.Zero(t, wrong.Load())
	require.Zero(t, b.Stats().Subscriptions)
	requireEmptyIndex(t, &b.index)
}
