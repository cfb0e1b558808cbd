package engine

import (
	"fmt"

	"github.com/rowandb/rowan/levels"
)

// LeftOut tells what a read with LeaveOutDamaged did not look at.
type LeftOut struct {
	// Files that were set aside when the read began and that its table has, wherever their rows lie. None: the read is complete.
	Files []SetAsideFile
}

// LeaveOutDamaged has a read return what is left where table files are set aside (Health.SetAside), instead of failing with their
// error, and tells in *out which they were. What it returns is not the truth: cells of those files are missing, and so are their
// deletes, so that cells and rows that were deleted, or older versions, may show up. A file whose damage is first met by the
// read itself still fails it; it is set aside then, so that the same read tried again leaves it out. Batches that read never
// leave anything out.
func LeaveOutDamaged(out *LeftOut) ReadOption {
	return readOption(func(o *readOptions) {
		if o.leave = out; out == nil {
			o.err = fmt.Errorf("%w: nil LeftOut", ErrOption)
		}
	})
}

// leaveOut finds what is to be left out of the pinned state.
func (rd *reader) leaveOut(out *LeftOut) {
	out.Files = out.Files[:0]
	if !rd.db.aside.any.Load() {
		return
	}
	mine := map[levels.Num]bool{}
	for i := range rd.table.groups {
		for _, files := range rd.st.version.Trees[rd.table.groups[i].tree].Files {
			for _, f := range files {
				mine[f.Num] = true
			}
		}
	}
	rd.without = map[levels.Num]bool{}
	for _, f := range rd.db.aside.list() {
		if mine[f.num] {
			rd.without[f.num] = true
			out.Files = append(out.Files, f)
		}
	}
}

// left returns the files of a run that are not left out.
func (r *reading) left(run []*levels.File) []*levels.File {
	if r.without == nil {
		return run
	}
	var out []*levels.File
	for _, f := range run {
		if !r.without[f.Num] {
			out = append(out, f)
		}
	}
	return out
}
