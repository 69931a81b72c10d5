//! `coplace simulate`: what a policy would do, as text and picture.

use crate::world::World;

/// What the rule of equilibrium over levels (paper II-B) makes of two processors of two cores, derived by
/// hand: with n programs, ⌊n ÷ partitions⌋ on each partition of the finest level with no more partitions
/// than programs, the odd ones on the next level that they fill evenly; a turn with k programs on each
/// partition of w CPUs is proportional to k ÷ w, and all turns together are 100 ms for each level, 200 ms at most.
///
/// 3: two have a processor each, the odd one the system: 1/4 : 1/2 of 200 ms.
/// 5: four have a core each; one cannot fill two processors, so it has the system: 1/4 : 1 of 200 ms.
/// 6: four have a core each, two a processor each: 1/2 : 1 of 200 ms.
/// 7: four, two and one: 1/4 : 1/2 : 1 of 200 ms.
/// 8: two on each core, left to the kernel.
///
/// A newcomer first shares the lowest core (F that of A, H too), until the situation is stable; the
/// partition that it gets then is near: F the processor of A, E the other one; of the cores E gets one of
/// its processor, F one of its own beside A and H, and G what is left.
const LEVELS: &str = "\
equilibrium over levels (LV)
   1  4         AA AA
   2  2         AA BB
   3  2-4 ÷2    CC CC  66.67 ms
                AA BB 133.33 ms
   4  1         AC BD
   5  1-4 ÷2    EE EE  40.00 ms
                AC BD 160.00 ms
   6  1-2 ÷2    FF EE  66.67 ms
                AC BD 133.33 ms
   7  1-4 ÷3    GG GG  28.57 ms
                FF EE  57.14 ms
                AC BD 114.29 ms
   8  1 ÷2      AC BD

";

#[test]
fn levels_of_a_small_machine_are_shown_turn_by_turn() {
    let world = World::new();
    let words =
        ["simulate", "--machine", "pack:2 core:2", "--steps", "8", "--policy", "LV", "--svg", "s.svg"];
    let output = world.run(&words);
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    // The plans at the ends of lines are the policy's tests' business.
    let cut = |line: &str| match line.find(" ms").map(|at| at + 3).or_else(|| line.find("  a1 on")) {
        Some(end) => line[..end].to_owned(),
        None => line.find("  side_by_side").map_or(line, |end| &line[..end]).to_owned(),
    };
    let shown: String = shown.lines().map(|line| cut(line) + "\n").collect();
    assert_eq!(shown, LEVELS);
    let svg = std::fs::read_to_string(world.path("s.svg")).unwrap();
    assert!(svg.contains("equilibrium over levels (LV)") && svg.contains("a7 on CPUs 0-3, 4 threads"));
}

#[test]
fn all_programs_get_equal_shares_in_every_step_of_levels() {
    let world = World::new();
    let words = ["simulate", "--machine", "pack:2 core:2", "--steps", "9", "--policy", "LV", "--json"];
    let json: serde_json::Value = serde_json::from_slice(&world.run(&words).stdout).unwrap();
    let steps = json["policies"][0]["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 9);
    for (step, programs) in steps.iter().zip(1..) {
        let shares = step["cpus_given"].as_object().unwrap();
        assert_eq!(shares.len(), programs);
        let fair = 4.0 / programs as f64;
        assert!(shares.values().all(|cpus| (cpus.as_f64().unwrap() - fair).abs() < 1e-6), "{step}");
    }
    assert_eq!(steps[6]["turns"][0]["picture"], "GG GG");
    assert_eq!(steps[6]["turns"][0]["slice_ns"], 28_571_428);
}

#[test]
fn a_seed_gives_the_same_bytes_with_any_number_of_workers() {
    let world = World::new();
    let play = |workers: &str| {
        let words =
            ["simulate", "set:B", "--seeds", "3", "--seed", "5", "--machine", "pack:4 [numa] l3:1 core:6"];
        let more = ["--policy", "BP,EQ,TA,CO,LA", "--json", "--csv", "jobs.csv", "--html", "page.html"];
        let output = world.run(&[&words[..], &more, &["--workers", workers]].concat());
        assert!(output.status.success(), "{output:?}");
        let file = |name: &str| std::fs::read(world.path(name)).unwrap();
        [output.stdout, file("jobs.csv"), file("page.html")]
    };
    let one = play("1");
    assert!(one.iter().all(|bytes| bytes.len() > 1000));
    assert_eq!(one, play("1"), "another run");
    assert_eq!(one, play("2"), "two workers");
}
