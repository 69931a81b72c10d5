//! Seeded randomness that is the same on every platform.

/// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator for this seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// A generator for one purpose of a seed: other purposes draw other numbers.
    pub fn for_purpose(seed: u64, purpose: &str) -> Random {
        let mut random = Random(seed);
        for byte in purpose.bytes() {
            random.0 = random.next_u64() ^ u64::from(byte);
        }
        random
    }

    /// The next number, all 64 bits of it random.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// 0 … `end` - 1; 0 where `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(end)) >> 64) as u64
    }

    /// True in so many of a hundred draws.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of these, each as likely. There must be one.
    pub fn pick<'t, T>(&mut self, from: &'t [T]) -> &'t T {
        &from[self.below(from.len() as u64) as usize]
    }

    /// Above 0, at most 1.
    fn unit(&mut self) -> f64 {
        ((self.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Exponentially distributed with this mean. The logarithm is not the system's library's, which
    /// differs from one to the next.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -libm::log(self.unit()) * mean
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_for_ever() {
        let mut random = Random::new(1);
        assert_eq!(random.next_u64(), 0x910a_2dec_8902_5cc1);
        let mut one = Random::for_purpose(1, "arrivals");
        let mut other = Random::for_purpose(1, "mix");
        assert_ne!(one.next_u64(), other.next_u64());
    }

    #[test]
    fn exponential_numbers_have_their_mean_and_their_spread() {
        let mut random = Random::new(7);
        let numbers: Vec<f64> = (0..20_000).map(|_| random.exponential(10.0)).collect();
        let mean = numbers.iter().sum::<f64>() / 20_000.0;
        let square = numbers.iter().map(|x| x * x).sum::<f64>() / 20_000.0;
        assert!((9.7..10.3).contains(&mean), "{mean}");
        assert!((9.5..10.5).contains(&(square - mean * mean).sqrt()), "{square}");
        assert!(numbers.iter().all(|&x| x >= 0.0));
    }
}
