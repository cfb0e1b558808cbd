module github.com/rowandb/rowan

go 1.26.8

require (
	github.com/anishathalye/porcupine v1.3.1
	github.com/bits-and-blooms/bloom/v3 v3.7.1
	github.com/cespare/xxhash/v2 v2.3.0
	github.com/edsrzf/mmap-go v1.2.0
	github.com/klauspost/compress v1.20.4
	golang.org/x/sys v0.50.0
)

require github.com/bits-and-blooms/bitset v1.24.2 // indirect
