package pubsub

import (
	"context"
	"fmt"
	"reflect"
	"time"
)

// Message is what one [Broker.Publish] sends. Every handler gets its own copy
// of the struct, and all copies hold the same Payload: nobody may change what
// it points to after Publish.
type Message struct {
	// ID is the number of the publish: unique in its broker, from 1, growing.
	ID uint64
	// Topic is the name it was published to, never a pattern.
	Topic string
	// Payload is the value given to Publish, not copied.
	Payload any
	// Time is when it was published, by the broker's clock. All subscriptions
	// see the same.
	Time time.Time
}

// Handler is the function a subscription calls with each message.
//
// An asynchronous subscription calls it on a goroutine of its own, one call at
// a time, with a ctx that has the publisher's values but not its cancellation
// and that is done when the subscription ends. A synchronous one calls it in
// the publisher's goroutine, possibly in several at once, with the publisher's
// ctx.
//
// A handler may call anything in this package. It should pass its ctx on:
// that is how [Broker.Flush], [Broker.Shutdown], [Subscription.Drain] and a
// Publish to a full [Block] queue know that they would wait for themselves,
// and return [ErrInHandler] instead. With another context they wait forever,
// as does receiving from Done of the handler's own subscription.
//
// An error, a panic or a [runtime.Goexit] becomes one dead letter. Nothing is
// tried again; a retry is a handler wrapped around a handler.
type Handler func(ctx context.Context, msg Message) error

// Typed returns a [Handler] that calls h with the payload as a T. A payload of
// another type does not reach h: it is a failure whose error is a
// [*PayloadTypeError]. The type must be T itself, so a *T is not a T; when T
// is an interface, the payload must implement it. A nil payload is no T,
// whatever T is.
//
// On a pattern that matches topics of several payload types, use one
// subscription per topic, or a plain Handler with a type switch. Typed(nil) is
// nil, which Subscribe refuses with [ErrNilHandler].
func Typed[T any](h func(ctx context.Context, msg Message, payload T) error) Handler {
	if h == nil {
		return nil
	}
	return func(ctx context.Context, msg Message) error {
		payload, ok := msg.Payload.(T)
		if !ok {
			return &PayloadTypeError{Want: reflect.TypeFor[T](), Got: reflect.TypeOf(msg.Payload)}
		}
		return h(ctx, msg, payload)
	}
}

// PayloadTypeError is the failure of a [Typed] handler that was sent a payload
// of another type.
type PayloadTypeError struct {
	// Want is the handler's type.
	Want reflect.Type
	// Got is the payload's type; nil when the payload was nil.
	Got reflect.Type
}

// Error names both types, with their import paths where the short names are
// alike.
func (e *PayloadTypeError) Error() string {
	want, got := typeName(e.Want), typeName(e.Got)
	if want == got {
		want, got = typePath(e.Want), typePath(e.Got)
	}
	if want == got {
		want = "another type of that name"
	}
	return fmt.Sprintf("pubsub: payload is %s, want %s", got, want)
}

func typeName(t reflect.Type) string {
	if t == nil {
		return "nil"
	}
	return t.String()
}

// typePath is the name that tells apart two types of one name: the import path
// is the named type's, which a pointer, slice or array only leads to.
func typePath(t reflect.Type) string {
	named := t
	for named != nil && named.Name() == "" {
		switch named.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Chan:
			named = named.Elem()
		default:
			return typeName(t)
		}
	}
	if named == nil {
		return typeName(t)
	}
	return fmt.Sprintf("%s (of %q)", t, named.PkgPath())
}

// PanicError is the failure of a handler that panicked.
type PanicError struct {
	// Value is what the handler panicked with.
	Value any
	// Stack is the handler's stack at the panic, as [runtime/debug.Stack]
	// formats it.
	Stack []byte
}

// Error has the value but not the stack. Of a value that is neither an error nor a
// [fmt.Stringer] nor of a basic type it has the type only: a map that contains itself
// would be printed for ever.
func (e *PanicError) Error() string {
	const text = "pubsub: handler panicked: "
	switch e.Value.(type) {
	case nil, error, fmt.Stringer:
		return text + fmt.Sprint(e.Value)
	}
	switch reflect.TypeOf(e.Value).Kind() {
	case reflect.Array, reflect.Map, reflect.Pointer, reflect.Slice, reflect.Struct:
		return text + fmt.Sprintf("a %T", e.Value)
	}
	return text + fmt.Sprint(e.Value)
}

// Unwrap returns Value when it is an error, else nil.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
