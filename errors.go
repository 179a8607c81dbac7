package pubsub

import "errors"

// The sentinels that this package's errors wrap. Test for them with
// [errors.Is]: most errors add the offending value to the text.
var (
	// ErrClosed says that the broker has been closed or is shutting down. It
	// comes before any other error.
	ErrClosed = errors.New("pubsub: broker closed")

	// ErrInvalidTopic says that a name is not a topic: it is empty, has an
	// empty segment or a wildcard, or is longer than 65,535 bytes.
	ErrInvalidTopic = errors.New("pubsub: invalid topic")

	// ErrInvalidPattern says that a name is not a pattern: it is empty, has an
	// empty segment, a wildcard that is not a whole segment or a '#' before
	// the last segment, or is longer than 65,535 bytes.
	ErrInvalidPattern = errors.New("pubsub: invalid pattern")

	// ErrUnknownTopic says that [Broker.CreateTopic] has not made the topic, or
	// that [Broker.DeleteTopic] has removed it since.
	ErrUnknownTopic = errors.New("pubsub: unknown topic")

	// ErrInvalidOption says that an option's value is out of its range, or that
	// the option does not go with [Broker.Pull].
	ErrInvalidOption = errors.New("pubsub: invalid option")

	// ErrNilHandler says that [Broker.Subscribe] was given no handler.
	ErrNilHandler = errors.New("pubsub: nil handler")

	// ErrNoSubscription says that the subscription of a dead letter given to
	// [Broker.Redeliver] takes nothing more, or is not of this broker.
	ErrNoSubscription = errors.New("pubsub: no such subscription")

	// ErrInHandler says that a call would have waited for the handler that
	// made it, and did not wait.
	ErrInHandler = errors.New("pubsub: would wait for the calling handler")

	// ErrGoexit is the Err of the dead letter of a handler that ended its
	// goroutine with [runtime.Goexit], as testing.T.FailNow does.
	ErrGoexit = errors.New("pubsub: handler called runtime.Goexit")
)
