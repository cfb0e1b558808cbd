package levels

import "fmt"

// ManifestName is the base name of the first copy of manifest n.
func ManifestName(n uint64) string { return ManifestCopies(n)[0] }

// ManifestCopies are the base names of the two copies of manifest n, in the order in which they are written.
func ManifestCopies(n uint64) [2]string {
	return [2]string{fmt.Sprintf("manifest-%08d.a", n), fmt.Sprintf("manifest-%08d.b", n)}
}

// ParseManifestName is the inverse of ManifestCopies; copy is 'a' or 'b'.
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
