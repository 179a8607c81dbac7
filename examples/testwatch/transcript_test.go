package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestTranscriptKeepsBeginningAndEnd(t *testing.T) {
	const half, line = 1000, "0123456789abcdef\n"
	for _, step := range []int{1, 7, 100, 10_000} {
		var transcript transcript
		transcript.keep("first\n", half)
		lines := 0
		for ; lines < 10_000; lines += step {
			transcript.keep(strings.Repeat(line, step), half)
			kept := len(transcript.head) + len(transcript.tail)
			assert.LessOrEqual(t, kept, 3*half)
		}
		transcript.keep("last", half)
		kept := len(transcript.head) + len(transcript.tail)
		assert.GreaterOrEqual(t, kept, 2*half)
		assert.Equal(t, len("first\nlast")+lines*len(line), transcript.omitted+kept)
		text := transcript.indented()
		assert.True(t, strings.HasPrefix(text, "    first\n    0123"), text)
		assert.True(t, strings.HasSuffix(text, "def\n    last\n"), text)
		assert.Contains(t, text, fmt.Sprintf("\n    ... %d bytes are left out here ...\n", transcript.omitted))
	}
}

// The two parts are one text as long as nothing is left out.
func TestTranscriptHasNoSeam(t *testing.T) {
	for size := range 30 {
		var transcript transcript
		want := "0123456789abcdefghijklmnopqrst"[:size+1]
		transcript.keep(want, 10)
		assert.Equal(t, "    "+want+"\n", transcript.indented())
	}
}
