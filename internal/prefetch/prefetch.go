// Package prefetch asks for memory ahead of its use. A load that misses the caches holds up, after a few hundred instructions, all that
// follows it; a prefetch holds up nothing, so that the memory comes while other work is done. On processors for which there is no
// code here it does nothing.
package prefetch

// Line is the size of a cache line as Lines counts them, in bytes.
const Line = 64
