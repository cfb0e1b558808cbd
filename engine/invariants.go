//go:build !invariants

package engine

// invariants turns checks on that help to find mistakes of users and cost time: build with -tags invariants. Borrowed cells are
// copies then, which are overwritten as soon as the function that was given them returns.
const invariants = false
