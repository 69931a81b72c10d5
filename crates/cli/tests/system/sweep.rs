//! Grids of simulations, by the real binary.

use crate::terminal::Terminal;
use crate::world::World;

const GRID: &str = "workload = 'set:B'\nmachines = ['pack:2 core:3', 'core:4']\narrivals_per_minute = [3, 30]\n\
                    policies = ['TA', 'mine.lua']\nseeds = 2\n";

fn sweep(world: &World, more: &[&str]) -> String {
    let output = world.run(&[&["sweep", "sub/grid.toml"], more].concat());
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn grid() -> World {
    let world = World::new();
    std::fs::create_dir(world.path("sub")).unwrap();
    world.file("sub/grid.toml", GRID);
    world.file("sub/mine.lua", "function decide() return built_in('TA') end");
    world
}

#[test]
fn a_grid_has_a_cell_for_each_machine_rate_and_policy() {
    let world = grid();
    let table = sweep(&world, &[]);
    assert!(table.starts_with("Simulated: set:B") && table.lines().count() == 3 + 8, "{table}");
    let result: serde_json::Value = serde_json::from_str(&sweep(&world, &["--json"])).unwrap();
    let cells = result["cells"].as_array().unwrap();
    let of = |cell: &serde_json::Value| {
        let policy = cell["policy"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
        (cell["machine"].to_string(), cell["arrivals_per_minute"].as_f64().unwrap() as u64, policy)
    };
    assert_eq!(cells.len(), 8);
    for (two, cell) in cells.chunks(2).zip(0..) {
        let (ta, mine) = (of(&two[0]), of(&two[1]));
        assert_eq!((ta.2.as_str(), mine.2.as_str()), ("TA", "mine.lua"));
        assert_eq!((&ta.0, ta.1), (&mine.0, [3, 30][cell % 2]));
        assert_eq!(two[0]["figures"], two[1]["figures"], "the script does as TA does");
        assert_eq!(two[1]["rejected"], 0);
    }
    let slowdown = |cell: usize| cells[cell]["figures"]["mean_slowdown"]["mean"].as_f64().unwrap();
    assert!(slowdown(2) > 2.0 * slowdown(0), "ten times the arrivals: {} and {}", slowdown(0), slowdown(2));
}

#[test]
fn a_grid_gives_the_same_bytes_with_one_worker_and_two() {
    let world = grid();
    let one = sweep(&world, &["--csv", "-", "--workers", "1"]);
    assert_eq!(one, sweep(&world, &["--csv", "-", "--workers", "2"]));
    assert_eq!(one.lines().count(), 1 + 16);
}

#[test]
fn a_sweep_shows_one_bar_with_the_time_left_on_a_terminal() {
    let world = grid();
    let mut terminal = Terminal::open(&world.path("home"));
    terminal.type_line(&format!(
        "cd {}; $COPLACE sweep sub/grid.toml > /dev/null; echo ended$((1))",
        world.path("").display()
    ));
    // Two machines, two rates, two policies, two workloads.
    terminal.expect("/16 simulations, ");
    terminal.expect(" left");
    terminal.expect("ended1");
    terminal.type_line(
        "$COPLACE simulate set:B --seeds 3 --machine core:4 --policy TA,EQ > /dev/null; echo ended$((2))",
    );
    terminal.expect("/6 simulations, ");
    terminal.expect(" left");
    terminal.expect("ended2");
    // Elsewhere there is none.
    let output = world.run(&["sweep", "sub/grid.toml"]);
    assert!(output.stderr.is_empty(), "{output:?}");
}

#[test]
fn a_grid_is_played_as_a_simulation_is_with_the_same_options() {
    let world = World::new();
    world.file(
        "g.toml",
        "workload = 'set:B'\nmachines = ['pack:4 [numa] l3:1 core:6']\npolicies = ['adaptive', 'UE']\nseeds = 2\n",
    );
    let figures = |words: &[&str], cells: &str| -> serde_json::Value {
        let output = world.run(words);
        assert!(output.status.success(), "{output:?}");
        let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        result[cells].as_array().unwrap().iter().map(|cell| cell["figures"].clone()).collect()
    };
    let mut outcomes = Vec::new();
    for options in [&[][..], &["--notebook", "full"], &["--waiting", "active"]] {
        let simulate =
            ["simulate", "set:B", "--machine", "pack:4 [numa] l3:1 core:6", "--policy", "adaptive,UE"];
        let simulated = figures(&[&simulate[..], &["--seeds", "2", "--json"], options].concat(), "policies");
        let swept = figures(&[&["sweep", "g.toml", "--json"], options].concat(), "cells");
        assert_eq!(simulated, swept, "{options:?}");
        outcomes.push(swept);
    }
    assert!(outcomes[0] != outcomes[1] && outcomes[0] != outcomes[2], "the options make a difference");
    world.fails(&["sweep", "g.toml", "--model", "none.toml"], 2, &["none.toml"]);
}

#[test]
fn impossible_jobs_are_skipped_and_counted_on_request() {
    let world = World::new();
    let job = |wide: u32| {
        format!(
            "[[program]]\nprofile = 'cg.B'\n[program.demand]\nmalleability = 'rigid'\nmax_threads = {wide}\n"
        )
    };
    world.file("jobs.toml", &(job(2) + &job(9)));
    world.file("g.toml", "workload = 'jobs.toml'\nmachines = ['core:4', 'core:12']\npolicies = ['TA']\n");
    world.fails(&["sweep", "g.toml"], 2, &["jobs.toml on core:4", "line 6", "needs 9 CPUs"]);
    let output = world.run(&["sweep", "g.toml", "--lenient", "--json"]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success() && stderr.contains("1 jobs of ") && stderr.contains("unfit for core:4"),
        "{stderr}"
    );
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&result["cells"][0]["skipped"], &result["cells"][1]["skipped"]), (&1.into(), &0.into()));
}

