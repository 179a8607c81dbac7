package pubsub

import (
	"context"
	"errors"
	"fmt"
	html "html/template"
	"io"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	text "text/template"
	"time"

	"github.com/stretchr/testify/require"
)

// The row Topics of the contract.
func TestTopics(t *testing.T) {
	inBubble(t, "without strict topics a topic needs no creation, and Publish makes none", func(r *rig) {
		var got sightings
		r.on("a.#", got.handle)
		r.pub("a.b", 1)
		r.pub("b", 2)
		require.Empty(r, r.Topics())
		require.NotNil(r, r.Topics())
		require.NoError(r, r.CreateTopic("a.b"))
		require.Equal(r, []string{"a.b"}, r.Topics(), "CreateTopic only lists it")
		r.pub("a.b", 3)
		require.NoError(r, r.DeleteTopic("a.b"))
		require.Empty(r, r.Topics())
		r.pub("a.b", 4)
		synctest.Wait()
		require.Equal(r, []any{1, 3, 4}, got.payloads(), "subscriptions stay")
		require.Equal(r, Stats{Published: 4, Unrouted: 1, Matched: 3, Delivered: 3, Subscriptions: 1}, r.Stats())
	})

	inBubble(t, "CreateTopic is idempotent, DeleteTopic is not, and Topics sorts", func(r *rig) {
		for _, name := range []string{"b", "a.b", "a", "a.b", "\xff", "B", "b"} {
			require.NoError(r, r.CreateTopic(name))
		}
		want := []string{"B", "a", "a.b", "b", "\xff"}
		require.Equal(r, want, r.Topics())
		clear(r.Topics()) // The slice is the caller's.
		require.Equal(r, want, r.Topics())
		require.Equal(r, 5, r.Stats().Topics)
		require.NoError(r, r.DeleteTopic("a.b"))
		err := r.DeleteTopic("a.b")
		require.ErrorIs(r, err, ErrUnknownTopic)
		require.ErrorContains(r, err, `"a.b"`)
		require.ErrorIs(r, r.DeleteTopic("*"), ErrInvalidTopic)
		require.ErrorIs(r, r.CreateTopic("a.#"), ErrInvalidTopic)
		require.NoError(r, r.Close())
		require.Equal(r, []string{"B", "a", "b", "\xff"}, r.Topics())
		for _, name := range []string{"a", "none", ""} {
			require.Equal(r, ErrClosed, r.CreateTopic(name), "before any other error")
			require.Equal(r, ErrClosed, r.DeleteTopic(name))
		}
	})

	inBubble(t, "with strict topics Publish takes only what CreateTopic has made", func(r *rig) {
		var got sightings
		s := r.on("a.*", got.handle, WithSync())
		unknown := func(name string) {
			id, err := r.Publish(context.Background(), name, nil)
			require.ErrorIs(r, err, ErrUnknownTopic)
			require.ErrorContains(r, err, fmt.Sprintf("%q", name))
			require.Zero(r, id)
		}
		unknown("a.b")
		for i := range 3 { // Each time it is made anew.
			require.NoError(r, r.CreateTopic("a.b"))
			r.pub("a.b", i)
			unknown("a.c")
			require.NoError(r, r.DeleteTopic("a.b"))
			unknown("a.b")
		}
		require.Equal(r, []any{0, 1, 2}, got.payloads())
		require.EqualValues(r, 3, r.Stats().Published)
		_, err := r.Publish(context.Background(), "a.*", nil)
		require.ErrorIs(r, err, ErrInvalidTopic, "before ErrUnknownTopic")
		require.Equal(r, []*Subscription{s}, r.Subscriptions())
	}, WithStrictTopics())
}

