package main

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// rewriteText rewrites one file of a package pubsub.
func rewriteText(t *testing.T, text string) (string, error) {
	t.Helper()
	if runtime.GOOS == "js" || runtime.GOOS == "wasip1" {
		t.Skip("needs the standard library's sources")
	}
	f := &source{path: "p.go", text: text, fset: token.NewFileSet()}
	var err error
	f.syntax, err = parser.ParseFile(f.fset, f.path, text, parser.ParseComments|parser.SkipObjectResolution)
	require.NoError(t, err)
	info := &types.Info{
		Types: make(map[ast.Expr]types.TypeAndValue),
		Defs:  make(map[*ast.Ident]types.Object),
		Uses:  make(map[*ast.Ident]types.Object),
	}
	conf := types.Config{Importer: importer.ForCompiler(f.fset, "source", nil)}
	_, err = conf.Check("pubsub", f.fset, []*ast.File{f.syntax}, info)
	require.NoError(t, err)
	if err := rewrite(f, info); err != nil {
		return "", err
	}
	return f.edited()
}

func TestRewrite(t *testing.T) {
	got, err := rewriteText(t, `package pubsub

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
)

const routeSlots = 1024

type Message struct{}

type s struct {
	mu      sync.Mutex
	n       atomic.Uint64
	handler func(context.Context, Message) error
	cancel  context.CancelFunc
	ready   chan struct{}
	work    func()
}

func (s *s) f(ctx context.Context, done chan int, g func(int)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	go s.work() // stays
	go g(1)
	done <- 1
	<-done
	close(done)
	runtime.Gosched()
	select {
	case <-s.ready:
		s.n.Add(1)
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case s.ready <- struct{}{}:
	default:
	}
	s.cancel()
	return s.handler(ctx, Message{})
}
`)
	require.NoError(t, err)
	assert.Equal(t, `package pubsub; import schedule "`+schedulePath+`"

import (
	"context"
	"runtime"
	sync "`+schedulePath+`"
	atomic "`+schedulePath+`"
)

const routeSlots = 2

type Message struct{}

type s struct {
	mu      sync.Mutex
	n       atomic.Uint64
	handler func(context.Context, Message) error
	cancel  context.CancelFunc
	ready   chan struct{}
	work    func()
}

func (s *s) f(ctx context.Context, done chan int, g func(int)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	schedule.Go(s.work) // stays
	schedule.GoWith(g, 1)
	schedule.Send(done, 1)
	schedule.Receive(done)
	schedule.Close(done)
	schedule.Gosched()
	switch schedule.Select(true, schedule.From(s.ready), schedule.From(ctx.Done())) {
	case 0:
		s.n.Add(1)
	case 1:
		return ctx.Err()
	}
	switch schedule.Select(false, schedule.To(s.ready)) {
	case 0:
	default:
	}
	schedule.Cancel(s.cancel)
	return schedule.Call(s.handler)(ctx, Message{})
}

var _ = runtime.Gosched
`, got)
}

func TestRewriteRefuses(t *testing.T) {
	for name, body := range map[string]string{
		"receive with ok":           "v, ok := <-c; _, _ = v, ok",
		"range over a channel":      "for range c {}",
		"go with several arguments": "go func(a, b int) {}(1, 2)",
		"select case":               "select { case v := <-c: _ = v }",
	} {
		_, err := rewriteText(t, "package pubsub\n\nfunc f(c chan int) { "+body+" }\n")
		assert.ErrorContains(t, err, name)
	}
	_, err := rewriteText(t, "package pubsub\n\nimport \"math/rand\"\n\nvar n = rand.Int()\n")
	assert.ErrorContains(t, err, "math/rand")
	_, err = rewriteText(t, "package pubsub\n\nimport locks \"sync\"\n\nvar mu locks.Mutex\n")
	assert.ErrorContains(t, err, "another name")
}

func TestPlant(t *testing.T) {
	files := []*source{{path: "p.go", text: "package p\n\nfunc (q *queue[T]) f() {\n\ta()\n\tb(1,\n\t\t2)\n}\n", fset: token.NewFileSet()}}
	require.NoError(t, parseAll(files))
	b := bug{name: "x", function: "queue.f", old: "b(1, 2)", new: "c()"}
	require.NoError(t, b.plant(files))
	text, err := files[0].edited()
	require.NoError(t, err)
	assert.Equal(t, "package p\n\nfunc (q *queue[T]) f() {\n\ta()\n\tc()\n\n}\n", text)

	b.function = "queue.g"
	assert.ErrorContains(t, b.plant(files), `planted bug "x": 0 places for it in queue.g`)
}

func TestEditsOfTheSameText(t *testing.T) {
	f := &source{path: "p.go", text: "abc", edits: []edit{{0, 2, "x"}, {1, 3, "y"}}}
	_, err := f.edited()
	assert.ErrorContains(t, err, "two edits")
}
