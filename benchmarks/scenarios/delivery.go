package scenarios

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-b8032e04/pubsub/benchmarks/peers"
)

const hotTopic = "orders.created.eu"

// plan is what a delivery is made of. Zero values mean one of each.
type plan struct {
	peer       peers.Peer
	patterns   []string // the subscriptions that match the hot topic
	publishers int
	ownTopics  bool // each publisher has a topic and subscribers of its own
	others     []string
	body       int
	batch      int           // publishes under way at a time
	extra      peers.Handler // of one more subscription, whose messages are not counted
	release    func()        // lets extra return, before the bus is closed
}

// lane is one publisher, its topic and who gets its messages.
type lane struct {
	topic   string
	tallies []*tally
	ring    []peers.Payload
	sent    int
	sum     uint64 // of the numbers sent
}

func (l *lane) publish(bus peers.Bus, n int) error {
	mask := len(l.ring) - 1
	for range n {
		p := &l.ring[l.sent&mask]
		if err := bus.Publish(l.topic, p); err != nil {
			return err
		}
		l.sent++
		l.sum += uint64(uint32(p.Seq))
	}
	return nil
}

// delivery publishes in rounds: so many messages as fast as the bus takes them,
// then a wait until every subscriber has handled all of them. That bounds what
// a peer without limits can pile up, and is the same for all.
type delivery struct {
	plan
	bus     peers.Bus
	lanes   []*lane
	tallies []*tally
	all     *rendezvous
	stray   atomic.Uint64 // deliveries to subscriptions that do not match
}

// deliver makes a trial of the plan; each operation is one publish, delivered to
// all.
func deliver(p plan) (*Trial, error) {
	d, err := openDelivery(p)
	if err != nil {
		return nil, err
	}
	return &Trial{Run: d.run, Close: d.close}, nil
}

func openDelivery(p plan) (*delivery, error) {
	bus, err := p.peer.Open()
	if err != nil {
		return nil, err
	}
	p.publishers = max(p.publishers, 1)
	if p.batch == 0 {
		p.batch = math.MaxInt
	}
	d := &delivery{plan: p, bus: bus, all: newRendezvous()}
	if err := d.subscribe(); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

func (d *delivery) subscribe() error {
	for i := range d.publishers {
		l := &lane{topic: hotTopic, ring: newRing(i, d.body)}
		d.lanes = append(d.lanes, l)
		if i > 0 && !d.ownTopics {
			l.tallies = d.lanes[0].tallies
			continue
		}
		for _, pattern := range d.patterns {
			if d.ownTopics {
				l.topic = fmt.Sprintf("%s.%d", hotTopic, i)
				pattern = l.topic
			}
			t := &tally{all: d.all, ring: uint32(len(l.ring)), body: d.body}
			h := t.ordered
			if !d.peer.Traits.Ordered {
				h = t.unordered
			}
			if _, err := d.bus.Subscribe(pattern, h); err != nil {
				return err
			}
			l.tallies = append(l.tallies, t)
			d.tallies = append(d.tallies, t)
		}
	}
	if d.extra != nil {
		if _, err := d.bus.Subscribe(hotTopic, d.extra); err != nil {
			return err
		}
	}
	for _, pattern := range d.others {
		if _, err := d.bus.Subscribe(pattern, func(uint64, []byte) { d.stray.Add(1) }); err != nil {
			return err
		}
	}
	return d.bus.Settle()
}

// newRing makes the payloads that a publisher sends over and over. Large ones
// are fewer, so that their encodings do not fill the memory.
func newRing(publisher, body int) []peers.Payload {
	size := 4096
	if body > 4096 {
		size = 512
	}
	content := make([]byte, body)
	ring := make([]peers.Payload, size)
	for i := range ring {
		ring[i] = peers.NewPayload(uint64(publisher)<<32|uint64(i), content)
	}
	return ring
}

func (d *delivery) run(n int) (Values, error) {
	start := time.Now()
	for left := n; left > 0; {
		k := min(left, d.batch)
		left -= k
		if err := d.round(k); err != nil {
			return nil, err
		}
	}
	return Values{"publish": nsPerOp(start, n)}, d.check()
}

// round publishes n messages, shared out among the publishers, and waits until
// they are handled.
func (d *delivery) round(n int) error {
	d.expect(n)
	if len(d.lanes) == 1 {
		if err := d.lanes[0].publish(d.bus, n); err != nil {
			return err
		}
		return d.all.wait()
	}
	errs := make([]error, len(d.lanes))
	var publishers sync.WaitGroup
	for i, l := range d.lanes {
		publishers.Go(func() { errs[i] = l.publish(d.bus, d.share(n, i)) })
	}
	publishers.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return d.all.wait()
}

// share is publisher i's part of n publishes.
func (d *delivery) share(n, i int) int { return (n + i) / len(d.lanes) }

// expect tells the tallies what is to come.
func (d *delivery) expect(n int) {
	if !d.ownTopics {
		d.all.missing.Store(int64(len(d.tallies)))
		for _, t := range d.tallies {
			t.want.Add(uint64(n))
		}
		return
	}
	missing := 0
	for i, l := range d.lanes {
		if share := d.share(n, i); share > 0 {
			missing += len(l.tallies)
		}
	}
	d.all.missing.Store(int64(missing))
	for i, l := range d.lanes {
		for _, t := range l.tallies {
			t.want.Add(uint64(d.share(n, i)))
		}
	}
}

func (d *delivery) check() error {
	var all uint64
	for _, l := range d.lanes {
		all += l.sum
	}
	for _, l := range d.lanes {
		sum := all
		if d.ownTopics {
			sum = l.sum
		}
		for _, t := range l.tallies {
			if err := t.check(d.peer.Traits.Ordered, sum); err != nil {
				return err
			}
		}
	}
	if n := d.stray.Load(); n > 0 {
		return fmt.Errorf("%d deliveries to subscriptions that do not match", n)
	}
	return nil
}

// close checks again, for what arrives when it should not.
func (d *delivery) close() error {
	if d.release != nil {
		d.release()
	}
	if err := d.bus.Close(); err != nil {
		return err
	}
	return d.check()
}