// The row Message of the contract.
func TestMessage(t *testing.T) {
	inBubble(t, "ids are a broker's own, start at 1, and every accepted Publish takes one", func(r *rig) {
		other := &rig{T: r.T, Broker: New()}
		require.EqualValues(r, 1, r.pub("a", nil), "matched or not")
		require.EqualValues(r, 1, other.pub("a", nil))
		var got sightings
		r.on("a", got.handle)
		require.EqualValues(r, 2, r.pub("a", nil))
		for _, name := range []string{"", "*", "a.#"} {
			id, err := r.Publish(context.Background(), name, nil)
			require.Error(r, err)
			require.Zero(r, id, "refused takes none")
		}
		r.full("full", Block)
		id, err := r.Publish(canceled(), "full", nil)
		require.ErrorIs(r, err, context.Canceled)
		require.EqualValues(r, 5, id, "given up is accepted all the same")
		r.on("fails", failing[ReasonPanic], WithSync())
		require.EqualValues(r, 6, r.pub("fails", nil))
		require.EqualValues(r, 7, r.pub("a", nil))
		synctest.Wait()
		require.Equal(r, []uint64{2, 7}, []uint64{got.msgs[0].ID, got.msgs[1].ID})
		require.NoError(r, r.Close())
		id, err = r.Publish(context.Background(), "a", nil)
		require.ErrorIs(r, err, ErrClosed)
		require.Zero(r, id)
		require.EqualValues(r, 7, r.Stats().Published)
	})

	t.Run("ids only grow, whoever publishes", func(t *testing.T) {
		b := New()
		var ids [4][]uint64
		var wg sync.WaitGroup
		for i := range ids {
			wg.Go(func() {
				for range 500 {
					id, _ := b.Publish(context.Background(), "a", nil)
					ids[i] = append(ids[i], id)
				}
			})
		}
		wg.Wait()
		seen := make(map[uint64]bool)
		for _, mine := range ids {
			last := uint64(0)
			for _, id := range mine {
				require.Greater(t, id, last)
				last, seen[id] = id, true
			}
		}
		require.Len(t, seen, 2000)
		require.False(t, seen[0] || seen[2001])
	})

	var reads atomic.Int64
	inBubble(t, "Time is read once per publish that matched something, and is the same for all", func(r *rig) {
		r.pub("nobody", nil)
		require.Zero(r, reads.Load())
		var got sightings
		for _, opts := range [][]SubscribeOption{nil, {WithDropPolicy(Block)}, {WithSync()}, nil, {WithSync()}} {
			r.on("a.*", got.handle, opts...)
		}
		for i := range int64(3) {
			r.pub("a.b", nil)
			synctest.Wait()
			require.Equal(r, i+1, reads.Load())
			require.Len(r, got.msgs, 5)
			for _, msg := range got.msgs {
				require.Equal(r, Message{ID: uint64(i) + 2, Topic: "a.b", Time: time.Unix(i+1, 0)}, msg)
			}
			got.msgs = nil
		}
	}, WithClock(func() time.Time { return time.Unix(reads.Add(1), 0) }))

	inBubble(t, "the payload is not copied: subscribers and dead letters hold the same", func(r *rig) {
		var got sightings
		for _, opts := range [][]SubscribeOption{nil, {WithDropPolicy(Block)}, {WithSync()}} {
			r.on("a", got.handle, opts...)
		}
		r.on("a", failing[ReasonError], WithSync())
		r.on("a", failing[ReasonPanic])
		payload := &struct{ n int }{7}
		r.pub("a", payload)
		synctest.Wait()
		require.Len(r, got.msgs, 3)
		for _, msg := range got.msgs {
			require.Same(r, payload, msg.Payload)
		}
		for _, l := range r.letters(2) {
			require.Same(r, payload, l.Message.Payload)
		}
	})

	inBubble(t, "any value is a payload", func(r *rig) {
		var got sightings
		r.on("a", got.handle)
		all := []any{nil, []int{1}, map[string]int{"a": 1}, "", 0, errors.New("x"), struct{}{}, (*int)(nil)}
		for _, payload := range all {
			r.pub("a", payload)
		}
		synctest.Wait()
		require.Equal(r, all, got.payloads())
	})

	// The broker uses the memory of a message again when one queue has it alone.
	inBubble(t, "a message and its context stay what they were, however many follow", func(r *rig) {
		type key struct{}
		var ctxs []context.Context
		var msgs []Message
		g := r.turnstile()
		r.on("a", func(ctx context.Context, msg Message) error {
			ctxs, msgs = append(ctxs, ctx), append(msgs, msg)
			msg.Topic = "changed" // Its own copy.
			<-g.pass
			return nil
		}, WithQueueSize(3))
		publish := func(i int) {
			_, err := r.Publish(context.WithValue(context.Background(), key{}, i), "a", i)
			require.NoError(r, err)
			synctest.Wait()
		}
		for i := range 20 {
			publish(i)
		}
		for i, l := range r.letters(16) {
			require.Equal(r, i+1, l.Message.Payload)
			require.EqualValues(r, i+2, l.Message.ID)
		}
		for i := range 30 {
			g.let()
			publish(20 + i)
		}
		g.open()
		synctest.Wait()
		require.Len(r, msgs, 34)
		for i, msg := range msgs {
			want := i + 16
			if i == 0 {
				want = 0
			}
			require.Equal(r, want, msg.Payload)
			require.Equal(r, "a", msg.Topic)
			require.Equal(r, want, ctxs[i].Value(key{}))
		}
	})
}

