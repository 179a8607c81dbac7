package oracles

import (
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-b8032e04/pubsub"
)

// TestWrongHistories sees that the checks can fail: right histories pass, and those
// that differ from them in one thing do not.
func TestWrongHistories(t *testing.T) {
	put := func(id byte) queueStep { return queueStep{action: publish, id: id} }
	evict := func(id, evicts byte) queueStep { return queueStep{action: publish, id: id, evicts: evicts} }
	ends := func(id byte, f fate) queueStep { return queueStep{action: publish, id: id, fate: f} }
	start := func(id byte) queueStep { return queueStep{action: take, id: id} }
	finish := func(id byte) queueStep { return queueStep{action: settle, id: id} }
	stats := func(delivered, dropped uint64, queued, running int) queueStep {
		return queueStep{action: read, stats: pubsub.SubscriptionStats{
			Matched:   delivered + dropped + uint64(queued+running),
			Delivered: delivered, Dropped: dropped, Queued: queued, Running: running,
		}}
	}
	discard := func(letters ...byte) queueStep { return queueStep{action: unsubscribe, ended: ids(letters)} }
	release := func(letters ...byte) queueStep { return queueStep{action: drain, ended: ids(letters)} }
	oldest := queueRules{policy: pubsub.DropOldest, size: 2}.model()
	newest := queueRules{policy: pubsub.DropNewest, size: 2}.model()
	block := queueRules{policy: pubsub.Block, size: 2}.model()
	limited := queueRules{policy: pubsub.DropOldest, size: 2, limit: 1}.model()

	first := func(messages ...uint64) (letters ids) { // of each message
		for _, id := range messages {
			letters += ids([]byte{letterID(id, 1)})
		}
		return letters
	}
	letter := func(id uint64) ringStep { return ringStep{action: record, letters: first(id)} }
	second := ringStep{action: record, letters: ids([]byte{letterID(1, 2)})} // of message 1
	shows := func(messages ...uint64) ringStep { return ringStep{action: snapshot, letters: first(messages...)} }
	takes := func(messages ...uint64) ringStep { return ringStep{action: takeAll, letters: first(messages...)} }
	length := func(n int) ringStep { return ringStep{action: count, n: n} }
	recorded := func(n int) ringStep { return ringStep{action: total, n: n} }
	ring := ringRules(2).model()

	for _, tt := range []struct {
		name  string
		model porcupine.Model
		steps *history
		right bool
	}{
		{"in order", oldest, inTurn(put(1), put(2), start(1), finish(1), start(2)), true},
		{"taken out of order", oldest, inTurn(put(1), put(2), start(2), finish(2), start(1)), false},
		{"published at once", oldest, atOnce(put(1), put(2), start(2), finish(2), start(1)), true},
		{"taken twice", oldest, inTurn(put(1), start(1), finish(1), start(1)), false},
		{"taken before it is published", oldest, inTurn(start(1), put(1)), false},
		{"two calls overlap", oldest, inTurn(put(1), put(2), start(1), start(2), finish(1)), false},
		{"evicts the oldest", oldest, inTurn(put(1), put(2), evict(3, 1), start(2)), true},
		{"evicts the newest", oldest, inTurn(put(1), put(2), evict(3, 2), start(1)), false},
		{"evicts with room", oldest, inTurn(put(1), evict(2, 1)), false},
		{"evicts what has started", oldest, inTurn(put(1), start(1), put(2), evict(3, 1)), false},
		{"does not evict", oldest, inTurn(put(1), put(2), put(3)), false},
		{"DropNewest evicts", newest, inTurn(put(1), put(2), evict(3, 1)), false},
		{"refuses", newest, inTurn(put(1), put(2), ends(3, refused), stats(0, 1, 2, 0)), true},
		{"refuses with room", newest, inTurn(put(1), ends(2, refused)), false},
		{"takes one too many", newest, inTurn(put(1), put(2), put(3)), false},
		{"gives up", block, inTurn(put(1), put(2), ends(3, gaveUp)), true},
		{"gives up with room", block, inTurn(put(1), start(1), put(2), ends(3, gaveUp)), false},
		{"Block lets in too many", block, inTurn(put(1), put(2), put(3)), false},
		{"counts", block, inTurn(put(1), start(1), put(2), stats(0, 0, 1, 1), finish(1), stats(1, 0, 1, 0)), true},
		{"counts a call that has ended", block, inTurn(put(1), start(1), finish(1), stats(0, 0, 0, 1)), false},
		{"counts a message nowhere", block, inTurn(put(1), put(2), start(1), stats(0, 0, 0, 1)), false},
		{"discards", block, inTurn(put(1), put(2), discard(1, 2), ends(3, late)), true},
		{"discards in another order", block, inTurn(put(1), put(2), discard(2, 1)), false},
		{"forgets one", block, inTurn(put(1), put(2), discard(1)), false},
		{"starts after the end", block, inTurn(put(1), discard(), start(1)), false},
		{"is late before the end", block, inTurn(ends(1, late), discard()), false},
		{"releases who waits", block, inTurn(put(1), put(2), discard(1, 2, 3), ends(3, released)), true},
		{"releases who need not wait", block, inTurn(put(1), discard(1, 2), ends(2, released)), false},
		{"drains", block, inTurn(put(1), put(2), release(3), ends(3, released), start(1), ends(4, late)), true},
		{"drains and takes more", block, inTurn(release(), put(1)), false},
		{"has had its messages", limited, inTurn(put(1), ends(2, late), start(1)), true},
		{"takes more than its messages", limited, inTurn(put(1), put(2)), false},

		{"keeps the newest", ring, inTurn(letter(1), letter(2), letter(3), shows(2, 3), length(2), recorded(3)), true},
		{"evicts the newest letter", ring, inTurn(letter(1), letter(2), letter(3), shows(1, 2)), false},
		{"evicts none", ring, inTurn(letter(1), letter(2), letter(3), length(3)), false},
		{"another order", ring, inTurn(letter(1), letter(2), shows(2, 1)), false},
		{"recorded at once", ring, atOnce(letter(1), letter(2), shows(2, 1)), true},
		{"Take empties", ring, inTurn(letter(1), takes(1), length(0), letter(2), takes(2)), true},
		{"Take leaves what it took", ring, inTurn(letter(1), takes(1), shows(1)), false},
		{"Take loses a letter", ring, inTurn(letter(1), letter(2), takes(1), takes()), false},
		{"two Takes have one letter", ring, atOnce(letter(1), takes(1), takes(1)), false},
		{"forgets to count", ring, inTurn(letter(1), takes(1), recorded(0)), false},
		{"one subscription after the other", ring, inTurn(letter(1), letter(2), second), true},
		{"a later subscription first", ring, inTurn(second, letter(1)), false},
		{"counts before", ring, inTurn(recorded(1), letter(1)), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.right, porcupine.CheckOperations(tt.model, tt.steps.ops))
		})
	}
}

// TestWrongHistoryIsWritten sees that a person can read why a history is wrong.
func TestWrongHistoryIsWritten(t *testing.T) {
	model := queueRules{policy: pubsub.DropOldest, size: 1}.model()
	h := inTurn(
		queueStep{action: publish, id: 1},
		queueStep{action: publish, id: 2, evicts: 1},
		queueStep{action: take, id: 1},
	)
	result, info := porcupine.CheckOperationsVerbose(model, h.ops, 0)
	require.Equal(t, porcupine.Illegal, result)
	text := written(model, h.ops, info)
	assert.Contains(t, text, "     3    4        0  publish 2: accepted, evicts 1\n")
	assert.Contains(t, text, "the longest right order found, 2 of 3")
	assert.Contains(t, text, "queue [2], running 0, 1 taken")
}
