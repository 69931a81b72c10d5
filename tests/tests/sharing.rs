//! Real programs under the real binary: what they get, and that they end as they would alone.
//!
//! Nothing here looks at how long anything took: other tests and other people's programs run beside.

use std::time::Duration;

use coplace_tests::{
    Child, Home, Mix, app, helper, machine, openmp_helper, processes, scaled, skipped, skipped_here,
    skipped_part,
};

/// `regions`, a program of very many short parallel regions.
fn regions(name: &str, scale: f64) -> String {
    let (app, scale) = (app("regions"), scaled(scale));
    format!(
        "[[program]]\nname = '{name}'\ncommand = ['{app}', '--size', 'S', '--scale', '{scale}', '--json']\n"
    )
}

/// `rigid`, a program that cannot be resized, with two threads.
fn rigid(name: &str, scale: f64) -> String {
    let (app, scale) = (app("rigid"), scaled(scale));
    format!(
        "[[program]]\nname = '{name}'\ncommand = ['{app}', '--threads', '2', '--scale', '{scale}']\n\
         [program.demand]\nmalleability = 'rigid'\nmax_threads = 2\n"
    )
}

/// Starts a program under `coplace run`.
fn start(home: &Home, name: &str, command: &[&str]) -> Child {
    home.start(name, home.coplace().args(["run", "-q", "--name", name, "--"]).args(command))
}

fn two_cpus(test: &str) -> bool {
    let enough = processes::cpu_count() >= 2;
    if !enough {
        skipped(test, "there is one CPU only");
    }
    enough
}

/// CPUs that a plan's text mentions, as the widths of its places.
fn widths(plan: &str) -> Vec<usize> {
    let arguments: Vec<&str> = plan.split_whitespace().collect();
    let places =
        arguments.windows(2).filter(|pair| pair[0] == "on").map(|pair| pair[1].trim_matches([',', ']']));
    let width = |list: &str| -> usize {
        let range = |part: &str| match part.split_once('-') {
            Some((low, high)) => high.parse::<usize>().unwrap() - low.parse::<usize>().unwrap() + 1,
            None => 1,
        };
        list.split(',').map(range).sum()
    };
    places.map(width).collect()
}

#[test]
fn two_resizable_programs_share_and_grow_when_alone() {
    if !two_cpus("two programs under TA") {
        return;
    }
    let home = Home::new();
    let mix = home.mix(&(regions("a", 1.5) + &regions("b", 0.7)), &["--policy", "TA", "--cpus", "0-1"]);
    mix.is_verified();
    assert!(mix.plans().iter().any(|plan| plan.starts_with("side_by_side")), "{:?}", mix.plans());
    assert!(
        mix.plans().iter().all(|plan| !plan.contains("in_turn") && !plan.contains("mixed")),
        "{:?}",
        mix.plans()
    );
    let (a, b) = (mix.widths("a"), mix.widths("b"));
    assert!(b.contains_key(&1), "b had {b:?}");
    assert!(a.contains_key(&1) && a.contains_key(&2), "a had {a:?}");
    let printed = mix.printed("a");
    let line: serde_json::Value = serde_json::from_str(printed.lines().next().unwrap()).unwrap();
    // Before it is known, it may begin with as many threads as the machine has CPUs.
    assert!(line["threads_min"] == 1 && line["threads_max"].as_u64() >= Some(2), "{line}");
    home.is_left_clean();
}

#[test]
fn rigid_programs_take_turns_by_every_mechanism_that_is_there() {
    if !two_cpus("turns") {
        return;
    }
    for turns in ["freeze", "idle", "stop"] {
        let home = Home::new();
        let options = ["--policy", "TA", "--turns", turns, "--cpus", "0-1"];
        // Several of the longest slices (200 ms by `cpu.idle`) each, as fast as the machine may be.
        let mix = home.mix(&(rigid("a", 3.0) + &rigid("b", 3.0)), &options);
        if mix.json.is_null() && mix.stderr.contains("was asked for") {
            skipped_part(&format!("turns by {turns}"), &mix.stderr);
            continue;
        }
        mix.is_verified();
        assert!(mix.plans().iter().any(|plan| plan.starts_with("in_turn")), "{turns}: {:?}", mix.plans());
        for name in ["a", "b"] {
            assert!(mix.program(name)["turns"].as_u64().unwrap() >= 2, "{turns}: {}", mix.program(name));
            assert!(
                !mix.widths(name).contains_key(&1),
                "{turns}: {name} was narrowed: {:?}",
                mix.widths(name)
            );
        }
        home.is_left_clean();
    }
}

