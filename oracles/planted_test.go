package oracles

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// plantedFault is what the model is to do wrong.
func plantedFault() string { return os.Getenv("ORACLES_FAULT") }

// TestBrokerCanFail plants a fault in the model and expects TestBroker to notice that
// broker and model differ, and rapid to shorten the sequence that shows it.
func TestBrokerCanFail(t *testing.T) {
	if plantedFault() != "" {
		t.Skip("it runs itself")
	}
	for _, fault := range []string{
		"a drain discards",
		"an unknown topic is published to",
		"one more than the limit",
		"room goes to the last who waits",
		"the newest is evicted",
		"the ring evicts the newest",
		"who is released by the last message is counted",
	} {
		t.Run(fault, func(t *testing.T) {
			self, err := os.Executable()
			require.NoError(t, err)
			cmd := exec.CommandContext(context.Background(), self, "-test.run=^TestBroker$", "-test.timeout=60s",
				"-rapid.checks=20000", "-rapid.shrinktime=1s", "-rapid.nofailfile")
			cmd.Env = append(os.Environ(), "ORACLES_FAULT="+fault, "GORACE=atexit_sleep_ms=0")
			out, err := cmd.CombinedOutput()
			require.Error(t, err, "it was not noticed")
			require.Contains(t, string(out), "the model says", "it failed in another way")
			t.Logf("shown in %d actions", strings.Count(string(out), "draw action:"))
		})
	}
}
