package pubsubtest_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// On js the runtime has a goroutine of its own, for what the host calls.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("runtime.handleEvent"))
}

// outcome is a test that run has run, and what became of it.
type outcome struct {
	testing.TB // for its unexported method; nil

	name     string
	ctx      context.Context
	cancel   context.CancelFunc
	mu       sync.Mutex // guards the rest
	cleanups []func()
	failures []string
	stopped  bool // by Fatalf
}

// run runs a test as package testing does, and prints its outcome.
func run(name string, test func(t testing.TB)) {
	t := try(name, test)
	fmt.Print(t.report())
}

func try(name string, test func(t testing.TB)) *outcome {
	t := &outcome{name: name}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.call(func() { test(t) })
	t.cancel()
	for {
		t.mu.Lock()
		if len(t.cleanups) == 0 {
			t.mu.Unlock()
			return t
		}
		last := len(t.cleanups) - 1
		cleanup := t.cleanups[last]
		t.cleanups = t.cleanups[:last]
		t.mu.Unlock()
		t.call(cleanup)
	}
}

// call survives a Fatalf in f.
func (t *outcome) call(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

func (t *outcome) report() string {
	verdict := "PASS"
	var lines strings.Builder
	for _, failure := range t.failures {
		verdict = "FAIL"
		lines.WriteString("    " + strings.ReplaceAll(failure, "\n", "\n    ") + "\n")
	}
	return fmt.Sprintf("--- %s: %s\n%s", verdict, t.name, lines.String())
}

func (t *outcome) Helper()                  {}
func (t *outcome) Name() string             { return t.name }
func (t *outcome) Context() context.Context { return t.ctx }

func (t *outcome) Cleanup(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cleanups = append(t.cleanups, f)
}

func (t *outcome) Error(args ...any) { t.Errorf("%s", strings.TrimSuffix(fmt.Sprintln(args...), "\n")) }
func (t *outcome) Fatal(args ...any) { t.Fatalf("%s", strings.TrimSuffix(fmt.Sprintln(args...), "\n")) }

func (t *outcome) Errorf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failures = append(t.failures, fmt.Sprintf(format, args...))
}

func (t *outcome) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	t.mu.Lock()
	t.stopped = true
	t.mu.Unlock()
	runtime.Goexit()
}

func (t *outcome) messages() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.failures)
}
