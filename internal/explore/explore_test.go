package main

import (
	"errors"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// compiled builds the scenarios, or skips the test where that cannot be, or cannot
// be run.
func compiled(t *testing.T, change func([]*source) error) *program {
	t.Helper()
	if testing.Short() {
		t.Skip("compiles a program")
	}
	if _, err := exec.LookPath("go"); err != nil || runtime.GOOS == "js" {
		t.Skip("needs the go command")
	}
	c, err := load()
	require.NoError(t, err)
	sources, err := c.rewritten(change)
	require.NoError(t, err)
	p, err := c.build(t.TempDir(), sources)
	require.NoError(t, err)
	if err := exec.Command(p.path, "-test.run", "^$").Run(); errors.Is(err, syscall.ENOEXEC) {
		t.Skip("this machine does not run what it compiles")
	}
	return p
}

// TestSchedules is a small part of what the command does, twice: nothing fails, and
// everything has the same order.
func TestSchedules(t *testing.T) {
	p := compiled(t, nil)
	first, err := p.run(t.Context(), 1, 1500, "")
	require.NoError(t, err)
	require.Nil(t, first.failure)
	again, err := p.run(t.Context(), 1, 1500, "")
	require.NoError(t, err)
	assert.EqualValues(t, 1500, first.seeds)
	assert.Equal(t, first.print, again.print)
	assert.Equal(t, first.steps, again.steps)
}

// TestPlantedBugIsFound is a small part of what -planted does, and checks that the
// failure can be seen again.
func TestPlantedBugIsFound(t *testing.T) {
	b := bugs[0]
	p := compiled(t, b.plant)
	r, err := p.run(t.Context(), 1, 2000, "")
	require.NoError(t, err)
	require.NotNil(t, r.failure, b.name)

	again, err := p.run(t.Context(), r.failure.seed, 1, r.failure.scenario)
	require.NoError(t, err)
	assert.Equal(t, r.failure, again.failure)

	traced, out, err := p.start(t.Context(), "-from", "1", "-seeds", "2000", "-traced")
	require.NoError(t, err)
	assert.Equal(t, r.failure.seed, traced.failure.seed, "a trace changes nothing")
	assert.Contains(t, out, "WRONG")
}

// TestPlantedBugsFit keeps the list of bugs in step with the code.
func TestPlantedBugsFit(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil || runtime.GOOS == "js" {
		t.Skip("needs the go command")
	}
	c, err := load()
	require.NoError(t, err)
	for i := range bugs {
		_, err := c.rewritten(bugs[i].plant)
		assert.NoError(t, err)
	}
	assert.GreaterOrEqual(t, len(bugs), 12)
}

// TestState checks that a soak goes on where it was stopped.
func TestState(t *testing.T) {
	p := compiled(t, nil)
	c := &core{texts: map[string]string{"p.go": "package p"}}
	o := options{from: 1, seeds: chunk + 10, processes: 1, state: filepath.Join(t.TempDir(), "state"), scenario: "room"}
	require.NoError(t, p.soak(c, o))
	broken := &program{path: "no such program"}
	require.NoError(t, broken.soak(c, o), "everything has been run")
	o.seeds += 10
	require.Error(t, broken.soak(c, o), "this has not")
	c.texts["p.go"] = "package p // other sources"
	require.Error(t, broken.soak(c, o))
}
