package pubsubtest_test

import (
	"context"
	"errors"
	"testing"

	"github.com/seed-b8032e04/pubsub"
	"github.com/seed-b8032e04/pubsub/pubsubtest"
)

// errNoAddress is why a mail is not sent.
var errNoAddress = errors.New("no address")

// Mailer is a service that subscribes: it sends a mail for each new customer, and
// publishes that it has.
type Mailer struct{ bus *pubsub.Broker }

// Start begins to listen.
func (m *Mailer) Start() error {
	_, err := m.bus.Subscribe("customers.created", pubsub.Typed(m.welcome), pubsub.WithName("mailer"))
	return err
}

func (m *Mailer) welcome(ctx context.Context, _ pubsub.Message, address string) error {
	if address == "" {
		return errNoAddress
	}
	_, err := m.bus.Publish(ctx, "mails.sent", address)
	return err
}

// testMailer is how to test Mailer. In your package it is TestMailer(t *testing.T).
func testMailer(t testing.TB) {
	b := pubsubtest.New(t)
	mails := b.Record("mails.*")
	mailer := &Mailer{bus: b.Broker}
	if err := mailer.Start(); err != nil {
		t.Fatal(err)
	}

	// Publish does not wait for the mailer, Wait does.
	if _, err := b.Publish(t.Context(), "customers.created", "ann@example.com"); err != nil {
		t.Fatal(err)
	}
	if msg := mails.Wait(1); msg.Payload != "ann@example.com" {
		t.Errorf("a mail to %v", msg.Payload)
	}

	// A failure of the mailer is a dead letter. One that is not waited for fails the test.
	if _, err := b.Publish(t.Context(), "customers.created", ""); err != nil {
		t.Fatal(err)
	}
	letter := b.WaitDeadLetter("customers.*", pubsub.ReasonError)
	if !errors.Is(letter.Err, errNoAddress) {
		t.Errorf("failed with %v", letter.Err)
	}
	if msgs := mails.Messages(); len(msgs) != 1 {
		t.Errorf("mails: %v", msgs)
	}
}

// A service that subscribes: publish what it listens to, and wait for what it does. What
// it does is a message here; if it calls something instead, let a fake of that send on a
// channel.
func Example_subscriber() {
	run("TestMailer", testMailer)
	// Output: --- PASS: TestMailer
}
