package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"hash/fnv"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// core is the package under test, as it is on the disk.
type core struct {
	module, dir string
	files       []string          // its non-test sources
	texts       map[string]string // of the files
	exports     map[string]string // compiled packages, by import path
}

// load reads the root package of the module in the current directory.
func load() (*core, error) {
	out, err := output("go", "list", "-m", "-f", "{{.Path}}\n{{.Dir}}")
	if err != nil {
		return nil, err
	}
	module, dir, _ := strings.Cut(strings.TrimSpace(out), "\n")
	c := &core{module: module, dir: dir, texts: make(map[string]string), exports: make(map[string]string)}
	out, err = output("go", "list", "-export", "-deps", "-json=ImportPath,Dir,GoFiles,Export", module, schedulePath)
	if err != nil {
		return nil, err
	}
	for d := json.NewDecoder(strings.NewReader(out)); ; {
		var p struct {
			ImportPath, Dir, Export string
			GoFiles                 []string
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		c.exports[p.ImportPath] = p.Export
		if p.ImportPath == module {
			for _, name := range p.GoFiles {
				c.files = append(c.files, filepath.Join(p.Dir, name))
			}
		}
	}
	for _, path := range c.files {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		c.texts[path] = string(text)
	}
	return c, nil
}

// hash identifies the sources, so that a result says what it is about.
func (c *core) hash() string {
	h := fnv.New64a()
	for _, path := range slices.Sorted(maps.Keys(c.texts)) {
		fmt.Fprintf(h, "%s %q\n", filepath.Base(path), c.texts[path])
	}
	return fmt.Sprintf("%016x", h.Sum64())
}

// rewritten returns the sources as the explorer runs them, after change, which may
// be nil, has been made.
func (c *core) rewritten(change func([]*source) error) (map[string]string, error) {
	fset := token.NewFileSet()
	var files []*source
	for _, path := range c.files {
		files = append(files, &source{path: path, text: c.texts[path], fset: fset})
	}
	if change != nil {
		if err := parseAll(files); err != nil {
			return nil, err
		}
		if err := change(files); err != nil {
			return nil, err
		}
		for _, f := range files {
			text, err := f.edited()
			if err != nil {
				return nil, err
			}
			f.text, f.edits = text, nil
		}
	}
	if err := parseAll(files); err != nil {
		return nil, err
	}
	info, err := c.check(fset, files)
	if err != nil {
		return nil, err
	}
	texts := make(map[string]string)
	for _, f := range files {
		if err := rewrite(f, info); err != nil {
			return nil, err
		}
		if texts[f.path], err = f.edited(); err != nil {
			return nil, err
		}
	}
	return texts, nil
}

func parseAll(files []*source) error {
	for _, f := range files {
		var err error
		f.syntax, err = parser.ParseFile(f.fset, f.path, f.text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *core) check(fset *token.FileSet, files []*source) (*types.Info, error) {
	compiled := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(c.exports[path])
	})
	info := &types.Info{
		Types: make(map[ast.Expr]types.TypeAndValue),
		Defs:  make(map[*ast.Ident]types.Object),
		Uses:  make(map[*ast.Ident]types.Object),
	}
	var syntax []*ast.File
	for _, f := range files {
		syntax = append(syntax, f.syntax)
	}
	_, err := (&types.Config{Importer: compiled}).Check(c.module, fset, syntax, info)
	return info, err
}

// build compiles the scenarios with sources in place of the package's, as a test
// program in dir. The sources are written to dir too.
func (c *core) build(dir string, sources map[string]string) (*program, error) {
	overlay := struct{ Replace map[string]string }{make(map[string]string)}
	for path, text := range sources {
		copied := filepath.Join(dir, filepath.Base(path))
		if err := os.WriteFile(copied, []byte(text), 0o644); err != nil {
			return nil, err
		}
		overlay.Replace[path] = copied
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		return nil, err
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, text, 0o644); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "scenario.test")
	_, err = output("go", "test", "-c", "-vet=off", "-overlay", list, "-o", path,
		"-ldflags", "-s -w -X "+c.module+"/internal/explore/scenario.rewritten=yes",
		c.module+"/internal/explore/scenario")
	return &program{path: path}, err
}

// output runs a command and returns what it prints; its errors have what it says.
func output(name string, args ...string) (string, error) {
	var out, complaint bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s%s", name, args[0], err, out.String(), complaint.String())
	}
	return out.String(), nil
}
