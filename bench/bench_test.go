package main

import "testing"

// Every engine gives the same answers on the data of every workload.
func TestEnginesAgree(t *testing.T) {
	const n = 3000
	var want []sum
	for _, e := range engines {
		s, err := e.open(t.TempDir())
		if err != nil {
			t.Fatal(e.name, err)
		}
		if err := loaded(s, n); err != nil {
			t.Fatal(e.name, err)
		}
		var key [keyBytes]byte
		var got []sum
		for i := uint64(0); i < n; i += 97 {
			pair(i, key[:], make([]byte, valueBytes))
			for _, reverse := range []bool{false, true} {
				var x sum
				if err := s.scan(key[:], 20, reverse, x.add); err != nil {
					t.Fatal(e.name, err)
				}
				got = append(got, x)
			}
			var x sum
			ok, err := s.get(key[:], func(v []byte) { x.add(key[:], v) })
			if err != nil || !ok {
				t.Fatal(e.name, ok, err)
			}
			got = append(got, x)
		}
		if ok, err := s.get([]byte("missing key here"), func([]byte) {}); ok || err != nil {
			t.Fatal(e.name, ok, err)
		}
		for i := range want {
			if err := got[i].equal(want[i]); err != nil {
				t.Fatalf("%s, answer %d: %v", e.name, i, err)
			}
		}
		want = got
		if err := s.close(); err != nil {
			t.Fatal(e.name, err)
		}
	}
}
