// Livefeed is a small HTTP service: it takes JSON events in and streams them out to
// browsers as server-sent events. To see it, open the address that it logs:
//
//	go run ./examples/livefeed
//
// README.md has the curl lines. It is made to be copied: one bounded subscription per
// client, so that a slow browser loses events, is told so, and holds up nobody; a journal
// that loses none; and a shutdown after which every event that was answered with 202 is
// in the journal and has been sent to the clients that keep up.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	// A container is stopped with SIGTERM, a terminal with an interrupt.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // A second signal ends the process at once.
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "livefeed:", err)
		os.Exit(1)
	}
}

// run serves until ctx is done and everything has ended. The journal goes to stdout, one
// event a line, the log to stderr.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("livefeed", flag.ContinueOnError)
	flags.SetOutput(stderr)
	addr := flags.String("addr", "localhost:8080", "the `address` to listen on")
	c := defaults
	flags.IntVar(&c.queue, "queue", c.queue, "how many `events` wait for one slow client before it loses the oldest")
	flags.IntVar(&c.streams, "streams", c.streams, "how many `clients` may be connected")
	flags.DurationVar(&c.heartbeat, "heartbeat", c.heartbeat, "the `time` between signs of life to a client")
	flags.DurationVar(&c.stall, "stall", c.stall, "the `time` after which a client that takes nothing is disconnected")
	flags.DurationVar(&c.grace, "grace", c.grace, "the `time` that the shutdown may take")
	if err := flags.Parse(args); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(stderr, nil))
	s, err := newService(c, stdout, log)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", *addr)
	if err != nil {
		return err
	}
	log.Info("listening", "url", fmt.Sprintf("http://%s/", l.Addr()))
	return s.serve(ctx, l)
}

// config is what the flags set.
type config struct {
	queue     int
	streams   int
	heartbeat time.Duration
	stall     time.Duration
	grace     time.Duration
}

var defaults = config{
	queue:     64,
	streams:   1000,
	heartbeat: 15 * time.Second,
	stall:     5 * time.Second,
	grace:     10 * time.Second,
}
