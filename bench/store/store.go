// Package store puts the engines that are compared behind one small interface, one file for each engine.
//
// What every engine is given and why is in ../README.md.
package store

import "errors"

// Store is an open store of one engine that holds pairs of a key and a value. All its methods but Close may be called by several
// goroutines at once.
type Store interface {
	// Session returns what one caller works with. It keeps what the engine lets a caller reuse: batches, buffers, options.
	Session() (Session, error)
	// Settle writes what is in memory to disk and returns when background work owes nothing: the drain of a write workload.
	Settle() error
	// Compact merges everything into one level, as the engine's own call for that does.
	Compact() error
	Stats() (Stats, error)
	Close() error
}

// Session is one caller of a store. It is not safe for concurrent use.
type Session interface {
	// Put writes a batch of pairs as one, durable when it returns if sync. The slices may be reused afterwards.
	Put(keys, values [][]byte, sync bool) error
	// Get calls fn with the value of a key, which is valid until fn returns; false if there is none.
	Get(key []byte, fn func(value []byte)) (bool, error)
	// Scan calls fn for up to n pairs from start on, itself included (nil: from the end), ascending or descending. The bytes are
	// valid until fn returns.
	Scan(start []byte, n int, reverse bool, fn func(key, value []byte)) error
	Close() error
}

// Stats is what an engine tells of its work since it was opened.
type Stats struct {
	TableBytes int64 // written by flushes and compactions, -1 if the engine does not tell
	Debt       int64 // bytes that background work still has to move, -1 if unknown
}

// Options are what every engine may use.
type Options struct {
	WriteBuffer int64 // bytes of memory for writes before they go to a table
	Cache       int64 // bytes of cache for blocks
	BloomBits   int   // per key
	Jobs        int   // of background work at once, where it can be set
	Sync        bool  // batches will ask to be durable, for engines that must know when they are opened
}

// Standard is what they have for of all figures.
var Standard = Options{WriteBuffer: 64 << 20, Cache: 512 << 20, BloomBits: 10, Jobs: 2}

// Engine is one of those compared.
type Engine struct {
	Name string
	Peer bool // one that Rowan is compared with
	// Version names the library, as far as it can be known before a store is open.
	Version func() string
	// Open opens or creates a store of pairs; OpenRows one of rows, with the rule of the collection workload if collect.
	Open     func(dir string, o Options) (Store, error)
	OpenRows func(dir string, o Options, collect bool) (Rows, error)
	// Sorted says that the engine loads in key order, as its documentation asks for: data for reading is given to it so.
	Sorted bool
}

var engines []Engine

// Engines lists those built in, Rowan first, in the order of the table.
func Engines() []Engine {
	var out []Engine
	for _, name := range []string{"rowan", "pebble", "rocksdb", "badger", "bbolt", "goleveldb"} {
		for _, e := range engines {
			if e.Name == name {
				out = append(out, e)
			}
		}
	}
	return out
}

// Find returns the engine of that name.
func Find(name string) (Engine, error) {
	for _, e := range engines {
		if e.Name == name {
			return e, nil
		}
	}
	return Engine{}, errors.New("no such engine is built in: " + name)
}

func register(e Engine) { engines = append(engines, e) }
