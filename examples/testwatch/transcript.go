package main

import (
	"fmt"
	"strings"
)

// maxTranscript is how much of one test's output is kept, half from its beginning
// and half from its end. The output of a test that may still fail has to be kept,
// and some tests write without end.
const maxTranscript = 16 << 20

// transcript is the output of a test, a package or a build.
type transcript struct {
	head, tail []byte
	omitted    int // bytes between head and tail
}

func (t *transcript) add(output string) { t.keep(output, maxTranscript/2) }

// keep adds an output, of which no more than half bytes stay at each end.
func (t *transcript) keep(output string, half int) {
	n := min(len(output), half-len(t.head))
	t.head = append(t.head, output[:n]...)
	t.tail = append(t.tail, output[n:]...)
	if len(t.tail) > 2*half { // not each time, since it moves the rest
		excess := len(t.tail) - half
		t.omitted += excess
		t.tail = append([]byte(nil), t.tail[excess:]...)
	}
}

func (t *transcript) empty() bool { return len(t.head)+len(t.tail) == 0 }

// indented returns the output, each line indented and the last one ended, for
// printing below a heading.
func (t *transcript) indented() string {
	between := ""
	if t.omitted > 0 {
		between = fmt.Sprintf("\n... %d bytes are left out here ...\n", t.omitted)
	}
	var text strings.Builder
	text.Grow((len(t.head) + len(t.tail)) * 5 / 4)
	for line := range strings.Lines(string(t.head) + between + string(t.tail)) {
		text.WriteString("    ")
		text.WriteString(line)
	}
	return strings.TrimSuffix(text.String(), "\n") + "\n"
}