#[test]
fn mistakes_in_a_grid_are_reported_with_line_and_column() {
    let world = World::new();
    let wrong = |from: &str, to: &str, wanted: &[&str]| {
        world.file("mine.lua", "function decide() return built_in('TA') end");
        world.file("g.toml", &GRID.replace(from, to));
        world.fails(&["sweep", "g.toml"], 2, wanted);
    };
    wrong("'set:B'", "'set:Z'", &["g.toml:1:12: ", "no set 'Z'"]);
    wrong("'set:B'", "'none.toml'", &["g.toml:1:12: ", "none.toml"]);
    wrong("'core:4'", "'core:x'", &["g.toml:2:30: "]);
    wrong("[3, 30]", "[3, -1]", &["g.toml:3:27: ", "-1 arrivals a minute"]);
    wrong("[3, 30]", "[]", &["g.toml:3:23: ", "empty"]);
    wrong("'TA'", "'BEST'", &["g.toml:4:13: ", "no policy 'BEST'"]);
    wrong("'mine.lua'", "'none.lua'", &["g.toml:4:19: ", "none.lua"]);
    wrong("['TA', 'mine.lua']", "[]", &["g.toml:4:12: ", "policies is empty"]);
    wrong("seeds = 2", "seeds = 0", &["g.toml:5:1: ", "seeds is 0"]);
    wrong("seeds", "seed", &["g.toml:5:1: ", "seed"]);
    wrong("seeds = 2", "[settings]\ncolour = 1", &["g.toml:5:1: ", "colour"]);
    world.file("jobs.toml", "[[program]]\nprofile = 'lu.A'\n");
    wrong("'set:B'", "'jobs.toml'", &["g.toml:3:23: ", "the workload is fixed"]);
    world.fails(&["sweep", "none.toml"], 2, &["none.toml"]);
}
