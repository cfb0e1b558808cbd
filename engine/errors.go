package engine

import (
	"errors"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/engine/internal/filter"
	"github.com/rowandb/rowan/internal/damage"
	"github.com/rowandb/rowan/io/vfs"
)

// Errors of a call that was wrong. Nothing was written. Each comes wrapped with the offending value and its place, for
// example "mutation 3 of 5: ...".
var (
	ErrNoTable      = errors.New("table does not exist")
	ErrTableExists  = errors.New("table exists")
	ErrTableName    = errors.New("table name must be 1..255 bytes of [-_.a-zA-Z0-9]")
	ErrNoFamily     = errors.New("column family does not exist")
	ErrFamilyExists = errors.New("column family exists")
	// ErrRuleChangePending: cells are still being rewritten after an earlier change of the family's rule. Metrics show how far
	// that has come; Table.Compact does it now.
	ErrRuleChangePending = errors.New("an earlier change of the collection rule is not finished")
	ErrFamilyName        = cell.ErrFamilyName
	ErrRowKey            = cell.ErrRowKey
	ErrQualifier         = cell.ErrQualifier
	ErrValue             = cell.ErrValue
	ErrTimestamp         = errors.New("timestamp must be 0..MaxInt64 microseconds, or ServerTime")
	ErrTimeRange         = errors.New("time range is empty or negative")
	ErrNilMutation       = errors.New("nil mutation")
	ErrNilBatch          = errors.New("nil batch")
	ErrBatchTooLong      = errors.New("batch has too many changes")
	ErrBatchTooBig       = errors.New("batch has too many bytes")
	ErrAsOf              = errors.New("cells were collected as of a later time")
	ErrRange             = errors.New("range ends before it begins")
	ErrFilter            = filter.ErrInvalid
	ErrLimit             = errors.New("limit is negative")
	ErrRule              = errors.New("invalid collection rule")
	ErrOption            = errors.New("invalid option")
	// ErrAggregate: a Set or read-modify-write of a cell that only Adds may change.
	ErrAggregate = errors.New("column family is an aggregate and takes only Adds")
	// ErrNotAggregate: an Add to a family that was not created as an aggregate.
	ErrNotAggregate = errors.New("column family is not an aggregate and takes no Adds")
	ErrState        = errors.New("state of an aggregate must be 8 bytes")
	ErrAddTimestamp = errors.New("timestamp of an Add must be 0..MaxInt64 microseconds")
	ErrCondMutation = errors.New("invalid conditional mutation")
	// ErrNotCounter: an increment of a cell whose value is not a 64-bit big-endian integer.
	ErrNotCounter         = errors.New("value is not a counter of 8 bytes")
	ErrNoRules            = errors.New("read-modify-write has no rules")
	ErrNilReadModifyWrite = errors.New("nil read-modify-write")
	// ErrPrecondition: a row was not as Batch.Require asked.
	ErrPrecondition = errors.New("precondition failed")
	ErrRowTooLarge  = errors.New("row is larger than a read returns whole; read it as cells")
)

// Errors of the store's state. Nothing was written.
var (
	ErrClosed   = errors.New("store is closed")
	ErrReadOnly = errors.New("store is open for reading only")
	// ErrFailed: a log or manifest write failed, so that this handle takes no more writes. Reads go on at the last durable
	// state; the cause is wrapped. Reopen the store.
	ErrFailed = errors.New("store has failed and takes no writes until it is reopened")
	// ErrDiskFull: the file system has less room than the floor (Options.FreeFloor), or work failed for want of space. Batches
	// that only delete, and drops, are still accepted; the store returns by itself when there is room. Health tells more.
	ErrDiskFull = errors.New("not written: disk full")
	// ErrUnknownOutcome: the batch took its place in the write order and then waiting for it failed or was given up. After a
	// crash it may be there or not, whole in any case. Of a schema change: whether the manifest holds it is not known.
	ErrUnknownOutcome = errors.New("outcome unknown")
)

// Errors of opening a store.
var (
	ErrLocked = vfs.ErrLocked
	// ErrNotStore: the directory has files in it and is not a store; it is never taken for an empty one.
	ErrNotStore = errors.New("directory is not a store")
	ErrExists   = errors.New("store exists")
	ErrNotExist = errors.New("store does not exist")
	// ErrFormat: the store was written in a format that this build does not know.
	ErrFormat = damage.ErrFormat
	// ErrUnsupported: this platform cannot run the store.
	ErrUnsupported = vfs.ErrUnsupported
)

// ErrDamaged matches every error that says that bytes on disk are not what was written. The error names file, part and
// offset.
var ErrDamaged = damage.Err
