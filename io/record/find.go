package record

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/rowandb/rowan/internal/damage"
	"github.com/rowandb/rowan/io/vfs"
)

// SlotName is the base name of file n of a log, from 1. The number is only a name: which slot the file is, its first block
// says.
func SlotName(n int) string { return fmt.Sprintf("slot-%04d.log", n) }

// ParseSlotName is the inverse of SlotName.
func ParseSlotName(base string) (int, bool) {
	s, ok := strings.CutPrefix(base, "slot-")
	s, ok2 := strings.CutSuffix(s, ".log")
	n, err := strconv.Atoi(s)
	if !ok || !ok2 || err != nil || n < 1 || SlotName(n) != base {
		return 0, false
	}
	return n, true
}

// SlotFile is a file of a log, open for reading.
type SlotFile struct {
	Slot
	File   vfs.File
	Number int  // in its name
	Begun  bool // its first block has a header of this store
}

// FindSlots opens the log's files in dir, in order of name, and reads their first headers. The caller closes those that are
// returned, with an error too. A directory that is missing has none. A file of a later format is an error that matches
// damage.ErrFormat: nothing of it may be taken for free.
func FindSlots(fsys vfs.FS, dir string, store uint64) (found []SlotFile, err error) {
	infos, err := fsys.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, i := range infos {
		n, ok := ParseSlotName(i.Name)
		if !ok || i.Dir {
			continue
		}
		name := path.Join(dir, i.Name)
		f, err := fsys.Open(name, vfs.How{})
		if err != nil {
			return found, err
		}
		s := SlotFile{Slot: Slot{R: f, Name: name, Size: i.Size}, File: f, Number: n}
		var head [HeaderSize]byte
		k, err := f.ReadAt(head[:], 0)
		if err == nil || errors.Is(err, io.EOF) {
			err = nil
			if k == len(head) {
				h, bad := ReadHeader(head[:], store, 0)
				switch {
				case bad == nil:
					s.First, s.Begun = h, true
				case errors.Is(bad, damage.ErrFormat):
					err = damage.At(bad, name, 0)
				}
			}
		}
		found = append(found, s)
		if err != nil {
			return found, err
		}
	}
	return found, nil
}

// Suspect names the files that a slot which Chain misses may be in: those whose first block is not a header of the store, in dir
// if there is none. Other errors than a damage error without a file stay what they are.
func Suspect(err error, dir string, found []SlotFile) error {
	var d *damage.Error
	if !errors.As(err, &d) || d.File != "" {
		return err
	}
	var names []string
	for _, f := range found {
		if !f.Begun {
			names = append(names, f.Name)
		}
	}
	c := *d
	switch c.File = dir; len(names) {
	case 0:
	case 1:
		c.File = names[0]
		c.Detail += "; this file does not begin with a header of the store's log"
	default:
		c.Detail += "; these files do not begin with a header of the store's log: " + strings.Join(names, ", ")
	}
	return &c
}
