package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// maxLine bounds the memory for one line. The go command's own are a few
// kilobytes long.
const maxLine = 64 << 20

// input reads lines of any length: bufio.Scanner would give up at a long one.
type input struct {
	r      *bufio.Reader
	limit  int    // of a line; maxLine but in tests
	number int    // of the line that next returned last, from 1
	long   []byte // where a line is put together that is longer than r's buffer
	ended  bool   // the line that next returned last had an end
	inside bool   // the line was longer than limit, and its rest comes next
}

func newInput(r io.Reader) *input {
	return &input{r: bufio.NewReaderSize(r, 64<<10), limit: maxLine}
}

// next returns a line without its end, LF or CRLF, which the last line need not
// have. A line longer than the limit comes in pieces. The bytes are valid until the
// next call. At the end of the input the error is io.EOF and line is nil; with
// another error, line is what could be read before it.
func (in *input) next() (line []byte, err error) {
	if !in.inside {
		in.number++
	}
	in.inside, in.long = false, nil
	line, err = in.r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		for errors.Is(err, bufio.ErrBufferFull) && len(in.long) < in.limit {
			in.long = append(in.long, line...)
			line, err = in.r.ReadSlice('\n')
		}
		in.long = append(in.long, line...)
		line = in.long
		if errors.Is(err, bufio.ErrBufferFull) {
			in.inside = true
			return line, nil
		}
	}
	if errors.Is(err, io.EOF) {
		if len(line) == 0 {
			return nil, io.EOF
		}
		err = nil // the end itself is the next call's
	}
	line, in.ended = bytes.CutSuffix(line, []byte("\n"))
	line = bytes.TrimSuffix(line, []byte("\r"))
	return line, err
}
