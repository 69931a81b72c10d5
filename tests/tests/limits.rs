//! What a program's user told it holds under coplace: its mask, the limits of its groups, its nice value, and each
//! signal as often as it was sent.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use coplace_tests::{Child, Home, app, coplace, helper, processes, skipped, skipped_here};

fn two_cpus(test: &str) -> bool {
    let enough = processes::cpu_count() >= 2;
    if !enough {
        skipped(test, "there is one CPU only");
    }
    enough
}

/// Starts a program of parallel regions that does not end by itself, through these words before `coplace`.
fn start(home: &Home, name: &str, before: &[&str]) -> Child {
    let coplace = coplace().to_string_lossy().into_owned();
    let regions = app("regions");
    let arguments = ["run", "--name", name, &regions, "--size", "M", "--scale", "100"];
    let all: Vec<&str> = before.iter().copied().chain([coplace.as_str()]).chain(arguments).collect();
    // In a group of its own, as an interactive shell starts it: one that nobody controls cannot be stopped.
    home.start(name, home.command(all[0]).args(&all[1..]).process_group(0))
}

fn place(home: &Home, name: &str) -> String {
    home.app(name).and_then(|app| Some(app["place"].as_str()?.to_owned())).unwrap_or_default()
}

fn state(home: &Home, name: &str) -> String {
    home.app(name).and_then(|app| Some(app["state"].as_str()?.to_owned())).unwrap_or_default()
}

fn pid(home: &Home, name: &str) -> u32 {
    home.app(name).and_then(|app| app["pid"].as_u64()).unwrap_or_default() as u32
}

#[test]
fn a_program_stays_on_the_cpus_that_its_run_was_started_on() {
    if !two_cpus("a program under taskset") {
        return;
    }
    let home = Home::new();
    fs::write(home.path().join("config.toml"), "unmanaged = \"ignore\"\n").unwrap();
    let leader = start(&home, "leader", &[]);
    home.until("the leader is there", || place(&home, "leader") == "0-1");
    for cpu in ["0", "1"] {
        let name = format!("on{cpu}");
        let pinned = start(&home, &name, &["taskset", "-c", cpu]);
        home.until("it is placed", || state(&home, &name) == "running" && place(&home, &name) == cpu);
        let masks = processes::masks(pid(&home, &name));
        assert!(!masks.is_empty() && masks.iter().all(|mask| mask == cpu), "{masks:?}");
        pinned.signal(libc::SIGTERM);
        home.until("it has ended", || home.app(&name).is_none());
    }
    leader.signal(libc::SIGTERM);
    home.is_left_clean();
}

#[test]
fn a_leader_under_taskset_confines_itself_and_nobody_else() {
    if !two_cpus("a leader under taskset") {
        return;
    }
    let home = Home::new();
    fs::write(home.path().join("config.toml"), "unmanaged = \"ignore\"\n").unwrap();
    let leader = start(&home, "a", &["taskset", "-c", "1"]);
    home.until("the leader is there", || place(&home, "a") == "1");
    let free = start(&home, "b", &[]);
    home.until("the other has the other CPU", || {
        place(&home, "b").starts_with('0') && place(&home, "a") == "1"
    });
    // The next that leads came with another mask, and who is under it now keeps that.
    let pinned = start(&home, "c", &["taskset", "-c", "0"]);
    home.until("the third is on its CPU", || place(&home, "c") == "0");
    leader.signal(libc::SIGTERM);
    home.until("another leads, and masks hold as before", || {
        home.app("a").is_none() && place(&home, "c") == "0" && place(&home, "b").contains('1')
    });
    pinned.signal(libc::SIGTERM);
    home.until("the last one has everything", || home.app("c").is_none() && place(&home, "b") == "0-1");
    free.signal(libc::SIGTERM);
    home.is_left_clean();
}

#[test]
fn a_plan_for_restricted_programs_stays_as_it_is() {
    if !two_cpus("restricted programs in one plan") {
        return;
    }
    let home = Home::new();
    fs::write(home.path().join("config.toml"), "unmanaged = \"ignore\"\n").unwrap();
    // Its CPU is all that is shared out, until the other one brings more.
    let leader = start(&home, "a", &["taskset", "-c", "1"]);
    home.until("the leader is there", || place(&home, "a") == "1");
    let free = start(&home, "b", &["env", "COPLACE_RIGID=1"]);
    let plan = || home.status().map(|status| status["plan"].to_string()).unwrap_or_default();
    let stays = |what: &str, wanted: [&str; 2]| {
        home.until(what, || wanted.iter().all(|part| plan().contains(part)));
        for _ in 0..40 {
            std::thread::sleep(Duration::from_millis(25));
            let plan = plan();
            assert!(wanted.iter().all(|part| plan.contains(part)), "{what}: {plan}");
        }
    };
    stays("they take turns, the first on its CPU", ["a on 1", "b on 0-1"]);
    let program = pid(&home, "b").to_string();
    let chosen = home.command("taskset").args(["-a", "-c", "-p", "0", &program]).output();
    assert!(chosen.unwrap().status.success());
    stays("each is where its user wants it", ["a on 1", "b on 0"]);
    assert_eq!((place(&home, "a").as_str(), place(&home, "b").as_str()), ("1", "0"));
    free.signal(libc::SIGTERM);
    leader.signal(libc::SIGTERM);
    home.is_left_clean();
}

