//go:build rocksdb

package store

// #include "rocksdb_shim.h"
// #cgo noescape rb_write
// #cgo nocallback rb_write
// #cgo noescape rb_put
// #cgo nocallback rb_put
// #cgo noescape rb_get
// #cgo nocallback rb_get
// #cgo noescape rb_scan
// #cgo nocallback rb_scan
// #cgo noescape rb_more
// #cgo nocallback rb_more
import "C"

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"time"
	"unsafe"
)

func init() {
	register(Engine{Name: "rocksdb", Peer: true, Version: rocksdbVersion, Open: openRocksdb, OpenRows: openRocksdbRows})
}

// rocksdbVersion names the build: which one counts is for whoever linked it to say.
func rocksdbVersion() string {
	if v := os.Getenv("ROWAN_BENCH_ROCKSDB"); v != "" {
		return v
	}
	return "unnamed build"
}

type rocksdbStore struct {
	db          *C.rocksdb_t
	read        *C.rocksdb_readoptions_t
	inRow       *C.rocksdb_readoptions_t // for reads inside one row
	write, sync *C.rocksdb_writeoptions_t
	compact     *C.rocksdb_compactoptions_t
	flush       *C.rocksdb_flushoptions_t
	stop, done  chan struct{} // of the goroutine that hands the log to the system; nil: every write does
}

func rocksdbOptions(o Options) *C.rocksdb_options_t {
	c := C.rocksdb_options_create()
	C.rocksdb_options_set_create_if_missing(c, 1)
	C.rocksdb_options_set_write_buffer_size(c, C.size_t(o.WriteBuffer))
	C.rocksdb_options_set_max_write_buffer_number(c, 4)
	C.rocksdb_options_set_max_background_jobs(c, C.int(o.Jobs))
	C.rocksdb_options_set_compression(c, C.rocksdb_snappy_compression)
	C.rocksdb_options_set_level_compaction_dynamic_level_bytes(c, 1)
	C.rocksdb_options_set_bytes_per_sync(c, 1<<20)
	C.rocksdb_options_set_max_open_files(c, -1)
	if !o.Sync {
		C.rocksdb_options_set_manual_wal_flush(c, 1) // see flushLog
	}
	t := C.rocksdb_block_based_options_create()
	C.rocksdb_block_based_options_set_block_cache(t, C.rocksdb_cache_create_lru(C.size_t(o.Cache)))
	C.rocksdb_block_based_options_set_filter_policy(t, C.rocksdb_filterpolicy_create_bloom_full(C.double(o.BloomBits)))
	C.rocksdb_block_based_options_set_block_size(t, 16<<10)
	C.rocksdb_block_based_options_set_format_version(t, 5)
	C.rocksdb_block_based_options_set_data_block_index_type(t, C.rocksdb_block_based_table_data_block_index_type_binary_search_and_hash)
	C.rocksdb_options_set_block_based_table_factory(c, t)
	return c
}

func openRocksdb(dir string, o Options) (Store, error) {
	s, err := openRocksdbWith(dir, o, rocksdbOptions(o))
	if err != nil {
		return nil, err
	}
	return s, nil
}

func openRocksdbRows(dir string, o Options, collect bool) (Rows, error) {
	c := rocksdbOptions(o)
	C.rocksdb_options_set_prefix_extractor(c, C.rocksdb_slicetransform_create_fixed_prefix(RowBytes))
	if collect {
		C.rb_collect(c, columnBytes, KeepVersions, C.int64_t(time.Now().UnixMicro()-KeepMicros))
	}
	s, err := openRocksdbWith(dir, o, c)
	if err != nil {
		return nil, err
	}
	C.rocksdb_readoptions_set_prefix_same_as_start(s.inRow, 1)
	C.rocksdb_readoptions_set_total_order_seek(s.read, 1)
	return &naturalRows{Store: s, collect: s.Compact}, nil
}

func openRocksdbWith(dir string, o Options, c *C.rocksdb_options_t) (*rocksdbStore, error) {
	name := C.CString(dir)
	defer C.free(unsafe.Pointer(name))
	var fail *C.char
	db := C.rocksdb_open(c, name, &fail)
	if err := rocksdbError(fail); err != nil {
		return nil, err
	}
	s := &rocksdbStore{db: db, read: C.rocksdb_readoptions_create(), inRow: C.rocksdb_readoptions_create(), write: C.rocksdb_writeoptions_create(),
		sync: C.rocksdb_writeoptions_create(), compact: C.rocksdb_compactoptions_create(), flush: C.rocksdb_flushoptions_create()}
	C.rocksdb_writeoptions_set_sync(s.sync, 1)
	C.rocksdb_flushoptions_set_wait(s.flush, 1)
	C.rocksdb_compactoptions_set_bottommost_level_compaction(s.compact, 2) // force, as "everything" asks for
	if !o.Sync {
		s.stop, s.done = make(chan struct{}), make(chan struct{})
		go s.flushLog()
	}
	return s, nil
}

func rocksdbError(fail *C.char) error {
	if fail == nil {
		return nil
	}
	defer C.rocksdb_free(unsafe.Pointer(fail))
	return errors.New("rocksdb: " + C.GoString(fail))
}

// flushLog hands the log to the system every 10 ms, which is what Rowan promises of batches that need not be durable. Without it
// every such write would be a system call.
func (s *rocksdbStore) flushLog() {
	defer close(s.done)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-tick.C:
			var fail *C.char
			C.rocksdb_flush_wal(s.db, 0, &fail)
			if err := rocksdbError(fail); err != nil {
				panic(err) // a disk that fails ends the measurement
			}
		}
	}
}

