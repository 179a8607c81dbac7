package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"strconv"
	"strings"
)

// schedulePath is the package whose types and functions take the place of those
// that let goroutines meet.
const schedulePath = "github.com/seed-b8032e04/pubsub/internal/explore/schedule"

// smaller are constants whose real values put what they bound out of reach of a
// short run. One that the package does not have is ignored.
var smaller = map[string]string{
	"announcementQueueSize": "3",
	"routeSlots":            "2",
	"wideRouteSlots":        "1",
	"wideRoute":             "3",
	"smallBuffer":           "1",
	"callsSpill":            "2",
}

// rewriter prepares one package for the explorer. What it does not know, it
// refuses: the types of package schedule lack what is not listed here, and then
// the copy does not compile.
//
//   - sync and sync/atomic become package schedule, whose locks and atomics yield;
//   - go, send, receive, close, select and runtime.Gosched become calls of it;
//   - calls of handlers, dead-letter handlers and cancel functions yield first;
//   - hash/maphash gets a fixed seed;
//   - the constants in smaller become smaller.
type rewriter struct {
	*source
	info *types.Info
	used bool // package schedule is used other than as sync and sync/atomic
	err  error
}

// rewrite adds the edits that prepare a file.
func rewrite(f *source, info *types.Info) error {
	r := &rewriter{source: f, info: info}
	ast.Inspect(f.syntax, r.visit)
	r.imports()
	return r.err
}

func (r *rewriter) refuse(n ast.Node, what string) {
	if r.err == nil {
		r.err = fmt.Errorf("%s: %s: the explorer does not know how to schedule this yet", r.fset.Position(n.Pos()), what)
	}
}

// imports lets the files that need it import package schedule, once for each name
// that it goes by.
func (r *rewriter) imports() {
	for _, spec := range r.syntax.Imports {
		path, _ := strconv.Unquote(spec.Path.Value)
		if path == "sync" || path == "sync/atomic" {
			if spec.Name != nil {
				r.refuse(spec, "import under another name")
			}
			name := path[strings.LastIndexByte(path, '/')+1:]
			r.replace(spec.Pos(), spec.End(), fmt.Sprintf("%s %q", name, schedulePath))
		}
	}
	if r.used && !r.imported() {
		r.insert(r.syntax.Name.End(), fmt.Sprintf("; import schedule %q", schedulePath))
	}
}

// imported reports whether a planted change has imported package schedule.
func (r *rewriter) imported() bool {
	for _, spec := range r.syntax.Imports {
		if spec.Name != nil && spec.Name.Name == "schedule" {
			return true
		}
	}
	return false
}

// function names one of package schedule.
func (r *rewriter) function(name string) string {
	r.used = true
	return "schedule." + name
}

// keep uses what an edit may have removed the last use of: an import has to be used.
func (r *rewriter) keep(function string) {
	r.insert(r.syntax.FileEnd, "\nvar _ = "+function+"\n")
}

func (r *rewriter) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GoStmt:
		return r.goStatement(n)
	case *ast.SendStmt:
		r.insert(n.Pos(), r.function("Send")+"(")
		r.replace(n.Chan.End(), n.Value.Pos(), ", ")
		r.insert(n.End(), ")")
	case *ast.UnaryExpr:
		if n.Op == token.ARROW {
			r.replace(n.OpPos, n.X.Pos(), r.function("Receive")+"(")
			r.insert(n.End(), ")")
		}
	case *ast.AssignStmt:
		if len(n.Lhs) == 2 && len(n.Rhs) == 1 && isReceive(n.Rhs[0]) {
			r.refuse(n, "receive with ok")
		}
	case *ast.RangeStmt:
		if _, ok := r.info.TypeOf(n.X).Underlying().(*types.Chan); ok {
			r.refuse(n, "range over a channel")
		}
	case *ast.SelectStmt:
		return r.selectStatement(n)
	case *ast.CallExpr:
		r.call(n)
	case *ast.ValueSpec:
		r.constant(n)
	}
	return true
}

func isReceive(e ast.Expr) bool {
	u, ok := ast.Unparen(e).(*ast.UnaryExpr)
	return ok && u.Op == token.ARROW
}

// goStatement: go f(a) becomes schedule.GoWith(f, a).
func (r *rewriter) goStatement(n *ast.GoStmt) bool {
	call := n.Call
	switch len(call.Args) {
	case 0:
		r.replace(n.Pos(), call.Fun.Pos(), r.function("Go")+"(")
		r.replace(call.Lparen, call.Rparen, "")
	case 1:
		r.replace(n.Pos(), call.Fun.Pos(), r.function("GoWith")+"(")
		r.replace(call.Lparen, call.Lparen+1, ", ")
	default:
		r.refuse(n, "go with several arguments")
	}
	ast.Inspect(call.Fun, r.visit)
	for _, arg := range call.Args {
		ast.Inspect(arg, r.visit)
	}
	return false
}