// typed publishes payloads to a Typed handler and returns those it was called with and
// the errors of the others.
func typed[T any](t *testing.T, payloads ...any) (got []T, faults []error) {
	t.Helper()
	r := &rig{T: t, Broker: New()}
	r.on("a", Typed(func(_ context.Context, msg Message, payload T) error {
		require.Equal(t, any(payload), msg.Payload)
		got = append(got, payload)
		return nil
	}), WithSync())
	for _, payload := range payloads {
		r.pub("a", payload)
	}
	for _, l := range r.letters(len(payloads) - len(got)) {
		require.Equal(t, ReasonError, l.Reason)
		var fault *PayloadTypeError
		require.ErrorAs(t, l.Err, &fault)
		require.Equal(t, reflect.TypeFor[T](), fault.Want)
		require.Equal(t, reflect.TypeOf(l.Message.Payload), fault.Got)
		faults = append(faults, l.Err)
	}
	return got, faults
}

type celsius int

// The row Typed of the contract.
func TestTyped(t *testing.T) {
	t.Run("a payload of another type is a failure and does not reach the handler", func(t *testing.T) {
		got, faults := typed[int](t, 1, "2", int64(3), 4, celsius(5), uint(6), []int{7})
		require.Equal(t, []int{1, 4}, got)
		require.Len(t, faults, 5)
		require.EqualError(t, faults[0], "pubsub: payload is string, want int")
	})
	t.Run("nil matches no T", func(t *testing.T) {
		for _, faults := range [][]error{
			second(typed[int](t, nil)), second(typed[*int](t, nil)), second(typed[any](t, nil)),
			second(typed[error](t, nil)), second(typed[func()](t, nil)), second(typed[[]int](t, nil)),
		} {
			require.Len(t, faults, 1)
			require.ErrorContains(t, faults[0], "payload is nil, want ")
		}
		got, faults := typed[*int](t, (*int)(nil))
		require.Equal(t, []*int{nil}, got, "a nil pointer is a pointer")
		require.Empty(t, faults)
	})
	t.Run("T and *T differ", func(t *testing.T) {
		n := 1
		values, faults := typed[int](t, n, &n)
		require.Equal(t, []int{1}, values)
		require.EqualError(t, faults[0], "pubsub: payload is *int, want int")
		pointers, faults := typed[*int](t, n, &n)
		require.Equal(t, []*int{&n}, pointers)
		require.EqualError(t, faults[0], "pubsub: payload is int, want *int")
	})
	t.Run("an interface is any type that has its methods", func(t *testing.T) {
		got, faults := typed[error](t, io.EOF, "text", context.Canceled)
		require.Equal(t, []error{io.EOF, context.Canceled}, got)
		require.EqualError(t, faults[0], "pubsub: payload is string, want error")
		all, _ := typed[any](t, 1, "2")
		require.Equal(t, []any{1, "2"}, all)
	})
	t.Run("the handler's own error is passed on, and its ctx and message in", func(t *testing.T) {
		type key struct{}
		ctx := context.WithValue(context.Background(), key{}, "v")
		h := Typed(func(ctx context.Context, msg Message, payload string) error {
			return fmt.Errorf("%v %d %s: %w", ctx.Value(key{}), msg.ID, payload, io.EOF)
		})
		err := h(ctx, Message{ID: 3, Payload: "p"})
		require.EqualError(t, err, "v 3 p: EOF")
		require.ErrorIs(t, err, io.EOF)
	})
	t.Run("Typed(nil) is nil", func(t *testing.T) {
		require.Nil(t, Typed[int](nil))
		_, err := New().Subscribe("a", Typed[int](nil))
		require.ErrorIs(t, err, ErrNilHandler)
		require.ErrorContains(t, err, `"a"`)
	})
}

