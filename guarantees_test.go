package pubsub_test

import (
	"go/ast"
	"go/doc/comment"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

// The documentation promises that each of its guarantees has a test of the same name:
// "Late copies" has TestLateCopies.
func TestEachGuaranteeHasATest(t *testing.T) {
	names := guarantees(t)
	require.Contains(t, names, "Fan-out")
	require.Contains(t, names, "Accepted, not delivered")
	tests := topLevelTests(t)
	for _, name := range names {
		if !tests[testName(name)] {
			t.Errorf("guarantee %q needs a test of its name", name)
		}
	}
}

// The table in the README names only guarantees that the documentation gives.
func TestReadmeGuarantees(t *testing.T) {
	names := guarantees(t)
	rows := regexp.MustCompile(`(?m)^\| \*\*(.+?)\*\* \|`).FindAllStringSubmatch(readme(t), -1)
	require.NotEmpty(t, rows)
	for _, row := range rows {
		require.Contains(t, names, row[1])
	}
}

// The README's only Go code is Example, as a program.
func TestReadmeQuickStart(t *testing.T) {
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(readme(t), -1)
	require.Len(t, blocks, 1)
	program := blocks[0][1]
	formatted, err := format.Source([]byte(program))
	require.NoError(t, err)
	require.Equal(t, string(formatted), program)

	source, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	example := strings.NewReplacer(
		"package pubsub_test\n", "package main\n",
		"func Example() {\n", "func main() {\n",
	).Replace(string(source))
	example = regexp.MustCompile(`(?m)^//.*\n`).ReplaceAllString(example, "")
	example, _, found := strings.Cut(example, "\t// Output:")
	require.True(t, found)
	require.Equal(t, example+"}\n", program)
}

// What the README and CONTRIBUTING.md link to in the repository is there.
func TestDocumentLinks(t *testing.T) {
	for _, name := range []string{"README.md", "CONTRIBUTING.md"} {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, link := range regexp.MustCompile(`\]\(([^)#]+)`).FindAllStringSubmatch(string(text), -1) {
			if !strings.Contains(link[1], "://") {
				require.FileExists(t, link[1])
			}
		}
	}
}

// CONTRIBUTING.md says what each file of the package owns.
func TestRooms(t *testing.T) {
	text, err := os.ReadFile("CONTRIBUTING.md")
	require.NoError(t, err)
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, name := range files {
		if !strings.HasSuffix(name, "_test.go") && !strings.Contains(string(text), "\n| "+name+" |") {
			t.Errorf("CONTRIBUTING.md has no row for %s", name)
		}
	}
}

// The documentation of Example_testing shows a test, which is also run.
func TestRemind(t *testing.T) { testRemind(t) }

// guarantees returns the names of the guarantees in the package documentation.
func guarantees(t *testing.T) []string {
	file, err := parser.ParseFile(token.NewFileSet(), "doc.go", nil, parser.ParseComments|parser.PackageClauseOnly)
	require.NoError(t, err)
	var names []string
	heading := ""
	for _, block := range new(comment.Parser).Parse(file.Doc.Text()).Content {
		switch block := block.(type) {
		case *comment.Heading:
			heading = plain(block.Text)
		case *comment.List:
			if heading != "Guarantees" {
				continue
			}
			for _, item := range block.Items {
				text := plain(item.Content[0].(*comment.Paragraph).Text)
				name, _, found := strings.Cut(text, ": ")
				require.Truef(t, found, "guarantee without a name: %s", text)
				names = append(names, name)
			}
		}
	}
	require.NotEmpty(t, names)
	return names
}

func plain(text []comment.Text) string {
	var b strings.Builder
	for _, part := range text {
		if part, ok := part.(comment.Plain); ok {
			b.WriteString(string(part))
		}
	}
	return b.String()
}

// testName returns what the test of a guarantee is called after "Test", in lower case:
// a hyphen may or may not begin a new word.
func testName(guarantee string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			return -1
		}
		return unicode.ToLower(r)
	}, guarantee)
}

// topLevelTests returns the names of the test functions of this directory, as testName
// gives them.
func topLevelTests(t *testing.T) map[string]bool {
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	tests := make(map[string]bool)
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv != nil {
				continue
			}
			if name, ok := strings.CutPrefix(f.Name.Name, "Test"); ok && takesT(f.Type) {
				tests[strings.ToLower(name)] = true
			}
		}
	}
	return tests
}

// takesT reports whether a function has the signature of a test.
func takesT(f *ast.FuncType) bool {
	if f.Results.NumFields() != 0 || f.Params.NumFields() != 1 {
		return false
	}
	star, ok := f.Params.List[0].Type.(*ast.StarExpr)
	if !ok {
		return false
	}
	sel, ok := star.X.(*ast.SelectorExpr)
	return ok && sel.Sel.Name == "T"
}

func readme(t *testing.T) string {
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	return string(text)
}