/// `kill -STOP` comes past `coplace run`: only the kernel knows of it.
#[test]
fn a_stop_by_hand_holds_through_turns_until_continued() {
    if !two_cpus("turns") {
        return;
    }
    let home = Home::new();
    let daemon = home.daemon(&["--policy", "TA", "--turns", "stop", "--cpus", "0-1"]);
    let program = app("rigid");
    let mut runs =
        ["a", "b"].map(|name| start(&home, name, &[&program, "--threads", "2", "--scale", &scaled(12.0)]));
    home.until("they take turns", || {
        let turns = |name| home.app(name).and_then(|app| app["account"]["turns"].as_u64());
        turns("a") > Some(1) && turns("b") > Some(1)
    });
    let pid = home.app("a").and_then(|app| app["pid"].as_u64()).expect("it runs") as u32;
    // In its turns and between them.
    for round in 0..6 {
        std::thread::sleep(Duration::from_millis(17 * round));
        processes::signal(pid, libc::SIGSTOP);
        home.until("it stands", || processes::state(pid) == Some('T'));
        // What was begun ends within a turn; from then on nothing is done.
        std::thread::sleep(Duration::from_millis(50));
        let ran_ns = processes::run_ns(pid);
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(processes::state(pid), Some('T'), "round {round}: {:?}", home.app("a"));
        assert_eq!(processes::run_ns(pid), ran_ns, "round {round}: {:?}", home.app("a"));
        home.until("it counts as suspended", || home.app("a").is_some_and(|app| app["state"] == "suspended"));
        processes::signal(pid, libc::SIGCONT);
        home.until("it goes on", || processes::run_ns(pid) > ran_ns);
        home.until("it counts as running", || home.app("a").is_some_and(|app| app["state"] == "running"));
    }
    for run in &mut runs {
        assert!(run.ended_within(Duration::from_secs(120)).success() && run.verified(), "{}", run.stdout());
    }
    daemon.signal(libc::SIGTERM);
    home.is_left_clean();
}

#[test]
fn a_rigid_program_beside_a_resizable_one_is_never_narrowed() {
    if !two_cpus("a rigid program beside a resizable one") {
        return;
    }
    let home = Home::new();
    let mix = home.mix(&(regions("a", 0.8) + &rigid("b", 0.8)), &["--cpus", "0-1"]);
    mix.is_verified();
    assert!(!mix.widths("b").contains_key(&1), "{:?}", mix.widths("b"));
    home.is_left_clean();
}

#[test]
fn a_program_stuck_in_a_region_takes_turns_at_full_width() {
    if !two_cpus("a program that stays in a region") {
        return;
    }
    let home = Home::new();
    let _daemon = home.daemon(&["--policy", "TA", "--cpus", "0-1", "--unmanaged", "ignore"]);
    let run = |name: &str, command: &[&str]| start(&home, name, command);
    // Elsewhere there are more CPUs than the two, and its first team is of all of them.
    let mut stays = run("stays", &["env", "OMP_NUM_THREADS=2", &openmp_helper("stays", &home)]);
    let app_of = |name: &str| home.app(name).unwrap_or_default();
    home.until("it is in its region", || app_of("stays")["team"] == 2);
    let mut other = run("other", &[&app("regions"), "--size", "S", "--scale", "1000"]);
    let plan =
        || home.status().and_then(|status| Some(status["plan"].as_str()?.to_owned())).unwrap_or_default();
    home.until("each is to have a CPU", || plan().starts_with("side_by_side"));
    assert_eq!(app_of("stays")["rigid"], serde_json::Value::Null);
    home.until("nobody waits for it any more", || {
        app_of("stays")["rigid"].as_str().is_some_and(|why| why.contains("stayed in one parallel region"))
    });
    home.until("they take turns at full width", || {
        let turns = |name: &str| app_of(name)["account"]["turns"].as_u64();
        plan().starts_with("in_turn") && turns("stays") > Some(2) && turns("other") > Some(2)
    });
    assert_eq!((&app_of("stays")["threads"], &app_of("stays")["place"]), (&2.into(), &"0-1".into()));
    let explained = |what: &str| {
        let output = home.coplace().args(["explain", "stays"]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).contains(what)
    };
    assert!(explained("counts as rigid with 2 threads until it enters another region"));
    home.running("stays").into_iter().for_each(|pid| processes::signal(pid, libc::SIGUSR1));
    home.until("each has a CPU, and a team of that", || {
        plan().starts_with("side_by_side")
            && app_of("stays")["rigid"].is_null()
            && app_of("stays")["place"] != "0-1"
    });
    assert!(explained("stays can be resized"));
    for run in [&mut stays, &mut other] {
        run.signal(libc::SIGTERM);
    }
    stays.ended_within(std::time::Duration::from_secs(60));
    assert!(stays.verified(), "{}", stays.stdout());
    // What it was for a while is not what it is.
    let remembered = std::fs::read_to_string(home.path().join("h/remembered.json")).unwrap();
    assert!(!remembered.contains("\"rigid\":2"), "{remembered}");
    other.ended_within(std::time::Duration::from_secs(60));
}

