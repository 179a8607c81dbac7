package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRun(t *testing.T) {
	var out strings.Builder
	require.NoError(t, run(&out))
	for _, line := range []string{
		"billing     orders.created.*           got A1, B2",
		"europe      orders.*.eu                got A1, A1",
		"audit       orders.#                   got A1, B2, A1, B2",
		"warehouse        matched 8, delivered 8, failed 0, dropped 0, queued 0, running 0",
		"recommendations  matched 8, delivered 0, failed 0, dropped 3, queued 4, running 1",
		"later, recommendations has handled C1, C5, C6, C7, C8",
		"letter.reason=dropped_oldest letter.topic=orders.created.eu letter.message_id=6",
		"letter.reason=panic letter.topic=orders.paid.eu",
		"invoices         matched 3, delivered 2, failed 1, dropped 0, queued 0, running 0",
		"repair it by hand: {ID:D2 Cents:0}",
		"emails           matched 100, delivered 100, failed 0, dropped 0, queued 0, running 0",
		`a later Publish returns "pubsub: broker closed"`,
		"published   115",
		"matched     127  = delivered 123 + failed 1 + dropped 3",
		"letters       4  = failed + dropped",
	} {
		assert.Contains(t, out.String(), line)
	}
}

func TestRunPrintsTheSameEveryTime(t *testing.T) {
	var first strings.Builder
	require.NoError(t, run(&first))
	for range 20 {
		var again strings.Builder
		require.NoError(t, run(&again))
		require.Equal(t, first.String(), again.String())
	}
}

// A reader that goes away, as in a pipe to head, is not a reason to hang.
func TestRunWithoutReader(t *testing.T) {
	require.NoError(t, run(brokenPipe{}))
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }
