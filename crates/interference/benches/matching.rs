//! What pairing costs: 1,000 programs, all different, of 26 kinds, and as a machine would see them.

use std::hint::black_box;
use std::time::Duration;

use coplace_interference::pairing::cheapest;
use criterion::{Criterion, criterion_group, criterion_main};
use workload::Random;

const PROGRAMS: usize = 1000;

fn unit(random: &mut Random) -> f64 {
    random.below(1 << 30) as f64 / f64::from(1 << 30)
}

/// Symmetric costs.
fn costs(cell: impl Fn(usize, usize) -> f64) -> Vec<f64> {
    let mut costs = vec![0.0; PROGRAMS * PROGRAMS];
    for a in 0..PROGRAMS {
        for b in a + 1..PROGRAMS {
            let cost = cell(a, b);
            (costs[a * PROGRAMS + b], costs[b * PROGRAMS + a]) = (cost, cost);
        }
    }
    costs
}

fn matching(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("matching");
    group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(3)).sample_size(20);
    let mut random = Random::new(1);
    let noise: Vec<f64> = (0..PROGRAMS * PROGRAMS).map(|_| unit(&mut random)).collect();
    let facts: Vec<(f64, f64)> = (0..PROGRAMS).map(|_| (unit(&mut random), unit(&mut random))).collect();
    let both = |a: usize, b: usize| 2.0 + facts[a].0 * facts[b].1 + facts[b].0 * facts[a].1;
    let cases = [
        ("all at random", costs(|a, b| 2.0 + noise[a * PROGRAMS + b])),
        ("sensitivity times pressure", costs(both)),
        ("sensitivity times pressure, and noise", costs(|a, b| both(a, b) + 0.05 * noise[a * PROGRAMS + b])),
        ("26 kinds", costs(|a, b| if a % 26 == b % 26 { 4.0 } else { both(a % 26, b % 26) })),
    ];
    for (name, costs) in &cases {
        group.bench_function(format!("1000 programs, {name}"), |bencher| {
            bencher.iter(|| cheapest(PROGRAMS, |a, b| black_box(costs)[a * PROGRAMS + b]));
        });
    }
    group.finish();
}

criterion_group!(benches, matching);
criterion_main!(benches);
