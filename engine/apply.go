package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// ApplyOption changes how a batch is applied.
type ApplyOption interface{ applyOption() }

// NoSync returns as soon as the batch is visible, before it is durable. A crash may lose a suffix of such batches, in write
// order, never one in the middle. The default waits until the batch is durable.
const NoSync syncOption = 1

type syncOption uint8

func (syncOption) applyOption() {}

// GetCondMutationResult sets *matched to what the condition of the batch's conditional mutation said, as soon as the batch has
// its place in the write order. A batch that has not exactly one conditional mutation is refused.
func GetCondMutationResult(matched *bool) ApplyOption { return condResult{matched} }

type condResult struct{ matched *bool }

func (condResult) applyOption() {}

type applyOptions struct {
	noSync  bool
	matched *bool
}

// options reads opts for a batch of conds conditional mutations.
func (b *Batch) options(opts []ApplyOption) (o applyOptions, err error) {
	for i := range opts {
		switch opt := opts[i].(type) {
		case syncOption:
			o.noSync = opt == NoSync || o.noSync
		case condResult:
			if o.matched = opt.matched; opt.matched == nil {
				return o, fmt.Errorf("%w: GetCondMutationResult of a nil pointer", ErrOption)
			}
			if n := b.conds(); n != 1 {
				return o, fmt.Errorf("%w: GetCondMutationResult with %d conditional mutations, it needs 1", ErrOption, n)
			}
		default:
			return o, fmt.Errorf("%w: nil apply option", ErrOption)
		}
	}
	return o, nil
}

// ones keeps batches of one item, so that Apply and its kin allocate none.
var ones = sync.Pool{New: func() any { return new(Batch) }}

func one(it batchItem) *Batch {
	b := ones.Get().(*Batch)
	b.items = append(b.items[:0], it)
	return b
}

func (b *Batch) done() {
	b.Reset()
	b.more, b.out = batchMore{}, Row{}
	ones.Put(b)
}

// Apply applies a mutation of one row. One without changes does nothing. Safe for concurrent use, as all methods of Table are;
// mutations are not.
//
// Errors that match none of ErrUnknownOutcome mean that nothing was written. ctx bounds waiting: for room before the batch
// takes its place, and for durability after it (then the error is ErrUnknownOutcome).
func (t *Table) Apply(ctx context.Context, row string, m *Mutation, opts ...ApplyOption) error {
	b := one(batchItem{table: t, row: row, mut: m})
	defer b.done()
	return t.db.Apply(ctx, b, opts...)
}

// ApplyBulk applies one mutation each to many rows. Entries are independent: errs[i] tells how muts[i] fared, and is nil
// throughout when errs is nil. err is for what concerns the call as a whole; then nothing, or a part that errs tells, was
// written. All entries share one wait for durability.
func (t *Table) ApplyBulk(ctx context.Context, rows []string, muts []*Mutation, opts ...ApplyOption) (errs []error, err error) {
	if len(rows) != len(muts) {
		return nil, fmt.Errorf("%w: %d rows and %d mutations", ErrNilMutation, len(rows), len(muts))
	}
	all := Batch{}
	for i := range muts {
		all.items = append(all.items, batchItem{table: t, row: rows[i], mut: muts[i]})
	}
	o, err := all.options(opts)
	if err != nil {
		return nil, err
	}
	var last uint64
	for i := range rows {
		b := Batch{items: all.items[i : i+1 : i+1]}
		seq, err := t.db.place(ctx, &b)
		if err != nil {
			if errs == nil {
				errs = make([]error, len(rows))
			}
			errs[i] = err
			if errors.Is(err, ErrClosed) || errors.Is(err, ErrFailed) || ctx.Err() != nil {
				for j := i + 1; j < len(rows); j++ {
					errs[j] = err
				}
				break
			}
			continue
		}
		if o.matched != nil && b.conds() == 1 {
			*o.matched = b.matched
		}
		last = max(last, seq)
	}
	if last == 0 || o.noSync {
		return errs, nil
	}
	return errs, t.db.waitDurable(ctx, last)
}

// Apply applies a batch as a whole or not at all. See Table.Apply for errors and ctx.
func (db *DB) Apply(ctx context.Context, b *Batch, opts ...ApplyOption) error {
	if b == nil {
		return ErrNilBatch
	}
	o, err := b.options(opts)
	if err != nil {
		return err
	}
	seq, err := db.place(ctx, b)
	if err != nil {
		return err
	}
	if o.matched != nil {
		*o.matched = b.matched
	}
	if seq == 0 || o.noSync {
		return nil
	}
	return db.waitDurable(ctx, seq)
}

func (db *DB) waitDurable(ctx context.Context, seq uint64) error {
	if err := db.log.Wait(ctx, seq); err != nil {
		return fmt.Errorf("%w: the batch is in the write order, waiting for its durability ended: %w", ErrUnknownOutcome, err)
	}
	return nil
}
