package oracles

import (
	"fmt"
	"strings"

	"github.com/anishathalye/porcupine"

	"github.com/seed-b8032e04/pubsub"
)

// action is one thing that is done to a queue, or that it does.
type action int

const (
	publish action = iota
	take           // the worker starts a call
	settle         // the call has returned
	read           // Stats
	unsubscribe
	drain
)

// fate is what became of a published message. It is known when all is over, from the
// handler's calls and the dead letters.
type fate int

const (
	accepted fate = iota
	refused       // by DropNewest
	gaveUp        // waiting for room
	released      // its dead letter says that the subscription ended: queued, or waiting for room
	late          // nothing became of it
)

func (f fate) String() string {
	return [...]string{"accepted", "refused", "gave up", "released or discarded", "late"}[f]
}

// queueStep is one step of a history of a queue.
type queueStep struct {
	action action
	id     byte
	fate   fate // of publish
	evicts byte // of publish: the message that had to go, or 0
	failed bool // of settle
	stats  pubsub.SubscriptionStats
	ended  ids // of unsubscribe and drain: whose dead letters say so, in order
}

func (s queueStep) String() string {
	switch s.action {
	case publish:
		text := fmt.Sprintf("publish %d: %v", s.id, s.fate)
		if s.evicts != 0 {
			text += fmt.Sprintf(", evicts %d", s.evicts)
		}
		return text
	case take:
		return fmt.Sprintf("take %d", s.id)
	case settle:
		return fmt.Sprintf("settle %d, failed %v", s.id, s.failed)
	case read:
		return fmt.Sprintf("stats %+v", s.stats)
	case unsubscribe:
		return fmt.Sprintf("unsubscribe, discards and releases %v", s.ended)
	default:
		return fmt.Sprintf("drain, releases %v", s.ended)
	}
}

// queueState is the state of the model of a queue.
type queueState struct {
	phase    phase
	queue    ids
	running  byte
	took     int
	released ids // whose publishers waited at the end, and have not been seen to return
	counts   pubsub.SubscriptionStats
}

func (s queueState) String() string {
	text := fmt.Sprintf("queue %v, running %d, %d taken", s.queue, s.running, s.took)
	if s.phase != open {
		text += fmt.Sprintf(", %v, still to return %v", s.phase, s.released)
	}
	return text
}

// queueRules are those of one subscription.
type queueRules struct {
	policy pubsub.DropPolicy
	size   int
	limit  int // 0 is none
}

func (q queueRules) String() string {
	return fmt.Sprintf("%v, size %d, max messages %d", q.policy, q.size, q.limit)
}

func (q queueRules) model() porcupine.Model { return stateOf(queueState{}, q.next) }

// next is the model: a bounded FIFO of a policy, and one worker.
func (q queueRules) next(s queueState, step queueStep) (queueState, bool) {
	full := len(s.queue) == q.size
	switch step.action {
	case publish:
		return q.publish(s, step, full)
	case take:
		if s.phase == closed || s.running != 0 || len(s.queue) == 0 || s.queue[0] != step.id {
			return s, false
		}
		s.running, s.queue = step.id, s.queue[1:]
	case settle:
		if s.running != step.id {
			return s, false
		}
		s.running = 0
		if step.failed {
			s.counts.Failed++
		} else {
			s.counts.Delivered++
		}
	case read:
		return s, s.stats() == step.stats
	case unsubscribe:
		waiting, ok := strings.CutPrefix(string(step.ended), string(s.queue))
		if !ok || waiting != "" && !(full && s.phase == open && q.policy == pubsub.Block) {
			return s, false
		}
		s.phase, s.queue, s.released = closed, "", ids(waiting)
		s.counts.Dropped += uint64(len(step.ended))
	case drain:
		if step.ended != "" && !(full && s.phase == open && q.policy == pubsub.Block) {
			return s, false
		}
		s.phase, s.released = draining, step.ended
		s.counts.Dropped += uint64(len(step.ended))
	}
	return s, true
}

func (q queueRules) publish(s queueState, step queueStep, full bool) (queueState, bool) {
	switch step.fate {
	case late:
		return s, s.phase != open
	case refused:
		s.counts.Dropped++
		return s, s.phase == open && full && q.policy == pubsub.DropNewest
	case gaveUp:
		s.counts.Dropped++
		return s, s.phase == open && full && q.policy == pubsub.Block
	case released:
		if s.phase != open {
			i := strings.IndexByte(string(s.released), step.id)
			if i < 0 {
				return s, false
			}
			s.released = s.released[:i] + s.released[i+1:] // Counted when it was released.
			return s, true
		}
	}
	if s.phase != open || full != (step.evicts != 0) {
		return s, false
	}
	if full {
		if q.policy != pubsub.DropOldest || s.queue[0] != step.evicts {
			return s, false
		}
		s.queue = s.queue[1:]
		s.counts.Dropped++
		s.took--
	}
	s.queue += ids([]byte{step.id})
	s.took++
	if s.took == q.limit {
		s.phase = draining
	}
	return s, true
}

func (s queueState) stats() pubsub.SubscriptionStats {
	st := s.counts
	st.Queued = len(s.queue)
	if s.running != 0 {
		st.Running = 1
	}
	st.Matched = st.Delivered + st.Failed + st.Dropped + uint64(st.Queued+st.Running)
	return st
}
