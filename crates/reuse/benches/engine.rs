//! Accesses a second of the engines: `cargo bench -p coplace-reuse`.

use std::hint::black_box;

use coplace_reuse::{Exact, Histogram, LINE_BYTES, Rate, Shards};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use workload::Random;

const FOOTPRINT_LINES: u64 = (64 << 20) / LINE_BYTES;

/// Random accesses, all over the footprint: nothing is recent and nothing is near.
fn random(accesses: usize) -> Vec<u64> {
    let mut random = Random::for_purpose(1, "bench");
    (0..accesses).map(|_| random.below(FOOTPRINT_LINES)).collect()
}

/// What programs do more: eight accesses to a line, walking.
fn walking(accesses: usize) -> Vec<u64> {
    (0..accesses as u64).map(|access| access / 8 % FOOTPRINT_LINES).collect()
}

/// An engine that has seen the whole footprint.
fn warm() -> Exact {
    let mut engine = Exact::new();
    engine.access_all(&(0..FOOTPRINT_LINES).collect::<Vec<_>>(), &mut Histogram::new());
    engine
}

fn engines(c: &mut Criterion) {
    let accesses = 2_000_000;
    for (name, lines) in [("random", random(accesses)), ("walking", walking(accesses))] {
        let mut group = c.benchmark_group(format!("64 MB, {name}"));
        group.throughput(Throughput::Elements(accesses as u64)).sample_size(20);
        let mut engine = warm();
        group.bench_function("exact", |b| {
            b.iter(|| {
                let mut histogram = Histogram::new();
                engine.access_all(black_box(&lines), &mut histogram);
                histogram
            })
        });
        group.bench_function("sampled 1%", |b| {
            b.iter_batched_ref(
                || Shards::new(Rate::Fixed(0.01)),
                |shards| shards.access_all(black_box(&lines)),
                BatchSize::LargeInput,
            )
        });
        group.bench_function("sampled, 8192 lines", |b| {
            b.iter_batched_ref(
                || Shards::new(Rate::Size(8192)),
                |shards| shards.access_all(black_box(&lines)),
                BatchSize::LargeInput,
            )
        });
        group.finish();
    }
}

criterion_group!(benches, engines);
criterion_main!(benches);
