package peers

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	patience = 30 * time.Second
	topic    = "orders.created.eu"
)

func open(t *testing.T, p Peer) Bus {
	t.Helper()
	bus, err := p.Open()
	if err != nil {
		t.Fatal(err)
	}
	return bus
}

func subscribe(t *testing.T, bus Bus, pattern string, h Handler) (cancel func()) {
	t.Helper()
	cancel, err := bus.Subscribe(pattern, h)
	if err != nil {
		t.Fatal(err)
	}
	if err := bus.Settle(); err != nil {
		t.Fatal(err)
	}
	return cancel
}

func publish(t *testing.T, bus Bus, topic string, seqs ...uint64) {
	t.Helper()
	for _, seq := range seqs {
		p := NewPayload(seq, []byte("body"))
		if err := bus.Publish(topic, &p); err != nil {
			t.Fatal(err)
		}
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// record is what one subscriber got.
type record struct {
	mu     sync.Mutex
	seqs   []uint64
	bodies map[string]int
}

func (r *record) handle(seq uint64, body []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seqs = append(r.seqs, seq)
	if r.bodies == nil {
		r.bodies = make(map[string]int)
	}
	r.bodies[string(body)]++
}

func (r *record) len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.seqs)
}

func eachPeer(t *testing.T, test func(t *testing.T, p Peer)) {
	for _, p := range All() {
		t.Run(p.Name, func(t *testing.T) { test(t, p) })
	}
}

// TestEachDeliveredOnce publishes less than a queue at a time, so that those that
// drop have no reason to.
func TestEachDeliveredOnce(t *testing.T) {
	eachPeer(t, func(t *testing.T, p Peer) {
		bus := open(t, p)
		records := make([]record, 3)
		for i := range records {
			subscribe(t, bus, topic, records[i].handle)
		}
		const rounds, perRound = 20, QueueSize / 2
		for round := range rounds {
			for i := range perRound {
				publish(t, bus, topic, uint64(round*perRound+i))
			}
			for i := range records {
				eventually(t, "all are delivered", func() bool { return records[i].len() >= (round+1)*perRound })
			}
		}
		if err := bus.Close(); err != nil {
			t.Fatal(err)
		}
		for i := range records {
			checkOnce(t, &records[i], rounds*perRound, p.Traits.Ordered)
		}
	})
}

func checkOnce(t *testing.T, r *record, n int, ordered bool) {
	t.Helper()
	times := make(map[uint64]int)
	for i, seq := range r.seqs {
		times[seq]++
		if ordered && seq != uint64(i) {
			t.Fatalf("message %d came as number %d", seq, i)
		}
	}
	for i := range n {
		if times[uint64(i)] != 1 {
			t.Errorf("message %d was delivered %d times", i, times[uint64(i)])
		}
	}
	if len(r.seqs) != n || r.bodies["body"] != n {
		t.Errorf("%d messages and %d bodies instead of %d", len(r.seqs), r.bodies["body"], n)
	}
}

func TestTopics(t *testing.T) {
	eachPeer(t, func(t *testing.T, p Peer) {
		if !p.Traits.Topics {
			t.Skip("it has no topics")
		}
		bus := open(t, p)
		var right, wrong record
		subscribe(t, bus, topic, right.handle)
		subscribe(t, bus, "orders.created.us", wrong.handle)
		publish(t, bus, "orders.deleted.eu", 0)
		publish(t, bus, topic, 1)
		eventually(t, "the subscriber has it", func() bool { return right.len() > 0 })
		if err := bus.Close(); err != nil {
			t.Fatal(err)
		}
		if right.len() != 1 || wrong.len() != 0 {
			t.Errorf("%d and %d deliveries", right.len(), wrong.len())
		}
	})
}

func TestWildcards(t *testing.T) {
	eachPeer(t, func(t *testing.T, p Peer) {
		if !p.Traits.Wildcards {
			t.Skip("it has no wildcards")
		}
		bus := open(t, p)
		var got atomic.Int64
		for _, pattern := range []string{"orders.*.eu", "orders.#", "#", "*.*.*"} {
			subscribe(t, bus, pattern, func(uint64, []byte) { got.Add(1) })
		}
		for _, pattern := range []string{"orders.*", "parcels.#", topic + ".#"} {
			subscribe(t, bus, pattern, func(uint64, []byte) { t.Errorf("%s matched", pattern) })
		}
		publish(t, bus, topic, 0)
		eventually(t, "all four have it", func() bool { return got.Load() >= 4 })
		if err := bus.Close(); err != nil {
			t.Fatal(err)
		}
		if got.Load() != 4 {
			t.Errorf("%d deliveries instead of 4", got.Load())
		}
	})
}

