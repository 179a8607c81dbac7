package pubsubtest

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/seed-b8032e04/pubsub"
)

// What a failed test prints is for a person: at most so much of it.
const (
	shownMessages = 20 // the last ones
	shownLetters  = 20 // the first ones
	shownStacks   = 3  // of panics
	shownFrames   = 8  // of each
	shownName     = 120
	shownPayload  = 240
	shownError    = 500
)

// listMessages returns a list of what was recorded, and how many were published.
func listMessages(msgs []pubsub.Message, published uint64) string {
	var b strings.Builder
	switch {
	case len(msgs) > 0:
		fmt.Fprintf(&b, "recorded so far: %d", len(msgs))
	case published == 0:
		b.WriteString("nothing was published meanwhile, to any topic")
	default:
		fmt.Fprintf(&b, "nothing was recorded, though %s published meanwhile, to topics that do not match", messages(published))
	}
	if more := len(msgs) - shownMessages; more > 0 {
		fmt.Fprintf(&b, "\n    ... %d earlier", more)
		msgs = msgs[more:]
	}
	for _, msg := range msgs {
		fmt.Fprintf(&b, "\n    #%d  %s  %s  %s", msg.ID, msg.Time.Format("15:04:05.000"),
			printable(msg.Topic, shownName), payload(msg.Payload))
	}
	return b.String()
}

func messages(n uint64) string {
	if n == 1 {
		return "1 message was"
	}
	return fmt.Sprintf("%d messages were", n)
}

// listCauses returns the dead letters, in which the reason for what is missing may be.
func listCauses(letters []pubsub.DeadLetter) string {
	if len(letters) == 0 {
		return ""
	}
	return "\n" + listLetters("dead letter", letters)
}

// listLetters returns how many there are, and a list of the letters.
func listLetters(noun string, letters []pubsub.DeadLetter) string {
	var b strings.Builder
	switch len(letters) {
	case 0:
		return "no " + noun
	case 1:
		b.WriteString("1 " + noun)
	default:
		fmt.Fprintf(&b, "%d %ss", len(letters), noun)
	}
	stacks := 0
	for i, l := range letters {
		if i == shownLetters {
			fmt.Fprintf(&b, "\n    ... %d more", len(letters)-i)
			break
		}
		fmt.Fprintf(&b, "\n    %s  #%d  %s  %s  in %s", l.Reason, l.Message.ID,
			printable(l.Message.Topic, shownName), payload(l.Message.Payload),
			subscription(l.SubscriptionID, l.SubscriptionName, l.Pattern))
		if l.Err != nil {
			fmt.Fprintf(&b, ": %s", printable(errorText(l.Err), shownError))
		}
		var p *pubsub.PanicError
		if errors.As(l.Err, &p) && p != nil && stacks < shownStacks {
			stacks++
			b.WriteString(handlerFrames(p.Stack))
		}
	}
	return b.String()
}

// listStuck returns a list of the calls that still run, and of what was given up.
func listStuck(broker *pubsub.Broker, subs []*pubsub.Subscription, before []pubsub.SubscriptionStats) string {
	var b strings.Builder
	running := 0
	for i, s := range subs {
		st := s.Stats()
		if st.Running > 0 && !s.Pulled() {
			running += st.Running
			what := fmt.Sprintf("%d calls of the handler", st.Running)
			if id, ok := s.RunningMessage(); ok {
				what = fmt.Sprintf("the handler, with message #%d,", id)
			} else if st.Running == 1 {
				what = "the handler"
			}
			fmt.Fprintf(&b, "\n    %s of %s still runs", what, subscription(s.ID(), s.Name(), s.Pattern()))
			if dropped := st.Dropped - before[i].Dropped; dropped > 0 {
				fmt.Fprintf(&b, "; discarded from its queue: %d", dropped)
			}
		}
	}
	if more := broker.Stats().Running - running; more > 0 {
		fmt.Fprintf(&b, "\n    a handler of a subscription that ended before still runs (calls: %d)", more)
	}
	if b.Len() == 0 {
		return "\n    a dead-letter handler still runs"
	}
	return b.String()
}

func subscription(id uint64, name, pattern string) string {
	s := fmt.Sprintf("subscription %d on %s", id, printable(pattern, shownName))
	if name != "" {
		s += " (" + printable(name, shownName) + ")"
	}
	return s
}

// payload returns a payload as %+v prints it, and its type, shortened.
func payload(v any) string {
	switch v := v.(type) {
	case nil:
		return "nil"
	case string:
		return strconv.Quote(shorten(v, shownPayload))
	case error:
		return fmt.Sprintf("%T: %s", v, printable(errorText(v), shownPayload))
	}
	if r := reflect.ValueOf(v); r.Kind() == reflect.Slice && r.Type().Elem().Kind() == reflect.Uint8 {
		return fmt.Sprintf("%T %s", v, strconv.Quote(shorten(string(r.Bytes()[:min(r.Len(), shownPayload+utf8.UTFMax)]), shownPayload)))
	}
	return fmt.Sprintf("%T %s", v, printable(fmt.Sprintf("%+v", v), shownPayload))
}

// errorText is Error, which may panic where fmt does not.
func errorText(err error) string { return fmt.Sprintf("%v", err) }

// printable shortens s, and quotes it when it would disturb the list.
func printable(s string, limit int) string {
	short := shorten(s, limit)
	if s == "" || strings.ContainsFunc(short, func(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }) {
		return strconv.Quote(short)
	}
	return short
}

// shorten cuts s between two runes.
func shorten(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit] + "..."
}

// handlerFrames returns the frames of a stack below the panic, those of the handler
// first.
func handlerFrames(stack []byte) string {
	lines := strings.Split(strings.TrimSpace(string(stack)), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if strings.HasPrefix(lines[i], "panic(") {
			lines = lines[min(i+2, len(lines)):]
			break
		}
	}
	var b strings.Builder
	for _, line := range lines[:min(len(lines), 2*shownFrames)] {
		if strings.Contains(line, "/pubsub.(*worker).") || strings.Contains(line, "/pubsub.(*fanOut).") {
			break
		}
		b.WriteString("\n        " + strings.ReplaceAll(line, "\t", "    "))
	}
	return b.String()
}
