// Package pubsubtest is for tests of code that publishes to or subscribes at a
// [pubsub.Broker], as net/http/httptest is for code that serves or calls HTTP.
//
// [New] makes a broker that lives as long as the test. At its end the broker is shut
// down, and the test fails when a handler is stuck or there are dead letters that it did
// not expect. A [Recorder] keeps what a pattern receives and waits for the message the
// test is about, so no test sleeps:
//
//	func TestPlace(t *testing.T) {
//		b := pubsubtest.New(t)
//		events := b.Record("orders.*")
//
//		shop := NewShop(b.Broker)
//		if err := shop.Place(t.Context(), "A-17"); err != nil {
//			t.Fatal(err)
//		}
//
//		if msg := events.Wait(1); msg.Topic != "orders.placed" {
//			t.Errorf("got %s", msg.Topic)
//		}
//	}
//
// The examples show this for a service that publishes and for one that subscribes.
//
// # When nothing may come
//
// That there is no message, or no further one, is seen when there is nothing left to do:
// after [pubsub.Broker.Flush], once for each topic that a message leads to, or, in a
// bubble of testing/synctest, after synctest.Wait:
//
//	if err := b.Flush(t.Context()); err != nil {
//		t.Fatal(err)
//	}
//	if msgs := events.Messages(); len(msgs) > 1 {
//		t.Errorf("more than one event: %v", msgs)
//	}
//
// # Dead letters
//
// A test that is about a failure or a drop says so. [Broker.WaitDeadLetter] waits for
// one and returns it; [Broker.AllowDeadLetters] lets any number pass that have a topic
// and a reason. What is taken with [pubsub.DeadLetters.Take], by the test or by what it
// tests, has been dealt with and does not fail the test either.
//
// # Time
//
// A wait ends as soon as it has what it waits for, so its limit, ten seconds unless
// Timeout says otherwise, only counts when the test fails.
//
// In a bubble of testing/synctest the limit is virtual time: a message that is missing
// fails the test at once, and so does a stuck handler. Make the broker inside the bubble
// and with the bubble's t. To wait for what happens tomorrow, set Timeout to more than a
// day:
//
//	func TestRemind(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			b := pubsubtest.New(t)
//			b.Timeout = 48 * time.Hour
//			forgotten := b.Record("carts.forgotten")
//			...
//			forgotten.Wait(1) // comes after 24 hours, which take no time
//		})
//	}
//
// # Goroutines
//
// Everything here that can stop the test (New, Record, AllowDeadLetters and the waits) is
// called in the goroutine of the test it was given, as t.FailNow must be. In a subtest,
// make a recorder with the subtest's t, with [Record]: it may be of a broker that its
// parent has made. Messages of a Recorder may be called from anywhere. What is published
// when the test is over is not recorded and does no harm.
package pubsubtest
