package oracles

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-b8032e04/pubsub"
)

// The clients of a history of a queue, above its publishers.
const (
	worker = 10 + iota
	workerSettling
	reader
	ender
)

// queueRound is one history of one subscription.
type queueRound struct {
	queueRules
	history
	random *rand.Rand // used before the clients begin

	broker    *pubsub.Broker
	sub       *pubsub.Subscription
	published []sending // in no order
	returned  int64     // the worker's: when its last call returned
	handled   []handling
}

type sending struct {
	client   int
	id       uint64
	err      error
	from, to int64
}

type handling struct {
	id     byte
	at     int64 // by the broker's clock: when it was published
	failed bool
}

// run lets publishers, a slow handler, a reader and mostly somebody who ends the
// subscription loose on it, and notes what each did.
func (q *queueRound) run(t *testing.T) {
	// The clock never says the same twice, so that a drop's letter, which has the time
	// of the message that caused it, says which that was.
	var clock atomic.Int64
	q.broker = pubsub.New(pubsub.WithClock(func() time.Time { return time.Unix(0, clock.Add(1)) }))
	options := []pubsub.SubscribeOption{pubsub.WithDropPolicy(q.policy), pubsub.WithQueueSize(q.size)}
	if q.limit > 0 {
		options = append(options, pubsub.WithMaxMessages(q.limit))
	}
	pace := rand.New(rand.NewPCG(q.random.Uint64(), 0)) // the handler's
	// Slow handlers keep the queue full; in a tight race it is full now and then.
	slowness, gap := 1+q.random.IntN(40), 4
	if q.random.IntN(2) == 0 {
		slowness, gap = 1+q.random.IntN(2), 1
	}
	var err error
	q.sub, err = q.broker.Subscribe("t", func(_ context.Context, msg pubsub.Message) error {
		return q.handle(msg, pace, slowness)
	}, options...)
	require.NoError(t, err)

	var clients sync.WaitGroup
	publishers, each := 2+q.random.IntN(3), 4
	sent := make([][]sending, publishers)
	for client := range publishers {
		r := rand.New(rand.NewPCG(q.random.Uint64(), 0))
		clients.Go(func() {
			for range each {
				sent[client] = append(sent[client], q.publish(client, r, gap))
			}
		})
	}
	r := rand.New(rand.NewPCG(q.random.Uint64(), 0))
	clients.Go(func() {
		for range 8 {
			pass(r.IntN(20))
			from := q.now()
			stats := q.sub.Stats()
			q.add(reader, queueStep{action: read, stats: stats}, from, q.now())
		}
	})
	end, ended := action(0), [2]int64{}
	if q.random.IntN(4) > 0 {
		end = []action{unsubscribe, drain}[q.random.IntN(2)]
		after := q.random.IntN(120)
		clients.Go(func() {
			pass(after)
			ended[0] = q.now()
			if end == unsubscribe {
				q.sub.Unsubscribe()
			} else {
				q.sub.Drain(context.Background())
			}
			ended[1] = q.now()
		})
	}
	clients.Wait()
	require.NoError(t, q.broker.Flush(context.Background()))
	settled := q.now()
	if n := len(q.handled); n > 0 {
		q.addSettled(q.handled[n-1], settled)
	}
	q.add(reader, queueStep{action: read, stats: q.sub.Stats()}, settled, q.now())
	for _, s := range sent {
		q.published = append(q.published, s...)
	}
	q.sort(t, end, ended)
	q.broker.Close()
}

func (q *queueRound) publish(client int, r *rand.Rand, gap int) sending {
	pass(r.IntN(gap))
	ctx := context.Background()
	if q.policy == pubsub.Block && r.IntN(2) == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		patience := r.IntN(30)
		impatient := make(chan struct{})
		go func() {
			defer close(impatient)
			pass(patience)
			cancel()
		}()
		defer func() { <-impatient }()
	}
	s := sending{client: client, from: q.now()}
	s.id, s.err = q.broker.Publish(ctx, "t", nil)
	s.to = q.now()
	return s
}

