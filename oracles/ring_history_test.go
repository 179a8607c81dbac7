package oracles

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/seed-b8032e04/pubsub"
)

// ringAction is one thing that is done to the dead letters.
type ringAction int

const (
	record ringAction = iota
	snapshot
	takeAll
	count
	total
)

// ringStep is one step of a history of the dead letters.
type ringStep struct {
	action  ringAction
	letters ids // of record, the one; of snapshot and takeAll, what they returned
	n       int // of count and total
}

func (s ringStep) String() string {
	switch s.action {
	case record:
		return fmt.Sprintf("record %v", s.letters)
	case snapshot:
		return fmt.Sprintf("Snapshot %v", s.letters)
	case takeAll:
		return fmt.Sprintf("Take %v", s.letters)
	case count:
		return fmt.Sprintf("Len %d", s.n)
	default:
		return fmt.Sprintf("Total %d", s.n)
	}
}

// ringState is the state of the model of the dead letters.
type ringState struct {
	kept     ids
	total    int
	recorded [4]uint64 // a set of letters
}

func (s ringState) String() string { return fmt.Sprintf("%v of %d", s.kept, s.total) }

// ringRules are those of a ring of a capacity.
type ringRules int

func (capacity ringRules) String() string { return fmt.Sprintf("capacity %d", int(capacity)) }

func (capacity ringRules) model() porcupine.Model { return stateOf(ringState{}, capacity.next) }

// next is the model: a ring that evicts its oldest. One publish records its letters one
// after the other, each at a moment of its own.
func (capacity ringRules) next(s ringState, step ringStep) (ringState, bool) {
	switch step.action {
	case record:
		if !s.mayRecord(step.letters[0]) {
			return s, false
		}
		s.total++
		s.kept += step.letters
		s.kept = s.kept[max(0, len(s.kept)-int(capacity)):]
		return s, true
	case snapshot:
		return s, s.kept == step.letters
	case takeAll:
		taken := s.kept
		s.kept = ""
		return s, taken == step.letters
	case count:
		return s, len(s.kept) == step.n
	default:
		return s, s.total == step.n
	}
}

// mayRecord records a letter, and reports whether that of the subscription before has
// been: they are served in order.
func (s *ringState) mayRecord(letter byte) bool {
	first := letter%lettersEach == 1
	before := letter - 1
	if !first && s.recorded[before/64]&(1<<(before%64)) == 0 {
		return false
	}
	s.recorded[letter/64] |= 1 << (letter % 64)
	return true
}

// ringRound is one history of the dead letters of one broker.
type ringRound struct {
	ringRules
	history
	random *rand.Rand
}

// run lets publishers make dead letters: of messages that full queues refuse, whose
// handler is stuck, and of failures in the publisher's own goroutine. Readers look on.
func (r *ringRound) run(t *testing.T) {
	broker := pubsub.New(pubsub.WithDeadLetterCapacity(int(r.ringRules)))
	refusing, failing := 1+r.random.IntN(2), r.random.IntN(2)
	running, stuck := make(chan struct{}, refusing), make(chan struct{})
	for range refusing {
		_, err := broker.Subscribe("t", func(context.Context, pubsub.Message) error {
			running <- struct{}{}
			<-stuck
			return nil
		}, pubsub.WithQueueSize(1), pubsub.WithDropPolicy(pubsub.DropNewest))
		require.NoError(t, err)
	}
	_, err := broker.Publish(context.Background(), "t", nil) // This one runs,
	require.NoError(t, err)
	for range refusing {
		<-running
	}
	_, err = broker.Publish(context.Background(), "t", nil) // this one is queued.
	require.NoError(t, err)
	for range failing {
		_, err := broker.Subscribe("t", func(context.Context, pubsub.Message) error { return errHandler }, pubsub.WithSync())
		require.NoError(t, err)
	}

	var clients sync.WaitGroup
	letters := broker.DeadLetters()
	for client := range 3 {
		pace := rand.New(rand.NewPCG(r.random.Uint64(), 0))
		clients.Go(func() {
			for range 4 {
				pass(pace.IntN(8))
				from := r.now()
				id, err := broker.Publish(context.Background(), "t", nil)
				to := r.now()
				if err != nil {
					t.Errorf("Publish: %v", err)
				}
				for sub := range refusing + failing {
					r.add(client, ringStep{action: record, letters: ids([]byte{letterID(id, uint64(sub+1))})}, from, to)
				}
			}
		})
	}
	for client := range 2 {
		pace := rand.New(rand.NewPCG(r.random.Uint64(), 0))
		clients.Go(func() {
			for range 8 {
				pass(pace.IntN(12))
				step := ringStep{action: snapshot + ringAction(pace.IntN(4))}
				from := r.now()
				switch step.action {
				case snapshot:
					step.letters = letterIDs(letters.Snapshot())
				case takeAll:
					step.letters = letterIDs(letters.Take())
				case count:
					step.n = letters.Len()
				case total:
					step.n = int(letters.Total())
				}
				r.add(3+client, step, from, r.now())
			}
		})
	}
	clients.Wait()
	from := r.now()
	r.add(3, ringStep{action: takeAll, letters: letterIDs(letters.Take())}, from, r.now())
	close(stuck)
	require.NoError(t, broker.Flush(context.Background()))
	broker.Close()
}

// lettersEach is one more than the most letters that a message can have.
const lettersEach = 4

// letterID numbers the dead letter of a message and a subscription.
func letterID(id, sub uint64) byte { return byte(lettersEach*id + sub) }

func letterIDs(letters []pubsub.DeadLetter) ids {
	found := make([]byte, len(letters))
	for i, l := range letters {
		found[i] = letterID(l.Message.ID, l.SubscriptionID)
	}
	return ids(found)
}

// TestDeadLettersAreLinearizable holds histories of the dead letters against a ring.
func TestDeadLettersAreLinearizable(t *testing.T) {
	seed, rounds := seed(t), times(t, 1000)
	steps, actions := 0, make(map[ringAction]int)
	for round := range rounds {
		random := random(seed, round)
		r := &ringRound{random: random, ringRules: ringRules(random.IntN(6))}
		r.run(t)
		r.check(t, r.String(), r.model())
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
		steps += len(r.ops)
		for _, op := range r.ops {
			actions[op.Input.(ringStep).action]++
		}
	}
	t.Logf("%d histories, %d steps; %d letters were recorded, %d Snapshots, %d Takes, %d Lens and %d Totals read",
		rounds, steps, actions[record], actions[snapshot], actions[takeAll], actions[count], actions[total])
}
