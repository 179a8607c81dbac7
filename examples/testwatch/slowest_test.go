package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSlowest(t *testing.T) {
	var s slowest
	assert.Empty(t, s.summary())
	for i := range 100 {
		s.end(&event{Action: "pass", Package: "p", Test: fmt.Sprintf("Test%d", i), Elapsed: float64(i * 37 % 100)})
		s.end(&event{Action: "fail", Package: "p", Elapsed: 1000}) // the package
	}
	assert.Len(t, s.tests, maxSlowest)
	for i, ev := range s.tests {
		assert.InDelta(t, 99-i, ev.Elapsed, 0)
	}
}

func TestSlowestKeepsTheOrderOfEquals(t *testing.T) {
	var s slowest
	for _, test := range []string{"A", "B", "C"} {
		s.end(&event{Action: "pass", Package: "p", Test: test, Elapsed: 1})
	}
	s.end(&event{Action: "pass", Package: "p", Test: "D", Elapsed: 2})
	s.end(&event{Action: "pass", Package: "p", Test: "E"})
	assert.Equal(t, `Slowest tests:
        2.00s  p  D
        1.00s  p  A
        1.00s  p  B
        1.00s  p  C
`, s.summary())
}
