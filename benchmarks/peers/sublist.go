package peers

import (
	"errors"
	"reflect"
	"unsafe"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats-server/v2/server/gsl"
)

// SublistCached is the NATS server's subject list with its cache of at most
// 1,024 recent subjects.
var SublistCached = Matcher{
	Name:   "NATS sublist, cached",
	Module: natsModule,
	Note:   "finds subscriptions, delivers nothing",
	Open:   func() (Index, error) { return newSublist(server.NewSublistWithCache()) },
}

// SublistUncached is the same without the cache.
var SublistUncached = Matcher{
	Name:   "NATS sublist, uncached",
	Module: natsModule,
	Note:   "finds subscriptions, delivers nothing",
	Open:   func() (Index, error) { return newSublist(server.NewSublistNoCache()) },
}

// GSL is the NATS server's generic subject list, which has no cache.
var GSL = Matcher{
	Name:   "NATS gsl",
	Module: natsModule,
	Note:   "finds subscriptions, delivers nothing",
	Open:   func() (Index, error) { return &gslIndex{list: gsl.NewSublist[*gslEntry]()}, nil },
}

// natsNames is how NATS spells names.
type natsNames struct{}

func (natsNames) Topic(name string) string   { return name }
func (natsNames) Pattern(name string) string { return natsPattern(name) }

type sublist struct {
	natsNames
	list   *server.Sublist
	insert func(subject string) (remove func(), err error)
	found  uintptr // offset of the matching subscriptions in a result
}

func newSublist(list *server.Sublist) (*sublist, error) {
	insert, err := sublistInsert(list.Insert, list.Remove)
	if err != nil {
		return nil, err
	}
	found, ok := reflect.TypeFor[server.SublistResult]().FieldByName("psubs")
	if !ok || found.Type.Kind() != reflect.Slice {
		return nil, errors.New("the result of NATS's subject list has no slice psubs any more")
	}
	return &sublist{list: list, insert: insert, found: found.Offset}, nil
}

// sublistInsert lets Go infer S, the server's unexported subscription: the list
// is exported, what goes into it is not, and the one field that it reads has to
// be written through its address.
func sublistInsert[S any](insert, remove func(*S) error) (func(subject string) (func(), error), error) {
	field, ok := reflect.TypeFor[S]().FieldByName("subject")
	if !ok || field.Type != reflect.TypeFor[[]byte]() {
		return nil, errors.New("a subscription of NATS's subject list has no subject of bytes any more")
	}
	return func(subject string) (func(), error) {
		s := new(S)
		*(*[]byte)(unsafe.Add(unsafe.Pointer(s), field.Offset)) = []byte(subject)
		if err := insert(s); err != nil {
			return nil, err
		}
		return func() { _ = remove(s) }, nil
	}, nil
}

func (s *sublist) Insert(pattern string) (func(), error) { return s.insert(pattern) }

func (s *sublist) Match(topic string) int {
	result := s.list.Match(topic)
	return len(*(*[]unsafe.Pointer)(unsafe.Add(unsafe.Pointer(result), s.found)))
}

// gslEntry is not empty, so that no two have one address.
type gslEntry struct{ _ byte }

type gslIndex struct {
	natsNames
	list *gsl.GenericSublist[*gslEntry]
}

func (g *gslIndex) Insert(pattern string) (func(), error) {
	entry := new(gslEntry)
	if err := g.list.Insert(pattern, entry); err != nil {
		return nil, err
	}
	return func() { _ = g.list.Remove(pattern, entry) }, nil
}

func (g *gslIndex) Match(topic string) int {
	n := 0
	g.list.Match(topic, func(*gslEntry) { n++ })
	return n
}
