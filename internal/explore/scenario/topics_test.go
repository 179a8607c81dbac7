package scenario

import (
	"errors"

	"github.com/seed-b8032e04/pubsub"
)

// topic is what one goroutine has done to a topic of a broker with strict topics.
type topic struct {
	creating, created int // when it last began and returned
	deleting, deleted int
}

// lasts reports whether the topic has been there from a moment until now.
func (t *topic) lasts(from int) bool {
	return t != nil && t.created > 0 && t.created < from && t.deleting < t.created
}

// lacks reports whether it has not been there from a moment until now.
func (t *topic) lacks(from int) bool {
	return t == nil || t.creating == 0 || t.deleted > t.creating && t.deleted < from
}

// create declares a topic, of which this goroutine has the care.
func (a *actor) create(name string) {
	w := a.w
	t := w.topics[name]
	if t == nil {
		t = new(topic)
		w.topics[name] = t
	}
	closed := w.closed > 0
	t.creating = a.does("create topic %s", name)
	err := w.broker.CreateTopic(name)
	ended := a.did(err)
	if err == nil {
		t.created = ended
	}
	a.keeps(err, closed)
}

// delete takes it back.
func (a *actor) delete(name string) {
	w := a.w
	t := w.topics[name]
	deleting, deleted := t.deleting, t.deleted
	closed := w.closed > 0
	t.deleting = a.does("delete topic %s", name)
	err := w.broker.DeleteTopic(name)
	t.deleted = a.did(err)
	if err != nil {
		t.deleting, t.deleted = deleting, deleted
	}
	a.keeps(err, closed)
}

func (a *actor) keeps(err error, closed bool) {
	if err == nil && closed {
		a.w.fail("Topics: changed after Close")
	}
	if err != nil && (!errors.Is(err, pubsub.ErrClosed) || a.w.closing == 0) {
		a.w.fail("Topics: %v", err)
	}
}
