package pubsub

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// A nil function must not become a handler that panics with every message.
func TestTypedOfNilIsNil(t *testing.T) {
	require.Nil(t, Typed[int](nil))
	_, err := New().Subscribe("a", Typed[int](nil))
	require.ErrorIs(t, err, ErrNilHandler)
	_, err = New().Subscribe("a", Typed(func(context.Context, Message, int) error { return nil }))
	require.NoError(t, err)
}
