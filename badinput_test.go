package pubsub

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// badTopics are no topics, badPatterns no patterns. Invalid UTF-8 and NUL are bytes like
// any other: they make no name bad, and must not hide what does.
var (
	badTopics = map[string]string{
		"empty":                         "",
		"a dot":                         ".",
		"a first segment empty":         ".a",
		"a last segment empty":          "a.",
		"a middle segment empty":        "a..b",
		"NUL, then an empty segment":    "\x00.",
		"invalid UTF-8, then one":       "\xff\xfe..",
		"a star":                        "*",
		"a hash":                        "#",
		"a pattern":                     "a.*.b",
		"a wide pattern":                "a.#",
		"a star after NUL":              "\x00*",
		"a hash after invalid UTF-8":    "a.\xc3#",
		"a byte too long":               strings.Repeat("a", 65_536),
		"a byte too long, of NUL":       strings.Repeat("\x00", 65_536),
		"a byte too long, no UTF-8":     strings.Repeat("\xff", 65_536),
		"a segment too deep":            strings.Repeat("a.", 32_768) + "a",
		"a megabyte":                    strings.Repeat("a", 1<<20),
		"65,535 dots":                   strings.Repeat(".", 65_535),
		"32,768 segments, the last bad": strings.Repeat("a.", 32_767) + "*",
		"32,767 segments and a dot":     strings.Repeat("a.", 32_767),
	}
	badPatterns = map[string]string{
		"empty":                          "",
		"a dot":                          ".",
		"a first segment empty":          ".*",
		"a last segment empty":           "#.",
		"a middle segment empty":         "*..*",
		"a star in a segment":            "cre*",
		"two stars":                      "a.**",
		"a hash in a segment":            "a.b#",
		"a hash before the last segment": "a.#.b",
		"two hashes":                     "#.#",
		"a star after NUL":               "\x00*",
		"a hash after invalid UTF-8":     "\xff#",
		"a byte too long":                strings.Repeat("a", 65_536),
		"a byte too long, of stars":      strings.Repeat("*.", 32_768) + "*",
		"a megabyte":                     strings.Repeat("a", 1<<20),
		"65,535 dots":                    strings.Repeat(".", 65_535),
		"32,768 hashes":                  strings.Repeat("#.", 32_767) + "#",
	}
	badOptions = map[string]SubscribeOption{
		"no queue":             WithQueueSize(0),
		"a negative queue":     WithQueueSize(math.MinInt),
		"policy 3":             WithDropPolicy(3),
		"policy -1":            WithDropPolicy(-1),
		"no messages":          WithMaxMessages(0),
		"fewer than none":      WithMaxMessages(math.MinInt),
		"a bad one among good": func(o *subscribeOptions) { WithQueueSize(1)(o); WithQueueSize(0)(o); WithQueueSize(2)(o) },
	}
)

// subject is a broker that has some of everything, so that no change can hide: what is
// declared, queued, running, waiting, failed, evicted and ended.
type subject struct {
	*rig
	handled, pulled, ended *Subscription
	handlerCtx             context.Context
	failed                 DeadLetter
}

func newSubject(t *testing.T, opts ...Option) *subject {
	r := &subject{rig: &rig{T: t, Broker: New(opts...)}}
	g := r.turnstile()
	for _, topic := range []string{"a", "a.b", "fails", "full", "pulled"} {
		require.NoError(t, r.CreateTopic(topic))
	}
	r.handled = r.on("a", func(ctx context.Context, msg Message) error {
		r.handlerCtx = ctx
		return g.handle(ctx, msg)
	})
	r.fill("a")
	r.on("fails", failing[ReasonError], WithSync())
	r.pub("fails", nil)
	r.failed = r.DeadLetters().Snapshot()[0]
	r.full("full", Block)
	require.False(t, r.pubLater(context.Background(), "full", nil).done())
	var err error
	r.pulled, err = r.Pull("pulled", WithQueueSize(1))
	require.NoError(t, err)
	r.pub("pulled", 1)
	r.pub("pulled", 2) // Evicts the first.
	r.ended = r.on("a.*", nothing)
	r.ended.Unsubscribe()
	return r
}

// observed is everything that one can see of a broker, and what would show a change
// that one cannot see yet.
type observed struct {
	stats         Stats
	topics        []string
	subs          []*Subscription
	each          []SubscriptionStats
	letters       []DeadLetter
	total, lastID uint64
	generation    uint64
	edges         int
}

func observe(b *Broker) observed {
	o := observed{
		stats:      b.Stats(),
		topics:     b.Topics(),
		subs:       b.Subscriptions(),
		letters:    b.DeadLetters().Snapshot(),
		total:      b.DeadLetters().Total(),
		lastID:     b.lastSubscription,
		generation: b.generation.Load(),
		edges:      len(b.index.edges),
	}
	for _, s := range o.subs {
		o.each = append(o.each, s.Stats())
	}
	return o
}

