package pubsub_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/seed-b8032e04/pubsub"
)

// A printer that is out of paper fails a thousand times: the log has the first letters
// in full and then how many more there were.
func ExampleDeadLetterLog() {
	ctx := context.Background()
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, attr slog.Attr) slog.Attr {
			if attr.Value.Kind() == slog.KindTime {
				return slog.Attr{} // so that the output is the same every time
			}
			return attr
		},
	}))
	letters := &pubsub.DeadLetterLog{Logger: logger, Interval: time.Minute, Burst: 2}
	b := pubsub.New(pubsub.WithDeadLetterHandler(letters.Handle))
	_, err := b.Subscribe("orders.*", func(context.Context, pubsub.Message) error {
		return errors.New("out of paper")
	}, pubsub.WithName("printer"), pubsub.WithDropPolicy(pubsub.Block))
	if err != nil {
		log.Fatal(err)
	}
	for n := range 1000 {
		if _, err := b.Publish(ctx, "orders.paid", fmt.Sprint("A-", n)); err != nil {
			log.Fatal(err)
		}
	}
	if err := b.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	letters.Flush() // after Shutdown, when there are no more to come
	// Output:
	// level=ERROR msg="message not handled" letter.reason=error letter.topic=orders.paid letter.message_id=1 letter.subscription_id=1 letter.pattern=orders.* letter.subscription=printer letter.error="out of paper"
	// level=ERROR msg="message not handled" letter.reason=error letter.topic=orders.paid letter.message_id=2 letter.subscription_id=1 letter.pattern=orders.* letter.subscription=printer letter.error="out of paper"
	// level=ERROR msg="more messages not handled" count=998 letter.reason=error letter.subscription_id=1 letter.pattern=orders.* letter.subscription=printer
}
