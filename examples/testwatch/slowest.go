package main

import (
	"fmt"
	"slices"
	"strings"
)

// maxSlowest is how many tests slowest remembers.
const maxSlowest = 10

// slowest lists the tests that took the longest.
type slowest struct {
	tests []*event // longest first
}

func (s *slowest) routes() []route {
	return []route{
		{"test.pass.*", s.end},
		{"test.fail.*", s.end},
		{"test.skip.*", s.end},
	}
}

func (s *slowest) end(ev *event) {
	if ev.Test == "" || ev.Elapsed <= 0 {
		return
	}
	if len(s.tests) == maxSlowest && ev.Elapsed <= s.tests[maxSlowest-1].Elapsed {
		return
	}
	// Behind those that took as long.
	at, _ := slices.BinarySearchFunc(s.tests, ev, func(known, ev *event) int {
		if known.Elapsed >= ev.Elapsed {
			return -1
		}
		return 1
	})
	s.tests = slices.Insert(s.tests, at, ev)
	s.tests = s.tests[:min(len(s.tests), maxSlowest)]
}

func (s *slowest) summary() string {
	if len(s.tests) == 0 {
		return ""
	}
	var text strings.Builder
	text.WriteString("Slowest tests:\n")
	for _, ev := range s.tests {
		fmt.Fprintf(&text, "    %8.2fs  %s  %s\n", ev.Elapsed, name(ev.Package), ev.Test)
	}
	return text.String()
}
