//! The statistical argument of the twins paper (de Blanche and Lundqvist, COSH 2016, section 3): what k
//! programs want together, each uniform between 0 and 1, if they are different ones and if they are one.
//!
//! Different: the sum of k independent uniform numbers (Irwin and Hall), k/2 on average with variance k/12.
//! The same: k times one uniform number, k/2 on average with variance k²/12, k times as much.

use workload::Random;

/// Probability that k independent uniform numbers sum to at most x.
pub fn irwin_hall(k: u32, x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= f64::from(k) {
        return 1.0;
    }
    let (mut sum, mut choose, mut factorial) = (0.0, 1.0, 1.0);
    (1..=k).for_each(|n| factorial *= f64::from(n));
    for j in 0..=k {
        let rest = x - f64::from(j);
        if rest <= 0.0 {
            break;
        }
        let sign = if j % 2 == 0 { 1.0 } else { -1.0 };
        sum += sign * choose * (0..k).fold(1.0, |power, _| power * rest);
        choose = choose * f64::from(k - j) / f64::from(j + 1);
    }
    sum / factorial
}

/// The same for k times one uniform number.
pub fn repeated(k: u32, x: f64) -> f64 {
    (x / f64::from(k)).clamp(0.0, 1.0)
}

/// Parts of drawn sums that lie below each bound, of different programs and of the same.
pub fn simulate(k: u32, bounds: &[f64], draws: u32, seed: u64) -> (Vec<f64>, Vec<f64>) {
    let mut random = Random::for_purpose(seed, "uniform demands");
    let mut unit = || (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
    let (mut apart, mut alike) = (vec![0u32; bounds.len()], vec![0u32; bounds.len()]);
    for _ in 0..draws {
        let sum: f64 = (0..k).map(|_| unit()).sum();
        let same = f64::from(k) * unit();
        for (place, &bound) in bounds.iter().enumerate() {
            apart[place] += u32::from(sum <= bound);
            alike[place] += u32::from(same <= bound);
        }
    }
    let part =
        |counts: Vec<u32>| counts.into_iter().map(|count| f64::from(count) / f64::from(draws)).collect();
    (part(apart), part(alike))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_and_four_programs_have_the_known_distributions() {
        assert!((irwin_hall(2, 0.5) - 0.125).abs() < 1e-12);
        assert!((irwin_hall(2, 1.5) - 0.875).abs() < 1e-12);
        assert!((irwin_hall(4, 2.0) - 0.5).abs() < 1e-12);
        assert_eq!([irwin_hall(3, -1.0), irwin_hall(3, 3.0), repeated(2, 0.5)], [0.0, 1.0, 0.25]);
    }

    #[test]
    fn drawing_agrees_with_the_closed_form() {
        let bounds = [0.4, 1.0, 1.7];
        let (apart, alike) = simulate(2, &bounds, 40_000, 1);
        for (place, &bound) in bounds.iter().enumerate() {
            assert!((apart[place] - irwin_hall(2, bound)).abs() < 0.01);
            assert!((alike[place] - repeated(2, bound)).abs() < 0.01);
        }
    }
}
