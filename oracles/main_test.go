package oracles

import (
	"flag"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// TestMain chooses how many sequences rapid tries, unless its environment variables
// or flags say so, and fails the run when a goroutine is left.
func TestMain(m *testing.M) {
	for _, d := range []struct{ variable, name, value string }{
		{"RAPID_CHECKS", "rapid.checks", "400"},
		{"RAPID_STEPS", "rapid.steps", "60"},
	} {
		if _, ok := os.LookupEnv(d.variable); ok {
			continue
		}
		if err := flag.Set(d.name, d.value); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}

// seed returns ORACLES_SEED or, when that is not set, another seed in each run, and
// prints it.
func seed(t *testing.T) uint64 {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("ORACLES_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("ORACLES_SEED=%d", seed)
	return seed
}

// times returns n, multiplied by ORACLES_TIMES when that is set: how one runs longer.
func times(t *testing.T, n int) int {
	t.Helper()
	text := os.Getenv("ORACLES_TIMES")
	if text == "" {
		return n
	}
	factor, err := strconv.Atoi(text)
	require.NoError(t, err)
	require.Positive(t, factor)
	return n * factor
}

// random returns the source of randomness of one round of a seed.
func random(seed uint64, round int) *rand.Rand {
	return rand.New(rand.NewPCG(seed, uint64(round)))
}