/// A group of this test's own in a v1 hierarchy; removed in the end.
struct Group(PathBuf);

impl Group {
    fn make(controller: &str, files: &[(&str, &str)]) -> Option<Group> {
        let mount = Path::new("/sys/fs/cgroup").join(controller);
        let dir = mount.join(format!("limits-{}-{:?}", std::process::id(), std::thread::current().id()));
        fs::create_dir(&dir).ok()?;
        let group = Group(dir);
        let written = files.iter().all(|(file, value)| fs::write(group.0.join(file), value).is_ok());
        written.then_some(group)
    }

    fn name(&self) -> String {
        format!("/{}", self.0.file_name().unwrap().to_str().unwrap())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() || !self.0.exists() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn a_program_stays_below_its_own_groups_and_keeps_them() {
    let groups = [
        ("cpu", &[("cpu.cfs_quota_us", "50000"), ("cpu.shares", "512")][..]),
        ("cpuset", &[("cpuset.mems", "0"), ("cpuset.cpus", "0")]),
        ("freezer", &[]),
    ];
    let made: Vec<Group> = groups.iter().filter_map(|(name, files)| Group::make(name, files)).collect();
    if made.len() < groups.len() {
        return skipped("a program in groups of its own", "it takes root and cgroup v1");
    }
    let home = Home::new();
    let daemon = home.daemon(&["--policy", "TA"]);
    let enter = made.iter().map(|group| format!("echo $$ > '{}/cgroup.procs'; ", group.0.display()));
    let script = enter.collect::<String>() + "exec \"$@\"";
    let limited = start(&home, "limited", &["sh", "-c", &script, "sh"]);
    let free = start(&home, "free", &[]);
    home.until("both are there", || ["limited", "free"].iter().all(|name| state(&home, name) == "running"));
    let stands = |name: &str, controller: &str| -> String {
        let of = processes::groups(pid(&home, name)).into_iter();
        of.filter(|(its, _)| its.split(',').any(|one| one == controller)).map(|(_, path)| path).collect()
    };
    for (group, (controller, _)) in made.iter().zip(groups) {
        let path = stands("limited", controller);
        assert!(path == group.name() || path.starts_with(&format!("{}/", group.name())), "{path}");
        assert!(!stands("free", controller).starts_with(&group.name()), "{}", stands("free", controller));
    }
    // Who is not moved in the hierarchy of CPU time keeps its weight, and its nice value counts.
    assert_eq!(stands("limited", "cpu"), made[0].name());
    assert_eq!(place(&home, "limited"), "0");
    limited.signal(libc::SIGTERM);
    free.signal(libc::SIGTERM);
    home.until("nothing of ours is left in its groups", || {
        made.iter().all(|group| !group.0.join("coplace").exists() && fs::remove_dir(&group.0).is_ok())
    });
    daemon.signal(libc::SIGTERM);
    home.is_left_clean();
}

/// What a program counts of these signals that are sent in this way.
fn counted(home: &Home, signals: &[i32], send: impl Fn(&Child, &[u32])) -> Vec<u32> {
    let counts = helper("counts", home);
    let file = home.path().join("counts.txt");
    let _ = fs::remove_file(&file);
    let mut command = home.coplace();
    command.args(["run", "-q", &counts]).arg(&file).args(signals.iter().map(i32::to_string));
    let mut run = home.start("counts", command.process_group(0));
    home.until("the program counts", || file.exists());
    let group: Vec<u32> = home.processes().into_iter().filter(|pid| group_of(*pid) == run.pid()).collect();
    send(&run, &group);
    assert!(run.ended_within(Duration::from_secs(90)).success(), "{}", run.stderr());
    let text = fs::read_to_string(&file).unwrap();
    text.lines().map(|line| line.split_whitespace().nth(1).unwrap().parse().unwrap()).collect()
}

fn group_of(pid: u32) -> u32 {
    // SAFETY: takes a number and touches no memory.
    unsafe { libc::getpgid(pid as i32) as u32 }
}

#[test]
fn a_signal_to_the_group_reaches_the_program_once() {
    let home = Home::new();
    for signal in [libc::SIGTERM, libc::SIGUSR1, libc::SIGHUP, libc::SIGINT, libc::SIGRTMIN()] {
        let to_group = |run: &Child, _: &[u32]| {
            // SAFETY: takes two numbers and touches no memory.
            unsafe { libc::kill(-(run.pid() as i32), signal) };
        };
        assert_eq!(counted(&home, &[signal], to_group), [1], "signal {signal}");
    }
    home.is_left_clean();
}

#[test]
fn a_signal_to_each_process_reaches_the_program_once() {
    let home = Home::new();
    for (signal, pause_ms) in [(libc::SIGTERM, 0), (libc::SIGUSR2, 20)] {
        let to_each = |_: &Child, group: &[u32]| {
            assert!(group.len() >= 2, "{group:?}");
            for pid in group {
                processes::signal(*pid, signal);
                std::thread::sleep(Duration::from_millis(pause_ms));
            }
        };
        assert_eq!(counted(&home, &[signal], to_each), [1], "signal {signal}");
    }
    home.is_left_clean();
}

#[test]
fn signals_to_the_run_alone_are_passed_on_each_once() {
    let home = Home::new();
    let signals = [libc::SIGTERM, libc::SIGUSR1, libc::SIGRTMIN() + 1];
    let to_run = |run: &Child, _: &[u32]| {
        signals.iter().for_each(|signal| run.signal(*signal));
        std::thread::sleep(Duration::from_millis(500));
        run.signal(libc::SIGTERM);
    };
    assert_eq!(counted(&home, &signals, to_run), [2, 1, 1]);
    home.is_left_clean();
}

#[test]
fn an_ignored_signal_reaches_a_program_that_handles_it() {
    if std::process::Command::new("python3").arg("--version").output().is_err() {
        return skipped_here("there is no python3");
    }
    let home = Home::new();
    let program = "import signal, sys, time\n\
                   def handle(number, frame): print(number, flush=True); sys.exit(0)\n\
                   signal.signal(signal.SIGINT, handle)\n\
                   print('ready', flush=True)\n\
                   while True: time.sleep(0.1)\n";
    // As a shell without job control starts what it puts into the background.
    let script = "trap '' INT QUIT; exec \"$@\"";
    let mut command = home.command("sh");
    command.args(["-c", script, "sh"]).arg(coplace()).args(["run", "--quiet", "python3", "-c", program]);
    let mut run = home.start("ignoring", &mut command);
    home.until("it handles the signal", || run.stdout().contains("ready"));
    run.signal(libc::SIGQUIT);
    run.signal(libc::SIGINT);
    run.ended_within(Duration::from_secs(20));
    assert_eq!(run.stdout().lines().last(), Some("2"), "{}", run.stderr());
    home.is_left_clean();
}

#[test]
fn a_program_runs_though_no_file_may_be_written() {
    let home = Home::new();
    let mut command = home.command("sh");
    // What it prints goes through a pipe, which has no such limit.
    let script = "(ulimit -f 0; exec \"$@\") 2>/dev/null | cat";
    command.args(["-c", script, "sh"]).arg(coplace()).args(["run", "--quiet", "echo", "it ran"]);
    let mut run = home.start("limited", &mut command);
    run.ended_within(Duration::from_secs(20));
    assert_eq!(run.stdout().trim(), "it ran", "{}", run.stderr());
    home.is_left_clean();
}

#[test]
fn a_stop_of_the_run_alone_stops_the_program_and_it_goes_on() {
    let home = Home::new();
    let run = start(&home, "stopped", &[]);
    home.until("it runs", || state(&home, "stopped") == "running");
    let program = pid(&home, "stopped");
    run.signal(libc::SIGTSTP);
    // As a shell does, which continues what it saw stopped.
    home.until("both stand", || [program, run.pid()].iter().all(|pid| processes::state(*pid) == Some('T')));
    run.signal(libc::SIGCONT);
    home.until("it goes on", || processes::state(program).is_some_and(|state| state != 'T'));
    run.signal(libc::SIGTERM);
    home.is_left_clean();
}

#[test]
fn a_program_at_nice_19_yields_to_one_at_nice_0() {
    if !two_cpus("a nice program") {
        return;
    }
    let home = Home::new();
    fs::write(home.path().join("config.toml"), "unmanaged = \"ignore\"\n").unwrap();
    let nice = start(&home, "background", &["nice", "-n", "19"]);
    home.until("alone it runs as any other", || state(&home, "background") == "running");
    let other = start(&home, "foreground", &[]);
    home.until("the other one has the machine", || {
        state(&home, "background") == "yielding"
            && place(&home, "foreground") == "0-1"
            && place(&home, "background") == "0-1"
    });
    other.signal(libc::SIGTERM);
    home.until("it is one of the programs again", || state(&home, "background") == "running");
    // Among equals nobody yields.
    let second = start(&home, "second", &["nice", "-n", "19"]);
    home.until("each has a CPU", || {
        ["background", "second"]
            .iter()
            .all(|name| state(&home, name) == "running" && place(&home, name).len() == 1)
    });
    second.signal(libc::SIGTERM);
    nice.signal(libc::SIGTERM);
    home.is_left_clean();
}
