package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// deletion is one statement of the package that can be left out, or one condition
// that can be held to be always true or always false.
type deletion struct {
	number int // from 1
	name   string
}

// deletable prepares the sources so that a flag of the program says what is left
// out: one compilation serves for all.
func deletable(files []*source, match *regexp.Regexp) []deletion {
	var all []deletion
	add := func(f *source, n ast.Node, kind string) int {
		d := deletion{number: len(all) + 1}
		at := f.fset.Position(n.Pos())
		d.name = fmt.Sprintf("%s:%d %s `%s`", filepath.Base(at.Filename), at.Line, kind, strings.Join(strings.Fields(f.of(n)), " "))
		if !match.MatchString(d.name) {
			return 0
		}
		all = append(all, d)
		return d.number
	}
	for _, f := range files {
		for _, d := range f.syntax.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.ExprStmt, *ast.IncDecStmt, *ast.SendStmt, *ast.DeferStmt, *ast.GoStmt, *ast.AssignStmt:
					if a, ok := n.(*ast.AssignStmt); ok && a.Tok == token.DEFINE || !inBlock(fn.Body, n.(ast.Stmt)) {
						break
					}
					if number := add(f, n, "without"); number > 0 {
						f.insert(n.Pos(), "if !schedule.Without("+strconv.Itoa(number)+") { ")
						f.insert(n.End(), " }")
					}
				case *ast.IfStmt:
					for _, kind := range []string{"never", "always"} {
						if number := add(f, n.Cond, kind); number > 0 {
							f.insert(n.Cond.Pos(), "schedule."+strings.ToUpper(kind[:1])+kind[1:]+"("+strconv.Itoa(number)+", ")
							f.insert(n.Cond.End(), ")")
						}
					}
				}
				return true
			})
		}
		if len(f.edits) > 0 {
			f.insert(f.syntax.Name.End(), fmt.Sprintf("; import schedule %q", schedulePath))
		}
	}
	return all
}

// inBlock reports whether a statement is one of a list of statements, and not part
// of another.
func inBlock(body *ast.BlockStmt, s ast.Stmt) bool {
	found := false
	ast.Inspect(body, func(n ast.Node) bool {
		var list []ast.Stmt
		switch n := n.(type) {
		case *ast.BlockStmt:
			list = n.List
		case *ast.CaseClause:
			list = n.Body
		case *ast.CommClause:
			list = n.Body
		}
		for _, other := range list {
			found = found || other == s
		}
		return !found
	})
	return found
}

// findDeletions looks for each deletion.
func findDeletions(c *core, dir string, o options) error {
	match, err := regexp.Compile(o.match)
	if err != nil {
		return err
	}
	var all []deletion
	sources, err := c.rewritten(func(files []*source) error {
		all = deletable(files, match)
		return nil
	})
	if err != nil {
		return err
	}
	p, err := c.build(dir, sources)
	if err != nil {
		return err
	}
	var hunts []hunt
	for _, d := range all {
		hunts = append(hunts, hunt{name: d.name, program: func() (*program, error) {
			return &program{path: p.path, args: []string{"-without", strconv.Itoa(d.number)}}, nil
		}})
	}
	return findAll(hunts, o)
}