#[test]
fn a_thread_that_spins_once_makes_no_program_rigid() {
    if !two_cpus("a thread that spins once") {
        return;
    }
    let home = Home::new();
    let _daemon = home.daemon(&["--policy", "TA", "--cpus", "0-1", "--unmanaged", "ignore"]);
    let program = helper("spins", &home);
    // A thread that the machine made wait for long is seen to want the CPU for as long.
    for attempt in 0..5 {
        let name = format!("spins-{attempt}");
        let mut command = home.coplace();
        let mut run = home.start(&name, command.args(["run", "-q", "--name", &name, "--", &program]));
        let app = || home.app(&name).unwrap_or_default();
        let spun_ms = || run.stdout().split_whitespace().nth(1).and_then(|text| text.parse::<u32>().ok());
        home.until("its second thread has spun", || spun_ms().is_some());
        let computed_ns = || app()["account"]["cpu_time_ns"].as_u64().unwrap_or(0);
        let before_ns = computed_ns();
        home.until("it was looked at since", || computed_ns() > before_ns + 500_000_000);
        let rigid = app()["rigid"].clone();
        let late = spun_ms() > Some(80);
        if !late {
            assert_eq!(rigid, serde_json::Value::Null);
            home.running("spins").into_iter().for_each(|pid| processes::signal(pid, libc::SIGUSR1));
            home.until("its second thread is seen", || {
                app()["rigid"].as_str().is_some_and(|why| why.contains("2 threads"))
            });
        }
        run.signal(libc::SIGTERM);
        run.ended_within(std::time::Duration::from_secs(60));
        if !late {
            return;
        }
    }
    skipped("a thread that spins once", "the machine made it wait each time");
}

#[test]
fn options_of_run_reach_the_preload_library() {
    let home = Home::new();
    let _daemon = home.daemon(&[]);
    // What a program that it executes is given.
    let show = r#"sh -c 'echo "${LD_PRELOAD:+library},$COPLACE_TOLERANT"'; true"#;
    for (options, variable, printed) in [
        (&[][..], "", "library,"),
        (&["--no-inherit", "--tolerant", "liba.so", "--tolerant", "libb*"], "", ",liba.so:libb*"),
        (&["--tolerant", "liba.so"], "libc.so", "library,libc.so:liba.so"),
    ] {
        let mut command = home.coplace();
        command.args(["run", "-q"]).args(options).args(["--", "sh", "-c", show]);
        let output = command.env("COPLACE_TOLERANT", variable).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), printed, "{options:?}: {output:?}");
    }
}

#[test]
fn a_late_program_of_plain_threads_counts_at_full_width() {
    if !two_cpus("a late program among many in turn") {
        return;
    }
    let spin = |name: &str, arrives_s: f64| {
        let app = app("pthreads_spin");
        format!(
            "[[program]]\nname = '{name}'\narrive_s = {arrives_s}\n\
             command = ['{app}', '--threads', '2', '--scale', '4']\n"
        )
    };
    let home = Home::new();
    let early: String = ["a", "b", "c", "d"].map(|name| spin(name, 0.0)).concat();
    let mix = home.mix(&(early + &spin("e", 2.0)), &["--cpus", "0-1"]);
    mix.is_verified();
    let widths = mix.widths("e");
    let wide = widths.get(&2).copied().unwrap_or(0.0);
    assert!(wide > widths.values().sum::<f64>() / 2.0, "{widths:?} {:?}", mix.plans());
    assert!(mix.program("e")["turns"].as_u64().unwrap() >= 2, "{}", mix.program("e"));
    home.is_left_clean();
}

#[test]
fn one_after_another_begins_each_program_at_the_last_end() {
    let home = Home::new();
    let mix = home.mix(&(regions("c", 0.3) + &regions("a", 0.3) + &regions("b", 0.3)), &["--policy", "BP"]);
    mix.is_verified();
    let time = |name: &str, key: &str| mix.program(name)[key].as_f64().unwrap();
    for (before, after) in [("c", "a"), ("a", "b")] {
        assert!(time(after, "started_s") >= time(before, "ended_s"), "{}", mix.json);
    }
    home.is_left_clean();
}

