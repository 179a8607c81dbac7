package pubsub

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails the run when a goroutine is left: no test may leave a broker that
// has something to do.
func TestMain(m *testing.M) {
	// On js the runtime has a goroutine of its own, for what the host calls.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("runtime.handleEvent"))
}
