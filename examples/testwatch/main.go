// Testwatch reads the event stream of go test -json, of any module and any size,
// while the tests run or from a file:
//
//	go test -json ./... | go run ./examples/testwatch
//	go test -json ./... > events.json; go run ./examples/testwatch events.json
//
// It prints a line for each package, the output of what fails as soon as it has
// failed, and the results of benchmarks; and at the end what failed, the slowest
// tests and the totals. On a terminal there is a progress line while it runs.
//
// Each event is published as test.<action>.<package>, and subscribers do all the
// work. Those that must see everything are synchronous; the one that drops is an
// archive that is slow on purpose.
//
// Input that is not an event, such as the errors of a compiler with 2>&1, is
// printed with its line number and changes nothing else.
//
// The exit status agrees with that of go test. It is
//
//	0  when something was tested and nothing failed, but for tests in a package
//	   that passed all the same, as test frameworks have them;
//	1  when a test, a package or a build failed; when one has begun and did not
//	   end, because of a panic, a timeout or the end of the input; when the
//	   input ends within an event; and when there is no package in it, for then
//	   go test itself has failed;
//	2  when testwatch failed: wrong usage, or an error of reading or writing.
//
// A stream that was cut off between two packages looks like a whole one: where go
// test may be killed, use set -o pipefail.
//
// An interrupt leaves it reading, since go test gets it as well and has
// something left to say; a second one ends it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // the next interrupt ends the program
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

const usage = `usage: go test -json ./... | testwatch [file]

It reads the named file, or standard input when there is none or it is "-".
`

// run returns the exit status.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("testwatch", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { fmt.Fprint(stderr, usage) }
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2 // flags has printed it
	case flags.NArg() > 1:
		flags.Usage()
		return 2
	}
	source := stdin
	if path := flags.Arg(0); path != "" && path != "-" {
		file, err := os.Open(path)
		if err != nil {
			fmt.Fprintln(stderr, "testwatch:", err)
			return 2
		}
		defer file.Close()
		source = file
	} else if isTerminal(stdin) {
		fmt.Fprint(stderr, usage, "Reading from the terminal.\n")
	}
	log := slog.New(slog.NewTextHandler(stderr, nil))
	ok, err := watch(source, newConsole(stdout, stderr), log)
	switch {
	case err != nil:
		fmt.Fprintln(stderr, "testwatch:", err)
		return 2
	case !ok:
		return 1
	}
	return 0
}
