// Package report keeps the results of runs and shows them: on the terminal, as a page, and against what is wanted.
package report

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/rowandb/rowan/bench/measure"
)

// State is a file of results, one line of JSON each. It is all that a stopped comparison needs to go on.
type State struct {
	file    *os.File
	Results []measure.Result
}

// OpenState opens or makes the file. A last line that was cut off, because a process was killed while it wrote it, is dropped:
// its run is made again.
func OpenState(path string) (*State, error) {
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	whole := data[:bytes.LastIndexByte(data, '\n')+1]
	s := new(State)
	lines := bufio.NewScanner(bytes.NewReader(whole))
	lines.Buffer(nil, 16<<20)
	for n := 1; lines.Scan(); n++ {
		var r measure.Result
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", path, n, err)
		}
		s.Results = append(s.Results, r)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if s.file, err = os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o666); err != nil {
		return nil, err
	}
	err = s.file.Truncate(int64(len(whole)))
	if err == nil {
		_, err = s.file.Seek(int64(len(whole)), io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, s.file.Close())
	}
	return s, nil
}

// Add appends a result.
func (s *State) Add(r measure.Result) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if _, err := s.file.Write(append(line, '\n')); err != nil {
		return err
	}
	s.Results = append(s.Results, r)
	return nil
}

// Find returns the result of a run that has been made and has not failed.
func (s *State) Find(k measure.Key) (measure.Result, bool) {
	for _, r := range s.Results {
		if r.Key() == k && r.Failed == "" {
			return r, true
		}
	}
	return measure.Result{}, false
}

// Close closes the file.
func (s *State) Close() error { return s.file.Close() }
