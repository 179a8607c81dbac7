package main

import (
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sheet is written by one goroutine and read by another.
type sheet struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *sheet) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *sheet) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// onScreen returns the lines that were on the terminal, one after the other.
func onScreen(t *testing.T, written string) (lines []string) {
	t.Helper()
	width := 0 // of what would still be seen
	for _, drawn := range strings.Split(written, "\r") {
		if drawn == "" {
			continue
		}
		assert.GreaterOrEqual(t, utf8.RuneCountInString(drawn), width, "something is left of the line before")
		line := strings.TrimRight(drawn, " ")
		width = utf8.RuneCountInString(line)
		assert.Less(t, width, 80)
		lines = append(lines, line)
	}
	return lines
}

func TestProgressOnATerminal(t *testing.T) {
	t.Setenv("COLUMNS", "")
	synctest.Test(t, func(t *testing.T) {
		var report, screen sheet
		stream, feed := io.Pipe()
		done := make(chan bool)
		go func() {
			ok, err := watch(stream, &console{report: &report, screen: &screen}, slog.New(slog.DiscardHandler))
			assert.NoError(t, err)
			done <- ok
		}()
		send := func(all ...string) {
			_, err := io.WriteString(feed, events(t, all...))
			require.NoError(t, err)
		}
		wait := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		last := func() string {
			lines := onScreen(t, screen.String())
			return lines[len(lines)-1]
		}

		wait(2 * progressInterval)
		assert.Equal(t, "0s  0 packages, 0 tests", last())
		send("start p", "run p TestX", "pass p TestX", "run p TestY")
		wait(progressInterval)
		assert.Equal(t, "0s  0 packages, 1 tests  p TestY", last())
		wait(3 * time.Second) // nothing happens, but time
		assert.Equal(t, "3s  0 packages, 1 tests  p TestY", last())

		send("output p TestY oh\n", "fail p TestY", "fail p")
		synctest.Wait()
		assert.Empty(t, last(), "erased for the report")
		assert.Contains(t, report.String(), "--- FAIL: TestY (0.00s)  p\n    oh\n")
		wait(progressInterval)
		assert.Equal(t, "3s  1 packages (1 failed), 2 tests (1 failed)  p TestY", last())

		send("run p Test\x1b[2J" + strings.Repeat("é", 200))
		wait(progressInterval)
		assert.Contains(t, last(), "p Test?[2Jé")

		require.NoError(t, feed.Close())
		assert.False(t, <-done)
		assert.Empty(t, last(), "erased at the end")
		assert.NotContains(t, report.String(), "\r")
	})
}

func TestNoProgressWithoutATerminal(t *testing.T) {
	c := newConsole(new(strings.Builder), new(strings.Builder))
	assert.Nil(t, c.screen)
	c.progress("never seen", 80)
	c.print("text")
	assert.Equal(t, "text\n", c.report.(*strings.Builder).String())
}
