//! What a decision in Lua costs: the state alone, the policy to begin from and TA in Lua beside TA in
//! Rust, and a script that runs until it is stopped.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use coplace_policy::{Memory, Settings, by_name, lua};
use criterion::{Criterion, criterion_group, criterion_main};
use plan::Snapshot;
use topology::Machine;

const TA: &str = include_str!("../../../docs/policies/lua/ta.lua");

fn decide(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("lua");
    group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(2)).sample_size(20);
    let machine = Arc::new(Machine::synthetic("pack:4 [numa] l3:1 core:6").expect("a known description"));
    let apps = "a; b; c; d; e; f";
    let snapshot = Snapshot::for_machine(machine).with_apps(apps).expect("six programs");
    for (name, text) in [
        ("nothing.lua", "function decide() return 'idle' end"),
        ("start.lua", lua::START),
        ("ta.lua", TA),
        ("away.lua", "function decide() while true do end end"),
        ("TA", ""),
    ] {
        let settings = Settings { script: Some(text.to_owned()), ..Settings::default() };
        let policy = by_name(name, &settings).expect("a known policy");
        group.bench_function(format!("{name}, six programs on 24 CPUs"), |bencher| {
            bencher.iter(|| black_box(policy.try_decide(black_box(&snapshot), &Memory::default())));
        });
    }
    group.finish();
}

criterion_group!(benches, decide);
criterion_main!(benches);
