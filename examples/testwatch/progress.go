package main

import (
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
)

// progressInterval is how often the progress line is drawn, also while no event
// comes: then the time goes on.
const progressInterval = 100 * time.Millisecond

// progress draws a line on the terminal while the tests run.
type progress struct {
	console *console
	columns int

	mu                       sync.Mutex // guards the rest, for the goroutine that draws
	packages, failedPackages int        // that have ended
	tests, failedTests       int
	current                  string // what began last
}

func newProgress(c *console) *progress {
	columns, err := strconv.Atoi(os.Getenv("COLUMNS"))
	if err != nil || columns < 20 {
		columns = 80
	}
	return &progress{console: c, columns: columns}
}

func (p *progress) routes() []route {
	return []route{
		{"test.start.*", p.begin},
		{"test.run.*", p.begin},
		{"test.pass.*", p.end},
		{"test.fail.*", p.end},
		{"test.skip.*", p.end},
	}
}

func (p *progress) begin(ev *event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// The path of a package leaves no room for anything else.
	p.current = strings.TrimSpace(path.Base(name(ev.Package)) + " " + ev.Test)
}

func (p *progress) end(ev *event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ended, failed := &p.tests, &p.failedTests
	if ev.Test == "" {
		ended, failed = &p.packages, &p.failedPackages
	}
	*ended++
	if ev.Action == "fail" {
		*failed++
	}
}

// run draws until stop is called, which erases the line.
func (p *progress) run() (stop func()) {
	began := time.Now()
	quit := make(chan struct{})
	var drawing sync.WaitGroup
	drawing.Go(func() {
		ticker := time.NewTicker(progressInterval)
		defer ticker.Stop()
		for {
			select {
			case now := <-ticker.C:
				p.console.progress(p.line(now.Sub(began)), p.columns)
			case <-quit:
				p.console.progress("", p.columns)
				return
			}
		}
	})
	return func() {
		close(quit)
		drawing.Wait()
	}
}

func (p *progress) line(elapsed time.Duration) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	packages := fmt.Sprintf("%d packages", p.packages)
	if p.failedPackages > 0 {
		packages += fmt.Sprintf(" (%d failed)", p.failedPackages)
	}
	tests := fmt.Sprintf("%d tests", p.tests)
	if p.failedTests > 0 {
		tests += fmt.Sprintf(" (%d failed)", p.failedTests)
	}
	line := fmt.Sprintf("%s  %s, %s  %s", elapsed.Truncate(time.Second), packages, tests, p.current)
	// A control character would move the cursor.
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, line)
}
