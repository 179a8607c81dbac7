package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// source is one file of the package under test, and what is to be changed in it.
type source struct {
	path   string // where the file is
	text   string
	syntax *ast.File
	fset   *token.FileSet
	edits  []edit
}

// edit puts text in place of some bytes of a file. Edits keep the number of lines
// before every other statement, so that positions in traces are the original's.
type edit struct {
	from, to int
	text     string
}

func (f *source) offset(pos token.Pos) int { return f.fset.Position(pos).Offset }

// of returns the source text of a node.
func (f *source) of(n ast.Node) string { return f.text[f.offset(n.Pos()):f.offset(n.End())] }

func (f *source) replace(from, to token.Pos, text string) {
	f.edits = append(f.edits, edit{f.offset(from), f.offset(to), text})
}

// insert adds an edit that removes nothing.
func (f *source) insert(at token.Pos, text string) { f.replace(at, at, text) }

// edited returns the text with all edits made.
func (f *source) edited() (string, error) {
	slices.SortStableFunc(f.edits, func(a, b edit) int {
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to))
	})
	var out strings.Builder
	at := 0
	for _, e := range f.edits {
		if e.from < at {
			return "", fmt.Errorf("%s: two edits of the same text: %q", f.path, f.text[e.from:e.to])
		}
		out.WriteString(f.text[at:e.from])
		out.WriteString(e.text)
		at = e.to
	}
	out.WriteString(f.text[at:])
	return out.String(), nil
}
