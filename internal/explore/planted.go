package main

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
)

// bug is a fault to plant: in one function, some text becomes another. Spaces and
// line breaks do not matter.
type bug struct {
	name     string
	function string // as in queue.admit
	old, new string
}

// plant makes the change in the sources.
func (b *bug) plant(files []*source) error {
	pattern := regexp.MustCompile(regexp.MustCompile(`(\\?[\s])+`).ReplaceAllString(regexp.QuoteMeta(b.old), `\s+`))
	planted := 0
	for _, f := range files {
		for _, d := range f.syntax.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || functionName(fn) != b.function {
				continue
			}
			for _, at := range pattern.FindAllStringIndex(f.of(fn), -1) {
				start := f.offset(fn.Pos())
				lines := strings.Count(f.text[start+at[0]:start+at[1]], "\n") - strings.Count(b.new, "\n")
				f.edits = append(f.edits, edit{start + at[0], start + at[1], b.new + strings.Repeat("\n", max(lines, 0))})
				planted++
			}
		}
	}
	if planted != 1 {
		return fmt.Errorf("planted bug %q: %d places for it in %s: change it along with the code", b.name, planted, b.function)
	}
	return nil
}

// functionName is the function's name, after its receiver's type if it has one.
func functionName(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return fn.Name.Name
	}
	t := fn.Recv.List[0].Type
	if pointer, ok := t.(*ast.StarExpr); ok {
		t = pointer.X
	}
	if generic, ok := t.(*ast.IndexExpr); ok {
		t = generic.X
	}
	return t.(*ast.Ident).Name + "." + fn.Name.Name
}

// findPlanted looks for each planted bug.
func findPlanted(c *core, dir string, o options) error {
	match, err := regexp.Compile(o.match)
	if err != nil {
		return err
	}
	var chosen []hunt
	for i := range bugs {
		if b := &bugs[i]; match.MatchString(b.name) {
			chosen = append(chosen, hunt{name: b.name, program: func() (*program, error) {
				sources, err := c.rewritten(b.plant)
				if err != nil {
					return nil, err
				}
				own := filepath.Join(dir, fmt.Sprint("bug", i))
				if err := os.Mkdir(own, 0o755); err != nil {
					return nil, err
				}
				return c.build(own, sources)
			}})
		}
	}
	return findAll(chosen, o)
}

// hunt is one search for a bug.
type hunt struct {
	name    string
	program func() (*program, error)
}

// findAll makes all searches and prints a table of them. A bug that is not found is
// an error: then the scenarios are too weak.
func findAll(hunts []hunt, o options) error {
	rows := make([]string, len(hunts))
	errs := make([]error, len(hunts))
	next := make(chan int)
	var workers sync.WaitGroup
	var printing sync.Mutex
	printed := 0
	for range o.processes {
		workers.Go(func() {
			for i := range next {
				row, err := hunts[i].find(o)
				printing.Lock()
				rows[i], errs[i] = row, err
				for printed < len(rows) && rows[printed] != "" {
					fmt.Println(rows[printed])
					printed++
				}
				printing.Unlock()
			}
		})
	}
	fmt.Println("| planted | found by | after seeds | as |")
	fmt.Println("|---|---|---|---|")
	for i := range hunts {
		next <- i
	}
	close(next)
	workers.Wait()
	return errors.Join(errs...)
}

// find runs seeds, more and more at a time, until one fails.
func (h *hunt) find(o options) (row string, err error) {
	p, err := h.program()
	if err != nil {
		return fmt.Sprintf("| %s | | | does not compile |", h.name), fmt.Errorf("%s: %w", h.name, err)
	}
	for from, n := o.from, uint64(250); from < o.from+o.seeds; from, n = from+n, min(2*n, chunk) {
		r, err := p.run(context.Background(), from, n, o.scenario)
		if err != nil {
			return fmt.Sprintf("| %s | | | %v |", h.name, err), fmt.Errorf("%s: %w", h.name, err)
		}
		if f := r.failure; f != nil {
			what, _, _ := strings.Cut(f.what, "\n")
			return fmt.Sprintf("| %s | %s | %d | %s |", h.name, f.scenario, f.seed-o.from+1, shorten(what)), nil
		}
	}
	return fmt.Sprintf("| %s | - | none of %d | NOT FOUND |", h.name, o.seeds), fmt.Errorf("%s: not found in %d seeds", h.name, o.seeds)
}

// shorten keeps a row on one line of a table.
func shorten(what string) string {
	what = strings.ReplaceAll(what, "|", "/")
	if len(what) > 110 {
		what = what[:110] + "..."
	}
	return what
}
