package levels

import "fmt"

// The manifest of number n is kept in two copies, manifest-n.a and manifest-n.b. Format 1 reserves both names; today the
// first is written.

// ManifestName is the base name of a manifest's first copy.
func ManifestName(n uint64) string { return fmt.Sprintf("manifest-%08d.a", n) }

// ParseManifestName is the inverse of ManifestName; copy is 'a' or 'b'.
func ParseManifestName(name string) (n uint64, copy byte, ok bool) {
	var c byte
	if _, err := fmt.Sscanf(name, "manifest-%08d.%c", &n, &c); err != nil || c != 'a' && c != 'b' {
		return 0, 0, false
	}
	if name != fmt.Sprintf("manifest-%08d.%c", n, c) {
		return 0, 0, false
	}
	return n, c, true
}
