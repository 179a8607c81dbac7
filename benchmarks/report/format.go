package report

import (
	"fmt"
	"math"
	"strconv"
)

// scales are how a unit is written when it gets large, smallest first.
var scales = map[string][]struct {
	from float64
	unit string
}{
	"ns": {{1, "ns"}, {1e3, "us"}, {1e6, "ms"}, {1e9, "s"}},
	"ms": {{1, "ms"}, {1e3, "s"}},
	"B":  {{1, "B"}, {1 << 10, "KiB"}, {1 << 20, "MiB"}},
}

// quantity writes a value with three digits and its unit.
func quantity(value float64, unit string) string {
	switch unit {
	case "goroutines":
		return three(value)
	case "pairs/s":
		return three(value) + "/s"
	}
	name, divisor := unit, 1.0
	for _, s := range scales[unit] {
		if value >= s.from {
			name, divisor = s.unit, s.from
		}
	}
	return three(value/divisor) + " " + name
}

// ratio writes a multiple.
func ratio(value float64) string { return two(value) + "x" }

// three writes at least the whole number, and up to three digits.
func three(v float64) string { return digits(v, 3) }

// two writes at least the whole number, two decimals below 10, and two digits
// below a tenth.
func two(v float64) string {
	switch {
	case v != 0 && v < 0.095:
		return strconv.FormatFloat(v, 'g', 2, 64)
	case v < 10:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return digits(v, 3)
}

func digits(v float64, n int) string {
	decimals := n - 1
	if a := math.Abs(v); a >= 1 {
		decimals = max(0, n-1-int(math.Floor(math.Log10(a))))
	}
	s := strconv.FormatFloat(v, 'f', decimals, 64)
	if whole, err := strconv.ParseFloat(s, 64); err == nil && whole == math.Trunc(whole) {
		return thousands(int(whole))
	}
	return s
}

func thousands(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return thousands(n/1000) + fmt.Sprintf(",%03d", n%1000)
}
