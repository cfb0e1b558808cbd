package work

import "math"

// zipf draws ranks 0..n-1 with the skew of YCSB: the i-th rank with a chance of about 1/(i+1)^0.99 (Gray et al., "Quickly
// generating billion-record synthetic databases", 1994). Safe for concurrent use.
type zipf struct {
	n                      float64
	alpha, eta, zeta, half float64
}

const skew = 0.99

func newZipf(n uint64) *zipf {
	z := &zipf{n: float64(n), alpha: 1 / (1 - skew)}
	for i := uint64(1); i <= n; i++ {
		z.zeta += math.Pow(float64(i), -skew)
	}
	z.half = 1 + math.Pow(0.5, skew)
	z.eta = (1 - math.Pow(2/z.n, 1-skew)) / (1 - z.half/z.zeta)
	return z
}

func (z *zipf) next(r *rng) uint64 {
	u := r.float()
	switch uz := u * z.zeta; {
	case uz < 1:
		return 0
	case uz < z.half:
		return 1
	}
	return min(uint64(z.n*math.Pow(z.eta*u-z.eta+1, z.alpha)), uint64(z.n)-1)
}

// scattered draws a number whose rank is anywhere, so that the often read keys are no neighbours.
func (z *zipf) scattered(r *rng) uint64 {
	return mix(z.next(r)) % uint64(z.n)
}