func (s *rocksdbStore) Settle() error {
	var fail *C.char
	C.rocksdb_flush(s.db, s.flush, &fail)
	if err := rocksdbError(fail); err != nil {
		return err
	}
	for calm := 0; calm < 20; calm++ {
		for _, name := range []string{"rocksdb.compaction-pending", "rocksdb.num-running-compactions", "rocksdb.num-running-flushes"} {
			n, err := s.property(name)
			if err != nil {
				return err
			}
			if n > 0 {
				calm = 0
			}
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

func (s *rocksdbStore) property(name string) (uint64, error) {
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	var n C.uint64_t
	if C.rocksdb_property_int(s.db, c, &n) != 0 {
		return 0, fmt.Errorf("rocksdb has no property %s", name)
	}
	return uint64(n), nil
}

func (s *rocksdbStore) Compact() error {
	C.rocksdb_compact_range_opt(s.db, s.compact, nil, 0, nil, 0)
	return nil
}

var rocksdbWritten = regexp.MustCompile(`Cumulative compaction: ([0-9.]+) GB write`)

// Stats reads a line of the report that costs nothing to keep; tickers would.
func (s *rocksdbStore) Stats() (Stats, error) {
	c := C.CString("rocksdb.cfstats-no-file-histogram")
	defer C.free(unsafe.Pointer(c))
	text := C.rocksdb_property_value(s.db, c)
	if text == nil {
		return Stats{}, errors.New("rocksdb has no statistics")
	}
	defer C.rocksdb_free(unsafe.Pointer(text))
	m := rocksdbWritten.FindStringSubmatch(C.GoString(text))
	if m == nil {
		return Stats{}, errors.New("rocksdb's statistics have no line of compaction")
	}
	gb, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		return Stats{}, err
	}
	debt, err := s.property("rocksdb.estimate-pending-compaction-bytes")
	return Stats{TableBytes: int64(gb * (1 << 30)), Debt: int64(debt)}, err
}

func (s *rocksdbStore) Close() error {
	if s.stop != nil {
		close(s.stop)
		<-s.done
		var fail *C.char
		C.rocksdb_flush_wal(s.db, 0, &fail)
		if err := rocksdbError(fail); err != nil {
			return err
		}
	}
	C.rocksdb_close(s.db)
	return nil
}

func (s *rocksdbStore) Session() (Session, error) {
	return &rocksdbSession{rocksdbStore: s, buf: make([]byte, 64<<10)}, nil
}

type rocksdbSession struct {
	*rocksdbStore
	rep []byte // of a batch
	buf []byte // of what a call returns
}

func data(p []byte) (*C.char, C.size_t) {
	return (*C.char)(unsafe.Pointer(unsafe.SliceData(p))), C.size_t(len(p))
}

func (s *rocksdbSession) Put(keys, values [][]byte, sync bool) error {
	o := s.write
	if sync {
		o = s.sync
	}
	if len(keys) == 1 {
		k, kn := data(keys[0])
		v, vn := data(values[0])
		return rocksdbError(C.rb_put(s.db, o, k, kn, v, vn))
	}
	s.rep = append(s.rep[:0], 0, 0, 0, 0, 0, 0, 0, 0) // sequence number, which the store sets
	s.rep = binary.LittleEndian.AppendUint32(s.rep, uint32(len(keys)))
	for i := range keys {
		s.rep = append(s.rep, 1) // put
		s.rep = append(binary.AppendUvarint(s.rep, uint64(len(keys[i]))), keys[i]...)
		s.rep = append(binary.AppendUvarint(s.rep, uint64(len(values[i]))), values[i]...)
	}
	p, n := data(s.rep)
	return rocksdbError(C.rb_write(s.db, o, p, n))
}

func (s *rocksdbSession) Get(key []byte, fn func([]byte)) (bool, error) {
	k, kn := data(key)
	buf, n := data(s.buf[:4096])
	v := C.rb_get(s.db, s.read, k, kn, buf, n)
	if v.err != nil {
		return false, rocksdbError(v.err)
	}
	if v.n < 0 {
		return false, nil
	}
	if v.pin == nil {
		fn(s.buf[:v.n])
		return true, nil
	}
	fn(unsafe.Slice((*byte)(unsafe.Pointer(v.value)), int(v.n)))
	C.rocksdb_pinnableslice_destroy(v.pin)
	return true, nil
}

func (s *rocksdbSession) Scan(start []byte, n int, reverse bool, fn func(key, value []byte)) error {
	return s.scan(s.read, start, nil, n, reverse, fn)
}

// Within implements rowPairs.
func (s *rocksdbSession) Within(start, end []byte, n int, fn func(key, value []byte)) error {
	return s.scan(s.inRow, start, end, n, false, fn)
}

func (s *rocksdbSession) scan(o *C.rocksdb_readoptions_t, start, end []byte, n int, reverse bool, fn func(key, value []byte)) error {
	back := C.int(0)
	if reverse {
		back = 1
	}
	k, kn := data(start)
	e, en := data(end)
	buf, size := data(s.buf)
	part := C.rb_scan(s.db, o, k, kn, back, C.uint64_t(n), e, en, buf, size)
	for {
		p := s.buf[:part.bytes]
		for range int(part.pairs) {
			kn, vn := binary.LittleEndian.Uint32(p), binary.LittleEndian.Uint32(p[4:])
			p = p[8:]
			fn(p[:kn:kn], p[kn:kn+vn:kn+vn])
			p = p[kn+vn:]
		}
		n -= int(part.pairs)
		if part.it == nil {
			return rocksdbError(part.err)
		}
		if int(part.needed) > len(s.buf) {
			s.buf = make([]byte, part.needed)
			buf, size = data(s.buf)
		}
		part = C.rb_more(part.it, back, C.uint64_t(n), e, en, buf, size)
		runtime.KeepAlive(end)
	}
}

func (s *rocksdbSession) Close() error { return nil }