// selectStatement: it becomes a switch on schedule.Select.
func (r *rewriter) selectStatement(n *ast.SelectStmt) bool {
	var cases strings.Builder
	block, index := true, 0
	for _, clause := range n.Body.List {
		clause := clause.(*ast.CommClause)
		if clause.Comm == nil {
			block = false
		} else {
			text, ok := r.selectCase(clause.Comm)
			if !ok {
				r.refuse(clause, "select case other than of a plain signal")
				return false
			}
			cases.WriteString(", " + text)
			r.replace(clause.Comm.Pos(), clause.Comm.End(), strconv.Itoa(index))
			index++
		}
		for _, statement := range clause.Body {
			ast.Inspect(statement, r.visit)
		}
	}
	r.replace(n.Select, n.Select+token.Pos(len("select")),
		fmt.Sprintf("switch %s(%t%s)", r.function("Select"), block, cases.String()))
	return false
}

// selectCase returns the argument of schedule.Select for one case, if it sends or
// receives nothing but a signal, which is a struct{}.
func (r *rewriter) selectCase(statement ast.Stmt) (text string, ok bool) {
	var channel ast.Expr
	direction := "From"
	switch statement := statement.(type) {
	case *ast.ExprStmt:
		receive, _ := ast.Unparen(statement.X).(*ast.UnaryExpr)
		if receive == nil || receive.Op != token.ARROW {
			return "", false
		}
		channel = receive.X
	case *ast.SendStmt:
		channel, direction = statement.Chan, "To"
	default:
		return "", false
	}
	t, ok := r.info.TypeOf(channel).Underlying().(*types.Chan)
	if !ok || t.Elem().String() != "struct{}" {
		return "", false
	}
	return r.function(direction) + "(" + r.of(channel) + ")", true
}

func (r *rewriter) call(n *ast.CallExpr) {
	if callee := calleeOf(r.info, n); callee != nil {
		switch callee.FullName() {
		case "runtime.Gosched":
			r.replace(n.Fun.Pos(), n.Fun.End(), r.function("Gosched"))
			r.keep("runtime.Gosched")
		case "hash/maphash.MakeSeed":
			r.replace(n.Fun.Pos(), n.Fun.End(), "func() (seed maphash.Seed) { return }")
		case "hash/maphash.String":
			r.replace(n.Pos(), n.Args[0].Pos(), r.function("Hash")+"(")
			r.replace(n.Args[0].Pos(), n.Args[1].Pos(), "")
			r.keep("maphash.String")
		default:
			if pkg := callee.Pkg(); pkg != nil && (pkg.Path() == "hash/maphash" || strings.HasPrefix(pkg.Path(), "math/rand")) {
				r.refuse(n, callee.FullName())
			}
		}
		return
	}
	switch fun := r.info.Types[n.Fun]; {
	case fun.IsBuiltin():
		if id, ok := ast.Unparen(n.Fun).(*ast.Ident); ok && id.Name == "close" {
			r.replace(n.Fun.Pos(), n.Fun.End(), r.function("Close"))
		}
	case fun.IsType():
	case isNamed(fun.Type, "context", "CancelFunc"):
		r.replace(n.Pos(), n.End(), r.function("Cancel")+"("+r.of(n.Fun)+")")
	case takesMessage(fun.Type):
		r.insert(n.Fun.Pos(), r.function("Call")+"(")
		r.insert(n.Fun.End(), ")")
	}
}

// calleeOf returns the declared function or method that is called; nil when a
// function value is, or it is no call.
func calleeOf(info *types.Info, n *ast.CallExpr) *types.Func {
	switch fun := ast.Unparen(n.Fun).(type) {
	case *ast.Ident:
		f, _ := info.Uses[fun].(*types.Func)
		return f
	case *ast.SelectorExpr:
		f, _ := info.Uses[fun.Sel].(*types.Func)
		return f
	}
	return nil
}

func isNamed(t types.Type, path, name string) bool {
	named, ok := types.Unalias(t).(*types.Named)
	return ok && named.Obj().Pkg() != nil && named.Obj().Pkg().Path() == path && named.Obj().Name() == name
}

// takesMessage reports whether functions of a type are the user's handlers: they
// take a Message or a DeadLetter.
func takesMessage(t types.Type) bool {
	signature, ok := t.Underlying().(*types.Signature)
	if !ok {
		return false
	}
	for i := range signature.Params().Len() {
		if named, ok := types.Unalias(signature.Params().At(i).Type()).(*types.Named); ok {
			if name := named.Obj().Name(); name == "Message" || name == "DeadLetter" {
				return true
			}
		}
	}
	return false
}

// constant makes one of those in smaller smaller.
func (r *rewriter) constant(n *ast.ValueSpec) {
	for i, name := range n.Names {
		value, ok := smaller[name.Name]
		if _, constant := r.info.Defs[name].(*types.Const); ok && constant && i < len(n.Values) {
			r.replace(n.Values[i].Pos(), n.Values[i].End(), value)
		}
	}
}
