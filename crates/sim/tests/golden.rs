//! What simulations came to when this file was written: a seed gives the same bytes on every platform, and
//! what changes them changes this file.
//!
//! Where a change is meant, the numbers that the failed test shows take the place of the old ones, and the
//! experiments that they stand for are run again.

use std::sync::Arc;

use coplace_sim::{Knowledge, Model, Outcome, Setup, simulate};
use policy::{Settings, by_name};
use topology::Machine;
use workload::{Generator, Waiting};

/// FNV-1a over all that an outcome says, with the bits of its fractions.
fn hash(outcome: &Outcome) -> u64 {
    let mut text = format!("{} {} {}", outcome.makespan_ns, outcome.decisions, outcome.rejected);
    for job in &outcome.jobs {
        text += &format!(
            "\n{} {} {} {} {:x} {:x} {} {} {}",
            job.id,
            job.arrived_ns,
            job.started_ns,
            job.ended_ns,
            job.cpu_ns.to_bits(),
            job.alone_ns.to_bits(),
            job.reconfigurations,
            job.moves,
            job.domain_moves
        );
    }
    for (now_ns, plan) in &outcome.plans {
        text += &format!("\n{now_ns} {plan}");
    }
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Policy, what is known, makespan in nanoseconds, hash of everything.
const GOLDEN: [(&str, Knowledge, u64, u64); 9] = [
    ("UE", Knowledge::None, 941_557_029_750, 8_921_874_613_267_034_840),
    ("LA", Knowledge::None, 331_938_553_030, 14_010_087_357_473_888_241),
    ("BP", Knowledge::None, 318_312_007_745, 7_932_905_101_814_037_105),
    ("EQ", Knowledge::None, 293_003_374_678, 5_347_907_299_507_687_169),
    ("TA", Knowledge::None, 298_018_200_776, 12_021_067_030_960_967_127),
    ("CO", Knowledge::None, 296_673_351_354, 6_262_501_528_697_178_526),
    ("LV", Knowledge::None, 306_924_161_218, 5_178_567_168_413_395_898),
    ("adaptive", Knowledge::Empty, 272_438_431_443, 4_059_392_532_074_077_347),
    ("adaptive", Knowledge::Full, 266_817_194_916, 11_575_898_104_239_884_714),
];

#[test]
fn a_seed_comes_out_as_it_did_on_every_platform() {
    let model = Model::built_in();
    let scenario = Generator::set("B", &model.profiles).expect("a set").scenario(7);
    let played = GOLDEN.map(|(policy, knowledge, ..)| {
        let settings = Settings::default();
        let setup = Setup {
            machine: Arc::new(Machine::synthetic("pack:4 [numa] l3:1 core:6").expect("a machine")),
            laws: model.laws.clone(),
            settings: settings.clone(),
            waiting: Waiting::Spinning,
            keep_plans: true,
            knowledge,
            until_ns: None,
        };
        let outcome =
            simulate(&setup, &scenario, by_name(policy, &settings).expect("a policy")).expect("it ends");
        (policy, knowledge, outcome.makespan_ns, hash(&outcome))
    });
    assert_eq!(played, GOLDEN, "left: what comes out now; right: what did");
}
