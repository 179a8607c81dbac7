package oracles

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
)

// history is what several clients did, and when. Its clock is a counter: two steps of
// which one had ended before the other began are in that order, whatever real clocks
// would have said.
type history struct {
	clock atomic.Int64
	mu    sync.Mutex
	ops   []porcupine.Operation
}

func (h *history) now() int64 { return h.clock.Add(1) }

// add notes what a client did at some moment between two.
func (h *history) add(client int, step fmt.Stringer, from, to int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: step, Call: from, Return: to})
}

// stateOf makes a porcupine.Model of a function. It keeps the one type assertion in one
// place: a state is a value that == compares, and next returns another.
func stateOf[S comparable, I fmt.Stringer](first S, next func(S, I) (S, bool)) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return first },
		Step: func(state, step, _ any) (bool, any) {
			after, ok := next(state.(S), step.(I))
			return ok, after
		},
		Equal:                     func(a, b any) bool { return a == b },
		DescribeOperation:         func(step, _ any) string { return step.(I).String() },
		DescribeState:             func(state any) string { return fmt.Sprint(state) },
		DescribeOperationMetadata: func(any) string { return "" },
	}
}

// check fails the test unless the model could have done the steps in some order that
// keeps to their times. It then writes the history down.
func (h *history) check(t *testing.T, what string, model porcupine.Model) {
	t.Helper()
	if porcupine.CheckOperations(model, h.ops) {
		return
	}
	_, info := porcupine.CheckOperationsVerbose(model, h.ops, 0)
	t.Errorf("no order of these steps is right\n%s\n%s", what, written(model, h.ops, info))
	if dir := os.Getenv("ORACLES_HTML"); dir != "" {
		name := strings.NewReplacer("/", "_", " ", "_").Replace(t.Name()) + ".html"
		require.NoError(t, porcupine.VisualizePath(model, info, filepath.Join(dir, name)))
	}
}

// written is a history for people: what was done, and how far an order could be found.
func written(model porcupine.Model, ops []porcupine.Operation, info porcupine.LinearizationInfo) string {
	var b strings.Builder
	ops = slices.Clone(ops)
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	b.WriteString("  between     client  step\n")
	for _, op := range ops {
		fmt.Fprintf(&b, "  %4d %4d   %6d  %s\n", op.Call, op.Return, op.ClientId, op.Input)
	}
	var longest []porcupine.Operation
	for _, partition := range info.PartialLinearizationsOperations() {
		for _, order := range partition {
			if len(order) > len(longest) {
				longest = order
			}
		}
	}
	fmt.Fprintf(&b, "the longest right order found, %d of %d, and the state after each step\n", len(longest), len(ops))
	state := model.Init()
	for _, op := range longest {
		_, state = model.Step(state, op.Input, nil)
		fmt.Fprintf(&b, "  %-40s %v\n", op.Input, state)
	}
	return b.String()
}

// inTurn is a history of one step after the other.
func inTurn[I fmt.Stringer](steps ...I) *history {
	h := &history{}
	for _, step := range steps {
		h.add(0, step, h.now(), h.now())
	}
	return h
}

// atOnce is a history in which all steps overlap.
func atOnce[I fmt.Stringer](steps ...I) *history {
	h := &history{}
	for client, step := range steps {
		h.add(client, step, 0, 1)
	}
	return h
}

// pass lets others run for a while.
func pass(n int) {
	for range n {
		runtime.Gosched()
	}
}

// ids are message ids, one byte each, so that a state that has them can be compared.
type ids string

func (s ids) String() string { return fmt.Sprint([]byte(s)) }