// handle notes that a message has been taken since the call before returned, which was
// counted in that time too.
func (q *queueRound) handle(msg pubsub.Message, pace *rand.Rand, slowness int) error {
	began := q.now()
	if n := len(q.handled); n > 0 {
		q.addSettled(q.handled[n-1], began)
	}
	h := handling{byte(msg.ID), msg.Time.UnixNano(), pace.IntN(4) == 0}
	q.handled = append(q.handled, h)
	q.add(worker, queueStep{action: take, id: h.id}, q.returned, began)
	pass(pace.IntN(slowness))
	q.returned = q.now()
	if h.failed {
		return errHandler
	}
	return nil
}

func (q *queueRound) addSettled(h handling, to int64) {
	q.add(workerSettling, queueStep{action: settle, id: h.id, failed: h.failed}, q.returned, to)
}

// sort says what became of each message.
func (q *queueRound) sort(t *testing.T, end action, ended [2]int64) {
	fates := make(map[byte]fate)
	evicts := make(map[int64]byte) // by when the message was published that had it evicted
	times := make(map[byte]int64)  // when a message was published
	for _, h := range q.handled {
		fates[h.id], times[h.id] = accepted, h.at
	}
	over := queueStep{action: end}
	for _, l := range q.broker.DeadLetters().Snapshot() {
		id := byte(l.Message.ID)
		times[id] = l.Message.Time.UnixNano()
		switch l.Reason {
		case pubsub.ReasonDroppedNewest:
			fates[id] = refused
		case pubsub.ReasonDroppedOldest:
			fates[id] = accepted
			evicts[l.Time.UnixNano()] = id
		case pubsub.ReasonCanceled:
			fates[id] = gaveUp
		case pubsub.ReasonUnsubscribed:
			fates[id] = released
			over.ended += ids([]byte{id})
		}
	}
	for _, s := range q.published {
		id := byte(s.id)
		step := queueStep{action: publish, id: id, fate: late}
		if f, ok := fates[id]; ok {
			step.fate, step.evicts = f, evicts[times[id]]
			delete(evicts, times[id])
		}
		if step.fate == gaveUp {
			require.ErrorIs(t, s.err, context.Canceled)
		} else {
			require.NoError(t, s.err)
		}
		if step.fate == released {
			require.Less(t, s.from, ended[1], "it was released by an end that had been")
		}
		q.add(s.client, step, s.from, s.to)
	}
	require.Empty(t, evicts, "a message was evicted by none")
	if end != publish {
		q.add(ender, over, ended[0], ended[1])
	}
}

// TestQueueIsLinearizable holds histories of one subscription against a bounded FIFO.
func TestQueueIsLinearizable(t *testing.T) {
	seed, rounds := seed(t), times(t, 3000)
	steps, fates, evicted, ends := 0, make(map[fate]int), 0, make(map[action]int)
	for round := range rounds {
		r := random(seed, round)
		q := &queueRound{random: r, queueRules: queueRules{
			policy: pubsub.DropPolicy(round % 3),
			size:   1 + r.IntN(4),
		}}
		if r.IntN(3) == 0 {
			q.limit = 3 + r.IntN(10)
		}
		q.run(t)
		q.check(t, q.String(), q.model())
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
		steps += len(q.ops)
		for _, op := range q.ops {
			step := op.Input.(queueStep)
			ends[step.action]++
			if step.action == publish {
				fates[step.fate]++
			}
			if step.evicts != 0 {
				evicted++
			}
		}
	}
	t.Logf("%d histories, %d steps; %d messages were accepted, %d of them evicting another, %d refused, "+
		"%d given up, %d discarded or released, %d late; %d unsubscribed, %d drained", rounds, steps,
		fates[accepted], evicted, fates[refused], fates[gaveUp], fates[released], fates[late],
		ends[unsubscribe], ends[drain])
	for _, f := range []fate{accepted, refused, gaveUp, released, late} {
		require.Positive(t, fates[f], "no message was %v", f)
	}
	require.Positive(t, evicted)
}
