// Loops over the C API of RocksDB, so that a caller pays for one call from Go where it would pay for three a pair. Errors are
// returned, to be freed with rocksdb_free.
#include <rocksdb/c.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// rb_write applies a batch in the form that rocksdb_writebatch_data returns.
static char* rb_write(rocksdb_t* db, rocksdb_writeoptions_t* o, const char* rep, size_t n) {
	char* err = NULL;
	rocksdb_writebatch_t* b = rocksdb_writebatch_create_from(rep, n);
	rocksdb_write(db, o, b, &err);
	rocksdb_writebatch_destroy(b);
	return err;
}

static char* rb_put(rocksdb_t* db, rocksdb_writeoptions_t* o, const char* k, size_t kn, const char* v, size_t vn) {
	char* err = NULL;
	rocksdb_put(db, o, k, kn, v, vn, &err);
	return err;
}

typedef struct {
	char* err;
	rocksdb_pinnableslice_t* pin; // to be destroyed, if the value did not fit
	const char* value;
	int64_t n; // -1: there is none
} rb_value;

// rb_get gets a value: copied into buf, or pinned if it is longer.
static rb_value rb_get(rocksdb_t* db, rocksdb_readoptions_t* o, const char* k, size_t kn, char* buf, size_t cap) {
	rb_value r = {NULL, NULL, NULL, -1};
	rocksdb_pinnableslice_t* p = rocksdb_get_pinned(db, o, k, kn, &r.err);
	if (p == NULL) return r;
	size_t n;
	r.value = rocksdb_pinnableslice_value(p, &n);
	r.n = (int64_t)n;
	if (n > cap) {
		r.pin = p;
		return r;
	}
	memcpy(buf, r.value, n);
	rocksdb_pinnableslice_destroy(p);
	return r;
}

typedef struct {
	rocksdb_iterator_t* it; // NULL when the scan is over
	char* err;
	uint32_t pairs, bytes; // in the buffer
	uint32_t needed;       // bytes for the next pair, if the buffer was too small for it
} rb_part;

// rb_more fills buf with pairs: the lengths of key and value, 4 bytes each, and the bytes. It ends before the key end, if any.
static rb_part rb_more(rocksdb_iterator_t* it, int reverse, uint64_t max, const char* end, size_t endn, char* buf, size_t cap) {
	rb_part r = {it, NULL, 0, 0, 0};
	for (;; r.pairs++) {
		if (r.pairs == max || !rocksdb_iter_valid(it)) break;
		size_t kn, vn;
		const char* k = rocksdb_iter_key(it, &kn);
		if (end != NULL) {
			int c = memcmp(k, end, kn < endn ? kn : endn);
			if (c > 0 || (c == 0 && kn >= endn)) break;
		}
		const char* v = rocksdb_iter_value(it, &vn);
		if (8 + kn + vn > cap - r.bytes) {
			r.needed = (uint32_t)(8 + kn + vn);
			return r;
		}
		uint32_t n[2] = {(uint32_t)kn, (uint32_t)vn};
		memcpy(buf + r.bytes, n, 8);
		memcpy(buf + r.bytes + 8, k, kn);
		memcpy(buf + r.bytes + 8 + kn, v, vn);
		r.bytes += 8 + kn + vn;
		if (r.pairs + 1 == max) {
			r.pairs++;
			break;
		}
		if (reverse) rocksdb_iter_prev(it);
		else rocksdb_iter_next(it);
	}
	rocksdb_iter_get_error(it, &r.err);
	rocksdb_iter_destroy(it);
	r.it = NULL;
	return r;
}

// rb_scan begins a scan, from the end if k is NULL.
static rb_part rb_scan(rocksdb_t* db, rocksdb_readoptions_t* o, const char* k, size_t kn, int reverse, uint64_t max, const char* end, size_t endn, char* buf,
		       size_t cap) {
	rocksdb_iterator_t* it = rocksdb_create_iterator(db, o);
	if (k == NULL) {
		if (reverse) rocksdb_iter_seek_to_last(it);
		else rocksdb_iter_seek_to_first(it);
	} else if (reverse) rocksdb_iter_seek_for_prev(it, k, kn);
	else rocksdb_iter_seek(it, k, kn);
	return rb_more(it, reverse, max, end, endn, buf, cap);
}

// The collection rule as a compaction filter: keys come in order, a column's newest version first. A filter sees the versions of
// one compaction only, so that it may keep more than the rule, never less; a compaction of everything sees all.
typedef struct {
	int64_t oldest;
	size_t column;
	uint32_t keep, n;
	char last[64];
} rb_rule;

static unsigned char rb_filter(void* p, int level, const char* key, size_t n, const char* v, size_t vn, char** nv, size_t* nvn, unsigned char* changed) {
	rb_rule* r = p;
	(void)level, (void)v, (void)vn, (void)nv, (void)nvn, (void)changed;
	if (n != r->column + 8) return 0;
	if (memcmp(r->last, key, r->column) != 0) {
		memcpy(r->last, key, r->column);
		r->n = 0;
	}
	uint64_t t = 0;
	for (size_t i = r->column; i < n; i++) t = t << 8 | (unsigned char)key[i];
	r->n++;
	return r->n > r->keep || (int64_t)~t < r->oldest;
}

static const char* rb_name(void* p) { (void)p; return "rowan.bench.rule"; }
static void rb_none(void* p) { (void)p; }

static rocksdb_compactionfilter_t* rb_filter_make(void* p, rocksdb_compactionfiltercontext_t* c) {
	(void)c;
	rb_rule* r = malloc(sizeof *r);
	*r = *(rb_rule*)p;
	return rocksdb_compactionfilter_create(r, free, rb_filter, rb_name);
}

// rb_collect has compactions drop what the rule does not keep: versions older than oldest, and all but the newest keep.
static void rb_collect(rocksdb_options_t* o, size_t column, uint32_t keep, int64_t oldest) {
	rb_rule* r = calloc(1, sizeof *r); // for the life of the process
	r->oldest = oldest, r->column = column, r->keep = keep;
	rocksdb_options_set_compaction_filter_factory(o, rocksdb_compactionfilterfactory_create(r, rb_none, rb_filter_make, rb_name));
}