// badInput is one call that has to be refused.
type badInput struct {
	function, name string // of the exported surface
	want           error  // from a broker that is open
	call           func(r *subject) error
}

// badInputs are all bad inputs to all functions that can refuse one.
func badInputs() (all []badInput) {
	add := func(function, name string, want error, call func(r *subject) error) {
		all = append(all, badInput{function, name, want, call})
	}
	background := context.Background()
	publish := func(topic string) func(r *subject) error {
		return func(r *subject) error { _, err := r.Publish(background, topic, nil); return err }
	}
	create := func(name string) func(r *subject) error {
		return func(r *subject) error { return r.CreateTopic(name) }
	}
	remove := func(name string) func(r *subject) error {
		return func(r *subject) error { return r.DeleteTopic(name) }
	}
	subscribe := func(pattern string, h Handler, opts ...SubscribeOption) func(r *subject) error {
		return func(r *subject) error { s, err := r.Subscribe(pattern, h, opts...); require.Nil(r, s); return err }
	}
	pull := func(pattern string, opts ...SubscribeOption) func(r *subject) error {
		return func(r *subject) error { s, err := r.Pull(pattern, opts...); require.Nil(r, s); return err }
	}
	match := func(pattern, topic string) func(*subject) error {
		return func(*subject) error { _, err := Match(pattern, topic); return err }
	}
	redeliver := func(change func(r *subject, l *DeadLetter)) func(r *subject) error {
		return func(r *subject) error {
			l := r.failed
			change(r, &l)
			return r.Redeliver(background, l)
		}
	}
	for name, topic := range badTopics {
		add("Broker.Publish", name, ErrInvalidTopic, publish(topic))
		add("Broker.CreateTopic", name, ErrInvalidTopic, create(topic))
		add("Broker.DeleteTopic", name, ErrInvalidTopic, remove(topic))
		add("Match", "topic: "+name, ErrInvalidTopic, match("#", topic))
	}
	for name, pattern := range badPatterns {
		add("Broker.Subscribe", name, ErrInvalidPattern, subscribe(pattern, nothing))
		add("Broker.Subscribe", name+", and all else bad", ErrInvalidPattern, subscribe(pattern, nil, WithQueueSize(0)))
		add("Broker.Pull", name, ErrInvalidPattern, pull(pattern))
		add("Match", "pattern: "+name, ErrInvalidPattern, match(pattern, "a"))
		add("Match", "both: "+name, ErrInvalidPattern, match(pattern, ""))
	}
	for name, opt := range badOptions {
		add("Broker.Subscribe", name, ErrInvalidOption, subscribe("a", nothing, opt))
		add("Broker.Subscribe", name+", synchronous", ErrInvalidOption, subscribe("a", nothing, WithSync(), opt))
		add("Broker.Pull", name, ErrInvalidOption, pull("a", opt))
	}
	add("Broker.Pull", "synchronous", ErrInvalidOption, pull("a", WithSync()))
	add("Broker.Subscribe", "no handler", ErrNilHandler, subscribe("a", nil))
	add("Broker.Subscribe", "no typed handler", ErrNilHandler, subscribe("a", Typed[int](nil)))
	add("Broker.DeleteTopic", "not declared", ErrUnknownTopic, remove("unknown"))
	add("Broker.DeleteTopic", "not declared, but subscribed to", ErrUnknownTopic, remove("a.x"))
	add("Broker.DeleteTopic", "not declared, 32,768 segments", ErrUnknownTopic, remove(strings.Repeat("a.", 32_767)+"a"))

	add("Broker.Redeliver", "the zero letter", ErrNoSubscription, redeliver(func(_ *subject, l *DeadLetter) { *l = DeadLetter{} }))
	add("Broker.Redeliver", "of no such subscription", ErrNoSubscription, redeliver(func(_ *subject, l *DeadLetter) { l.SubscriptionID = 1 << 60 }))
	add("Broker.Redeliver", "of another pattern", ErrNoSubscription, redeliver(func(_ *subject, l *DeadLetter) { l.Pattern = "a" }))
	add("Broker.Redeliver", "put together", ErrNoSubscription, redeliver(func(_ *subject, l *DeadLetter) { l.Pattern = strings.Clone(l.Pattern) }))
	add("Broker.Redeliver", "of a bad pattern", ErrNoSubscription, redeliver(func(_ *subject, l *DeadLetter) { l.Pattern = "a..\xff#." }))
	add("Broker.Redeliver", "of one that has ended", ErrNoSubscription, redeliver(func(r *subject, l *DeadLetter) {
		*l = r.ended.letter(&l.Message, ReasonError, l.Time, errFailing)
	}))

	// In a handler these would wait for it. Drain and Shutdown refuse as well, but
	// only to wait: TestReentrancy.
	add("Broker.Flush", "in a handler", ErrInHandler, func(r *subject) error { return r.Flush(r.handlerCtx) })

	for _, p := range []DropPolicy{-1, 3, math.MaxInt} {
		add("DropPolicy.MarshalText", p.String(), ErrInvalidOption, func(*subject) error { _, err := p.MarshalText(); return err })
	}
	for _, text := range []string{"", "Block", "block\x00", "\xff", "1", strings.Repeat("block", 1<<16)} {
		add("DropPolicy.UnmarshalText", quoteShort(text), ErrInvalidOption, func(r *subject) error {
			p := DropNewest
			err := p.UnmarshalText([]byte(text))
			require.Equal(r, DropNewest, p)
			return err
		})
	}
	return all
}