#[test]
fn under_a_quota_of_one_cpu_plans_are_one_cpu_wide() {
    let home = Home::new();
    let group = std::path::PathBuf::from(format!("/sys/fs/cgroup/cpu/coplace-quota-{}", std::process::id()));
    let made =
        std::fs::create_dir(&group).and_then(|()| std::fs::write(group.join("cpu.cfs_quota_us"), "100000"));
    if let Err(error) = made {
        let _ = std::fs::remove_dir(&group);
        return skipped("a quota of one CPU", format!("no cgroup v1 quota can be made: {error}"));
    }
    let json = home.path().join("mix.json");
    std::fs::write(home.path().join("mix.toml"), regions("a", 0.2) + &regions("b", 0.2)).unwrap();
    let within = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", group.display());
    let mut command = home.command("/bin/sh");
    command.args(["-c", &within, "sh"]).arg(coplace_tests::coplace());
    command.args(["mix", "mix.toml", "--quiet", "--policy", "TA", "--json"]).arg(&json);
    let mut child = home.start("mix", &mut command);
    let status = child.ended_within(std::time::Duration::from_secs(60));
    home.until("the group can be removed", || std::fs::remove_dir(&group).is_ok());
    assert!(status.success(), "{}", child.stderr());
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let plans: Vec<&str> =
        json["plans"].as_array().unwrap().iter().map(|at| at["plan"].as_str().unwrap()).collect();
    assert!(plans.iter().any(|plan| plan.contains(" on ")), "{plans:?}");
    assert!(plans.iter().flat_map(|plan| widths(plan)).all(|width| width == 1), "{plans:?}");
}

#[test]
fn cpus_used_by_an_unmanaged_program_are_left_to_it() {
    if !two_cpus("an unmanaged neighbour") {
        return;
    }
    if machine::is_busy() {
        // It may be anywhere, and its use is not told from that of our own neighbour.
        return skipped_here("other programs keep a CPU busy");
    }
    let home = Home::new();
    let mut burn = home.command("/usr/bin/taskset");
    let burn = home.start("burn", burn.args(["-c", "0", &app("burn"), "--seconds", "60"]));
    let daemon = home.daemon(&["--policy", "TA", "--cpus", "0-1", "--unmanaged", "leave"]);
    // Beside managed threads on its CPU it would get half of it, which is not told from wanting half.
    home.until("its use is seen", || home.status().is_some_and(|status| status["usable"] == "1"));
    let mut run = home.coplace();
    let run = home.start("run", run.args(["run", "--name", "a", &app("regions"), "--size", "X"]));
    home.until("the managed program leaves CPU 0 alone", || {
        let status = home.status().unwrap_or_default();
        status["usable"] == "1" && home.app("a").is_some_and(|app| app["place"] == "1")
    });
    burn.signal(libc::SIGTERM);
    home.until("the managed program gets CPU 0 back", || {
        home.app("a").is_some_and(|app| app["place"] == "0-1")
    });
    run.signal(libc::SIGTERM);
    daemon.signal(libc::SIGTERM);
    home.is_left_clean();
}

/// A program that behaves and one that does not; how the latter ended.
fn beside_a_good_one(home: &Home, arguments: &[&str]) -> (Mix, serde_json::Value) {
    let misbehave = helper("misbehave", home);
    let arguments: Vec<String> = arguments.iter().map(|word| format!("'{word}'")).collect();
    let bad = format!("[[program]]\nname = 'bad'\ncommand = ['{misbehave}', {}]\n", arguments.join(", "));
    let mix = home.mix(&(regions("good", 1.0) + &bad), &[]);
    assert_eq!(mix.program("good")["verified"], true, "{}; {}", mix.json, mix.stderr);
    let bad = mix.program("bad").clone();
    (mix, bad)
}

#[test]
fn a_program_that_crashes_harms_no_other() {
    let home = Home::new();
    let (mix, bad) = beside_a_good_one(&home, &["crash"]);
    assert_eq!(bad["ending"], serde_json::json!({ "signal": libc::SIGSEGV }));
    assert_eq!(mix.status.code(), Some(1), "a mix in which a program failed tells so");
    home.is_left_clean();
}

#[test]
fn a_program_that_forks_harms_no_other() {
    let home = Home::new();
    let (_, bad) = beside_a_good_one(&home, &["fork"]);
    assert_eq!(bad["verified"], true, "{bad}");
    home.is_left_clean();
}

#[test]
fn a_daemonising_program_harms_none_and_its_daemon_lives_on() {
    let home = Home::new();
    let file = home.path().join("done");
    let (_, bad) = beside_a_good_one(&home, &["daemonise", file.to_str().unwrap()]);
    assert_eq!(bad["verified"], true, "{bad}");
    home.until("its daemon has finished its work", || file.exists());
    home.is_left_clean();
}

#[test]
fn a_program_that_changes_its_own_affinity_harms_no_other() {
    let home = Home::new();
    let (_, bad) = beside_a_good_one(&home, &["affinity"]);
    assert_eq!(bad["verified"], true, "{bad}");
    home.is_left_clean();
}

#[test]
fn a_program_of_a_thousand_threads_harms_no_other() {
    let home = Home::new();
    let (_, bad) = beside_a_good_one(&home, &["threads"]);
    assert_eq!(bad["verified"], true, "{bad}");
    home.is_left_clean();
}
