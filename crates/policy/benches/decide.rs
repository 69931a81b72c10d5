//! What one decision and judging its plan cost: 1,000 programs on 1,024 CPUs, the machine settled and one program
//! arriving, which is what happens most; and the worst case, a change of level.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use coplace_policy::{Memory, Policy, Settings, by_name};
use criterion::{Criterion, criterion_group, criterion_main};
use plan::{App, Snapshot, check_plan};
use topology::Machine;
use workload::AppId;

const MACHINE: &str = "pack:8 [numa] l3:4 core:16 pu:2";

fn snapshot(programs: u32) -> Snapshot {
    let machine = Arc::new(Machine::synthetic(MACHINE).expect("a known description"));
    let mut snapshot = Snapshot::for_machine(machine);
    for number in 0..programs {
        let id = AppId::new(&format!("program{number}")).expect("a name");
        snapshot.apps.push(App::new(id, u64::from(number)));
    }
    snapshot
}

fn decided(policy: &dyn Policy, snapshot: &Snapshot) -> Memory {
    policy.decide(snapshot, &Memory::default()).memory
}

fn decide(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decide");
    group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(2)).sample_size(20);
    for name in ["TA", "CO", "LV", "EQ", "UE"] {
        let policy = by_name(name, &Settings::default()).expect("a known policy");
        let full = snapshot(1_000);
        let memory = decided(policy.as_ref(), &snapshot(999));
        group.bench_function(format!("{name}, 1000th program arrives on 1024 CPUs"), |bencher| {
            bencher.iter(|| black_box(policy.decide(black_box(&full), &memory)));
        });
        // From partitions of two CPUs to single ones.
        let wide = decided(policy.as_ref(), &snapshot(512));
        let crowd = snapshot(513);
        group.bench_function(format!("{name}, 513th program changes the level"), |bencher| {
            bencher.iter(|| black_box(policy.decide(black_box(&crowd), &wide)));
        });
    }
    group.finish();
}

/// The checker on the plan of a settled machine, which is part of every decision.
fn check(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("check");
    group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(2)).sample_size(20);
    for name in ["TA", "CO", "LV", "EQ"] {
        let policy = by_name(name, &Settings::default()).expect("a known policy");
        let (snapshot, promise) = (snapshot(1_000), policy.promise());
        let plan = policy.decide(&snapshot, &Memory::default()).plan;
        assert!(check_plan(&plan, &snapshot, &promise).is_empty(), "{name} plans wrongly");
        group.bench_function(format!("{name}, 1000 programs on 1024 CPUs"), |bencher| {
            bencher.iter(|| black_box(check_plan(black_box(&plan), &snapshot, &promise)));
        });
    }
    group.finish();
}

criterion_group!(benches, decide, check);
criterion_main!(benches);