// neverRefuse are the exported functions that return an error and take nothing that
// could be bad, or check it elsewhere.
var neverRefuse = map[string]string{
	"Broker.Close":       "always nil",
	"Broker.Shutdown":    "what a ctx makes it return does not keep it from closing",
	"Subscription.Drain": "what a ctx makes it return does not keep it from draining",
	"Reason.MarshalText": "always nil",
	"PanicError.Unwrap":  "returns what was panicked with",
}

// Every bad input gives its documented error, and changes nothing that can be seen: not
// with a broker that is open, nor with one of strict topics, nor with a closed one, whose
// error comes before any other.
func TestBadInputs(t *testing.T) {
	inputs := badInputs()
	covered := make(map[string]int)
	for name, opts := range map[string][]Option{"open": nil, "strict": {WithStrictTopics()}, "closed": nil} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newSubject(t, opts...)
				if name == "closed" {
					require.NoError(t, r.Close())
				}
				before := observe(r.Broker)
				refused := 0
				for _, in := range inputs {
					want := in.want
					if name == "closed" && strings.HasPrefix(in.function, "Broker.") && in.function != "Broker.Flush" {
						want = ErrClosed
					}
					err := in.call(r)
					require.ErrorIs(t, err, want, "%s: %s", in.function, in.name)
					require.Less(t, len(err.Error()), 400, "%s: %s", in.function, in.name)
					synctest.Wait()
					require.Equal(t, before, observe(r.Broker), "%s: %s", in.function, in.name)
					covered[in.function]++
					refused++
				}
				if name == "strict" {
					_, err := r.Publish(context.Background(), "unknown", nil)
					require.ErrorIs(t, err, ErrUnknownTopic)
					require.Equal(t, before, observe(r.Broker))
				}
				t.Logf("%d bad inputs refused", refused)
				require.Equal(t, len(inputs), refused)
			})
		})
	}
	require.Len(t, inputs, 4*len(badTopics)+5*len(badPatterns)+3*len(badOptions)+22)
	for _, function := range returnError(t) {
		if neverRefuse[function] == "" {
			require.Positive(t, covered[function], "%s returns an error: which input does it refuse?", function)
		}
	}
}

// What is documented to panic does, and changes nothing either.
func TestBadLoops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSubject(t)
		before := observe(r.Broker)
		require.PanicsWithValue(t, "pubsub: Messages of a subscription that has a handler", func() { r.handled.Messages(context.Background()) })
		require.Equal(t, before, observe(r.Broker))
		for range r.pulled.Messages(context.Background()) {
			before = observe(r.Broker)
			require.PanicsWithValue(t, "pubsub: two loops over the Messages of one subscription", func() {
				for range r.pulled.Messages(context.Background()) {
					t.Error("a second loop")
				}
			})
			require.Equal(t, before, observe(r.Broker))
			break
		}
		require.EqualValues(t, 1, r.pulled.Stats().Delivered)
	})
}

// returnError lists the exported functions and methods of the package whose last result
// is an error.
func returnError(t *testing.T) (names []string) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		syntax, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, decl := range syntax.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || !f.Name.IsExported() || f.Type.Results.NumFields() == 0 {
				continue
			}
			results := f.Type.Results.List
			last, ok := results[len(results)-1].Type.(*ast.Ident)
			if !ok || last.Name != "error" {
				continue
			}
			name := f.Name.Name
			if f.Recv != nil {
				receiver := f.Recv.List[0].Type
				if star, ok := receiver.(*ast.StarExpr); ok {
					receiver = star.X
				}
				if id, ok := receiver.(*ast.Ident); ok {
					if !id.IsExported() {
						continue
					}
					name = id.Name + "." + name
				}
			}
			names = append(names, name)
		}
	}
	require.NotEmpty(t, names)
	return names
}