func TestCancel(t *testing.T) {
	eachPeer(t, func(t *testing.T, p Peer) {
		bus := open(t, p)
		var stays, goes record
		cancel := subscribe(t, bus, topic, goes.handle)
		subscribe(t, bus, topic, stays.handle)
		publish(t, bus, topic, 0)
		eventually(t, "both have the first", func() bool { return stays.len() > 0 && goes.len() > 0 })
		cancel()
		if err := bus.Settle(); err != nil {
			t.Fatal(err)
		}
		publish(t, bus, topic, 1)
		eventually(t, "one has the second", func() bool { return stays.len() > 1 })
		if err := bus.Close(); err != nil {
			t.Fatal(err)
		}
		if stays.len() != 2 || goes.len() != 1 {
			t.Errorf("%d and %d deliveries", stays.len(), goes.len())
		}
	})
}

// TestStuckSubscriber holds each peer to what its traits say of a publisher
// whose subscriber never returns.
func TestStuckSubscriber(t *testing.T) {
	eachPeer(t, func(t *testing.T, p Peer) {
		bus := open(t, p)
		release := make(chan struct{})
		subscribe(t, bus, topic, func(uint64, []byte) { <-release })
		n := 10 * QueueSize
		if p.Name == KelindarEvent.Name {
			n = 200_000 // its queue grows to 50,000
		}
		done := make(chan error, 1)
		go func() {
			payload := NewPayload(0, nil)
			for range n {
				if err := bus.Publish(topic, &payload); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
		if p.Traits.BlocksEveryone {
			select {
			case err := <-done:
				t.Errorf("the publisher was not stopped: %v", err)
				done <- err
			case <-time.After(300 * time.Millisecond):
			}
		} else {
			select {
			case err := <-done:
				done <- err
			case <-time.After(patience):
				t.Error("the publisher was stopped")
			}
		}
		close(release)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := bus.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestPayload(t *testing.T) {
	p := NewPayload(42, []byte("body"))
	if seq, body := decode(p.Wire); seq != p.Seq || string(body) != "body" {
		t.Errorf("%d %q", seq, body)
	}
}

func TestNATSPattern(t *testing.T) {
	for pattern, want := range map[string]string{
		"#": ">", "a.#": "a.>", "a.*.b": "a.*.b", "a": "a",
	} {
		if got := natsPattern(pattern); got != want {
			t.Errorf("%s is %s instead of %s", pattern, got, want)
		}
	}
}

func TestNamesAreUnique(t *testing.T) {
	seen := make(map[string]bool)
	var names []string
	for _, p := range All() {
		names = append(names, p.Name)
	}
	for _, m := range Matchers() {
		names = append(names, m.Name)
	}
	for _, name := range names {
		if seen[name] {
			t.Errorf("two are called %s", name)
		}
		seen[name] = true
	}
}

func TestIndexes(t *testing.T) {
	patterns := []string{topic, "orders.*.eu", "orders.#", "*.created.*", "#", "orders.created", "orders.*", "parcels.#", topic}
	for _, m := range Matchers() {
		t.Run(m.Name, func(t *testing.T) {
			index, err := m.Open()
			if err != nil {
				t.Fatal(err)
			}
			var removes []func()
			for _, p := range patterns {
				remove, err := index.Insert(index.Pattern(p))
				if err != nil {
					t.Fatal(err)
				}
				removes = append(removes, remove)
			}
			check := func(when string, want int) {
				t.Helper()
				for range 2 { // the second from a cache, where there is one
					if got := index.Match(index.Topic(topic)); got != want {
						t.Errorf("%s: %d matches instead of %d", when, got, want)
					}
				}
			}
			check("all present", 6)
			for i, gone := range []int{8, 1, 4} {
				removes[gone]()
				check(fmt.Sprintf("%d removed", i+1), 5-i)
			}
		})
	}
}
