package peers

import (
	"sync"

	broadcast "github.com/dustin/go-broadcast"
)

// Broadcast is dustin/go-broadcast: one goroutine copies each value to all
// registered channels.
var Broadcast = Peer{
	Name:   "go-broadcast",
	Module: "github.com/dustin/go-broadcast",
	Traits: Traits{Ordered: true, Bounded: true, WakesAtOnce: true, BlocksEveryone: true},
	Note:   "no topics, ids or times",
	Open: func() (Bus, error) {
		return &broadcastBus{
			bus:         broadcast.NewBroadcaster(QueueSize),
			subscribers: make(map[chan any]struct{}),
		}, nil
	},
}

type broadcastBus struct {
	bus         broadcast.Broadcaster
	mu          sync.Mutex
	subscribers map[chan any]struct{}
	readers     sync.WaitGroup
}

func (b *broadcastBus) Publish(_ string, payload *Payload) error {
	b.bus.Submit(payload)
	return nil
}

func (b *broadcastBus) Subscribe(_ string, h Handler) (func(), error) {
	ch := make(chan any, QueueSize)
	b.readers.Go(func() {
		for v := range ch {
			p := v.(*Payload)
			h(p.Seq, p.Body)
		}
	})
	b.mu.Lock()
	b.subscribers[ch] = struct{}{}
	b.mu.Unlock()
	b.bus.Register(ch)
	return func() { b.end(ch) }, nil
}

// end closes the channel, which the broadcaster leaves to whoever made it.
func (b *broadcastBus) end(ch chan any) {
	b.mu.Lock()
	_, live := b.subscribers[ch]
	delete(b.subscribers, ch)
	b.mu.Unlock()
	if live {
		b.bus.Unregister(ch)
		close(ch)
	}
}

func (b *broadcastBus) Settle() error { return nil }

func (b *broadcastBus) Close() error {
	b.mu.Lock()
	var live []chan any
	for ch := range b.subscribers {
		live = append(live, ch)
	}
	b.mu.Unlock()
	for _, ch := range live {
		b.end(ch)
	}
	b.readers.Wait()
	return b.bus.Close()
}