func second[A, B any](_ A, b B) B { return b }

// The text is all that a dead letter shows of a wrong type: its two halves must differ,
// and say which type is which, also where the short names are the same.
func TestPayloadTypeErrorText(t *testing.T) {
	type pair [2]reflect.Type
	of := func(want, got reflect.Type) pair { return pair{want, got} }
	type local int
	here := reflect.TypeFor[local]()
	there := func() reflect.Type { type local int; return reflect.TypeFor[local]() }()
	for name, c := range map[string]struct {
		types     pair
		want, got string // in the text, each in its half
	}{
		"plain":     {of(reflect.TypeFor[int](), reflect.TypeFor[string]()), "int", "string"},
		"nil":       {of(reflect.TypeFor[int](), nil), "int", "nil"},
		"interface": {of(reflect.TypeFor[io.Reader](), reflect.TypeFor[int]()), "io.Reader", "int"},
		"any":       {of(reflect.TypeFor[any](), nil), "interface {}", "nil"},
		"package":   {of(reflect.TypeFor[html.Template](), reflect.TypeFor[text.Template]()), "html/template", "text/template"},
		"pointer":   {of(reflect.TypeFor[*html.Template](), reflect.TypeFor[*text.Template]()), "html/template", "text/template"},
		"slice":     {of(reflect.TypeFor[[]html.Template](), reflect.TypeFor[[]text.Template]()), "html/template", "text/template"},
		"array":     {of(reflect.TypeFor[[2]html.Template](), reflect.TypeFor[[2]text.Template]()), "html/template", "text/template"},
		"channel":   {of(reflect.TypeFor[chan []html.Template](), reflect.TypeFor[chan []text.Template]()), "html/template", "text/template"},
		"map":       {of(reflect.TypeFor[map[int]html.Template](), reflect.TypeFor[map[int]text.Template]()), "", "map[int]template.Template"},
		"function":  {of(reflect.TypeFor[func(html.Template)](), reflect.TypeFor[func(text.Template)]()), "", "func(template.Template)"},
		"struct":    {of(reflect.TypeFor[struct{ html.FuncMap }](), reflect.TypeFor[struct{ text.FuncMap }]()), "", "template.FuncMap"},
		"local":     {of(here, there), "", "pubsub.local"},
	} {
		t.Run(name, func(t *testing.T) {
			message := (&PayloadTypeError{Want: c.types[0], Got: c.types[1]}).Error()
			got, want, found := strings.Cut(strings.TrimPrefix(message, "pubsub: payload is "), ", want ")
			require.True(t, found, message)
			require.NotEqual(t, got, want)
			require.Contains(t, want, c.want)
			require.Contains(t, got, c.got)
		})
	}
	require.NotPanics(t, func() { _ = new(PayloadTypeError).Error() })
}

// What a handler panicked with can be found as any other error can.
func TestPanicError(t *testing.T) {
	cause := &PayloadTypeError{}
	err := error(&PanicError{Value: fmt.Errorf("wrapped: %w", cause), Stack: []byte("stack")})
	var found *PayloadTypeError
	require.ErrorAs(t, err, &found)
	require.Same(t, cause, found)
	require.NotContains(t, err.Error(), "stack")
	for _, value := range []any{"text", 7, nil, 2.5} {
		err := &PanicError{Value: value}
		require.NoError(t, errors.Unwrap(err))
		require.EqualError(t, err, fmt.Sprintf("pubsub: handler panicked: %v", value))
	}
}

// A panic with a map that contains itself: printing the letter ended the process.
func TestPanicErrorOfACycle(t *testing.T) {
	cycle := map[string]any{}
	cycle["self"] = cycle
	require.EqualError(t, &PanicError{Value: cycle}, "pubsub: handler panicked: a map[string]interface {}")
	require.EqualError(t, &PanicError{Value: []any{1}}, "pubsub: handler panicked: a []interface {}")
	require.EqualError(t, &PanicError{Value: 7}, "pubsub: handler panicked: 7")
	require.EqualError(t, &PanicError{Value: time.Second}, "pubsub: handler panicked: 1s")
	require.EqualError(t, &PanicError{}, "pubsub: handler panicked: <nil>")
}
