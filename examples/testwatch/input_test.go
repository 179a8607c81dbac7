package main

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// lines reads all, with the line numbers.
func lines(t *testing.T, in *input) (all []string, numbers []int) {
	t.Helper()
	for {
		line, err := in.next()
		if errors.Is(err, io.EOF) {
			require.Nil(t, line)
			return all, numbers
		}
		require.NoError(t, err)
		all = append(all, string(line))
		numbers = append(numbers, in.number)
	}
}

func TestInputEndsOfLines(t *testing.T) {
	for input, want := range map[string][]string{
		"":             nil,
		"\n":           {""},
		"a":            {"a"},
		"a\nb":         {"a", "b"},
		"a\nb\n":       {"a", "b"},
		"a\r\n\r\nb\r": {"a", "", "b"},
		"a\rb\n":       {"a\rb"},
	} {
		all, _ := lines(t, newInput(strings.NewReader(input)))
		assert.Equal(t, want, all, "%q", input)
		all, _ = lines(t, newInput(iotest.DataErrReader(iotest.OneByteReader(strings.NewReader(input)))))
		assert.Equal(t, want, all, "%q, byte by byte", input)
	}
}

func TestInputLongLines(t *testing.T) {
	long := strings.Repeat("0123456789", 300_000)
	all, numbers := lines(t, newInput(strings.NewReader("a\n"+long+"\nb\n"+long)))
	assert.Equal(t, []int{1, 2, 3, 4}, numbers)
	// Not assert.Equal, whose message would be as long.
	assert.True(t, all[0] == "a" && all[1] == long && all[2] == "b" && all[3] == long)
}

// Lines without end do not take memory without end, and are not lost.
func TestInputLinesBeyondTheLimitComeInPieces(t *testing.T) {
	long := strings.Repeat("0123456789", 100_000)
	in := newInput(strings.NewReader("a\n" + long + "\nb\n"))
	in.limit = 100_000
	all, numbers := lines(t, in)
	require.Greater(t, len(all), 4)
	last := len(all) - 1
	assert.Equal(t, "a", all[0])
	assert.True(t, long == strings.Join(all[1:last], ""))
	assert.Equal(t, "b", all[last])
	assert.Equal(t, []int{2, 2, 3}, []int{numbers[1], numbers[last-1], numbers[last]})
	for _, piece := range all {
		assert.LessOrEqual(t, len(piece), in.limit+128<<10)
	}
}

func TestInputErrorComesWithWhatWasRead(t *testing.T) {
	cut := errors.New("cable cut")
	in := newInput(io.MultiReader(strings.NewReader("a\nb"), iotest.ErrReader(cut)))
	line, err := in.next()
	require.NoError(t, err)
	assert.Equal(t, "a", string(line))
	line, err = in.next()
	require.ErrorIs(t, err, cut)
	assert.Equal(t, "b", string(line))
}
