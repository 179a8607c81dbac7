package main

import (
	"io"
	"os"
	"strings"
	"sync"
	"unicode/utf8"
)

// console prints the report, and on a terminal keeps a progress line below it.
type console struct {
	mu     sync.Mutex // guards the rest, and each write
	report io.Writer
	screen io.Writer // the terminal; nil when there is none
	width  int       // how much of the screen's current line is in use
	err    error     // the first that a write to report returned
}

// newConsole prints to stdout. A progress line goes to stderr, or else to stdout,
// if that is a terminal.
func newConsole(stdout, stderr io.Writer) *console {
	c := &console{report: stdout}
	switch {
	case os.Getenv("TERM") == "dumb":
	case isTerminal(stderr):
		c.screen = stderr
	case isTerminal(stdout):
		c.screen = stdout
	}
	return c
}

// isTerminal reports whether w is one, or another character device: that may be
// /dev/null, which does not mind a progress line.
func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// print adds text to the report, in one write. It ends the last line if text
// does not.
func (c *console) print(text string) {
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.draw("")
	if _, err := io.WriteString(c.report, text); err != nil && c.err == nil {
		c.err = err
	}
}

// progress replaces the progress line; an empty one erases it. A line that is
// wider than the screen is cut, since it could not be erased.
func (c *console) progress(line string, columns int) {
	if runes := []rune(line); len(runes) >= columns {
		line = string(runes[:columns-1])
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.draw(line)
}

// draw needs mu. It uses no escape sequences, which not every terminal knows.
func (c *console) draw(line string) {
	width := utf8.RuneCountInString(line)
	if c.screen == nil || c.width == 0 && width == 0 {
		return
	}
	text := "\r" + line + strings.Repeat(" ", max(0, c.width-width))
	if width == 0 {
		text += "\r"
	}
	io.WriteString(c.screen, text) //nolint:errcheck // a screen that is gone is not missed
	c.width = width
}

// failure returns the first error of a write to the report.
func (c *console) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}
