//! Running programs are attached and released at random moments: each goes on to its verified end,
//! and has afterwards the CPU masks and cgroups that it had before.
//!
//! `COPLACE_ATTACHES` says how often each (`make soak`: 1000), `COPLACE_SEED` where the random numbers begin.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use coplace_tests::{Child, Home, app, helper, processes, scaled, skipped, skipped_part};
use workload::Random;

/// What is to be as before: the mask of every thread and the cgroups of every thread.
#[derive(Debug, PartialEq, Eq)]
struct Condition(BTreeMap<u32, (String, String)>);

fn condition(pid: u32) -> Condition {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of = |entry: fs::DirEntry| {
        let tid = entry.file_name().to_str()?.parse().ok()?;
        let status = fs::read_to_string(entry.path().join("status")).ok()?;
        let mask = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?.trim().to_owned();
        Some((tid, (mask, fs::read_to_string(entry.path().join("cgroup")).ok()?)))
    };
    Condition(tasks.filter_map(of).collect())
}

impl Condition {
    /// Threads come and go; those that are there in both must agree, and there must be some.
    fn differences(&self, after: &Condition) -> Vec<String> {
        let both = self.0.iter().filter_map(|(tid, was)| Some((tid, was, after.0.get(tid)?)));
        let found: Vec<_> = both.collect();
        assert!(!found.is_empty(), "{self:?} {after:?}");
        let differ = found.into_iter().filter(|(_, was, is)| was != is);
        differ.map(|(tid, was, is)| format!("thread {tid}: {was:?} became {is:?}")).collect()
    }
}

/// cgroups of our own in which programs stand before they are attached; version 1, as root.
struct Groups(Vec<PathBuf>);

impl Groups {
    fn make() -> Groups {
        let mut made = Vec::new();
        for controller in ["freezer", "cpu"] {
            let group = Path::new("/sys/fs/cgroup")
                .join(controller)
                .join(format!("coplace-test-{}", std::process::id()));
            if fs::create_dir(&group).is_ok() {
                made.push(group);
            }
        }
        Groups(made)
    }

    fn take(&self, pid: u32) {
        for group in &self.0 {
            fs::write(group.join("cgroup.procs"), pid.to_string())
                .expect("a group of our own takes a process");
        }
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for group in &self.0 {
            for _ in 0..100 {
                if fs::remove_dir(group).is_ok() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

const KINDS: u64 = 5;

/// A program that runs for seconds, of one of several kinds.
fn start(home: &Home, kind: u64, number: u64, groups: &Groups) -> Child {
    let (name, size, bound) = match kind {
        0 => ("cg", scaled(2.0), false),
        // Its runtime binds each thread: masks differ from thread to thread.
        1 => ("regions", scaled(2.0), true),
        2 => ("ep", scaled(2.0), false),
        3 => ("pthreads_spin", scaled(1.0), false),
        _ => ("burn", "3".to_owned(), false),
    };
    let mut command = home.command(home.program(Path::new(&app(name))));
    match name {
        "burn" => command.args(["--seconds", &size]),
        _ => command.args(["--size", "S", "--scale", &size]),
    };
    command.env("OMP_WAIT_POLICY", "passive");
    if bound {
        command.env("OMP_PROC_BIND", "true").env("OMP_PLACES", "threads");
    }
    if kind == 4 {
        // Confined by its user: to one CPU it came, with one CPU it goes.
        // SAFETY: the set is a plain value, and the call only confines the child.
        unsafe {
            command.pre_exec(|| {
                let mut set: libc::cpu_set_t = std::mem::zeroed();
                libc::CPU_SET(0, &mut set);
                libc::sched_setaffinity(0, size_of_val(&set), &set);
                Ok(())
            })
        };
    }
    let child = home.start(&format!("p{number}"), &mut command);
    home.until("it runs", || processes::program(child.pid()).as_deref() == Some(name));
    if kind.is_multiple_of(2) {
        groups.take(child.pid());
    }
    child
}

struct Member {
    child: Child,
    kind: u64,
    before: Option<Condition>,
}

/// What was done with programs, all of which ended verified.
#[derive(Default)]
struct Done {
    attached: u64,
    released: u64,
    programs: u64,
}

/// Attaches `count` times at least and releases as often, each time comparing.
fn play(home: &Home, config: &str, lead: bool, count: u64, random: &mut Random) -> Done {
    fs::write(home.path().join("config.toml"), config).unwrap();
    let groups = Groups::make();
    let mut scheduler = match lead {
        false => home.daemon(&[]),
        true => {
            let mut command = home.coplace();
            command.args(["run", "--quiet", "--"]).arg(home.program(Path::new(&app("burn"))));
            command.args(["--seconds", "600"]);
            let leader = home.start("leader", &mut command);
            home.until("the run leads", || home.status().is_some());
            leader
        }
    };
    let (mut number, mut done) = (0, Done::default());
    let mut members: Vec<Member> = Vec::new();
    while done.attached < count || done.released < count {
        while members.len() < 4 {
            let kind = random.below(KINDS);
            let child = start(home, kind, number, &groups);
            number += 1;
            members.push(Member { child, kind, before: None });
        }
        std::thread::sleep(Duration::from_millis(random.below(120)));
        let at = random.below(members.len() as u64) as usize;
        let member = &mut members[at];
        let pid = member.child.pid();
        let arguments = match member.before {
            None => {
                member.before = Some(condition(pid));
                ["attach", &pid.to_string()].map(str::to_owned)
            }
            Some(_) => ["release", &pid.to_string()].map(str::to_owned),
        };
        let output = home.coplace().args(&arguments).output().expect("coplace can be started");
        let stderr = format!(
            "{config:?} {arguments:?} (kind {}): {}{}",
            member.kind,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        if !output.status.success() && stderr.contains("has ended") {
            // Its first thread has, by the kernel's word, and the last of the others is about to: nobody can wait for
            // it before.
            assert!(matches!(processes::state(pid), None | Some('Z' | 'X')), "{stderr}");
            member.child.ended_within(Duration::from_secs(60));
        }
        if member.child.has_ended().is_some() {
            // It may have ended at any moment of this; nothing is to be compared then.
        } else {
            assert!(output.status.success(), "{stderr}; {}", home.traces());
            if arguments[0] == "release" {
                let before = member.before.take().expect("it was attached");
                let differences = before.differences(&condition(pid));
                if member.child.has_ended().is_none() {
                    assert_eq!(differences, Vec::<String>::new(), "{stderr}; {}", home.traces());
                    assert!(!processes::is_frozen(pid) && processes::state(pid) != Some('T'), "{stderr}");
                    done.released += 1;
                }
            } else {
                done.attached += 1;
            }
        }
        members.retain_mut(|member| match member.child.has_ended() {
            None => true,
            Some(status) => {
                assert!(status.success() && member.child.verified(), "{status}: {}", member.child.stdout());
                done.programs += 1;
                false
            }
        });
    }
    // Those that are attached still are set free by the scheduler's end.
    scheduler.signal(libc::SIGTERM);
    scheduler.ended_within(Duration::from_secs(60));
    for member in &mut members {
        if let Some(before) = &member.before
            && member.child.has_ended().is_none()
        {
            let differences = before.differences(&condition(member.child.pid()));
            assert!(differences.is_empty() || member.child.has_ended().is_some(), "{differences:?}");
        }
        if member.child.has_ended().is_some() {
            continue;
        }
        // Asked before we stop and continue it ourselves, which would hide what the scheduler had left undone.
        let pid = member.child.pid();
        let free = || !processes::is_frozen(pid) && processes::state(pid) != Some('T');
        home.until("no program stands still when its scheduler has ended", free);
        // Left to themselves, programs whose threads spin for each other would take minutes together.
        member.child.signal(libc::SIGSTOP);
    }
    for member in &mut members {
        if member.child.has_ended().is_none() {
            member.child.signal(libc::SIGCONT);
        }
        let status = member.child.ended_within(Duration::from_secs(180));
        assert!(status.success() && member.child.verified(), "{status}: {}", member.child.stdout());
        done.programs += 1;
    }
    drop(groups);
    home.is_left_clean();
    done
}

/// A user whom nobody is.
const SOMEBODY: u32 = 54_323;

#[test]
fn randomly_attached_programs_end_verified_and_as_they_were() {
    let number =
        |name: &str, default| std::env::var(name).ok().map_or(default, |text| text.parse().expect(name));
    let count: u64 = number("COPLACE_ATTACHES", 40);
    let seed: u64 = number("COPLACE_SEED", 20_260_101);
    println!("COPLACE_ATTACHES={count} COPLACE_SEED={seed} cargo test -p coplace-tests --test attach");
    let mut random = Random::new(seed);
    // As an ordinary user only affinity and signals are there; then both kinds are the same.
    let groups = fs::metadata("/sys/fs/cgroup").is_ok() && rustix::process::geteuid().is_root();
    let turns = if groups { "auto" } else { "stop" };
    let configs = [
        (format!("policy = 'CO'\nturns = '{turns}'\n[settings]\nallowed_widths = [2]\n"), false),
        ("policy = 'TA'\nplacement = 'affinity'\nturns = 'stop'\n".to_owned(), false),
        ("policy = 'EQ'\nplacement = 'affinity'\n".to_owned(), true),
    ];
    let mut done = Done::default();
    let mut add = |more: Done| {
        done.attached += more.attached;
        done.released += more.released;
        done.programs += more.programs;
    };
    let share = count.div_ceil(4);
    for (config, lead) in &configs {
        add(play(&Home::new(), config, *lead, share, &mut random));
    }
    let by_signals = "policy = 'CO'\nturns = 'stop'\n[settings]\nallowed_widths = [2]\n";
    match Home::of(SOMEBODY) {
        Some(home) => add(play(&home, by_signals, false, share, &mut random)),
        None => {
            skipped_part("attaching as another user", "only root becomes one; this user attaches instead");
            add(play(&Home::new(), by_signals, false, share, &mut random));
        }
    }
    let Done { attached, released, programs } = done;
    assert!(attached >= count && released >= count, "{attached} {released}");
    println!("{attached} attaches and {released} releases, {programs} programs VERIFIED");
}

#[test]
fn another_users_programs_are_refused_and_left_alone() {
    const NAME: &str = "another_users_programs_are_refused_and_left_alone";
    let Some(home) = Home::of(SOMEBODY) else { return skipped(NAME, "it takes root to be two users") };
    let _daemon = home.daemon(&[]);
    let burn = home.program(Path::new(&app("burn")));
    for (owner, group) in [(SOMEBODY + 1, SOMEBODY + 1), (SOMEBODY + 1, SOMEBODY), (0, 0)] {
        let mut command = home.command(&burn);
        let mut other = home.start("other", command.args(["--seconds", "60"]).uid(owner).gid(group));
        let pid = other.pid();
        home.until("it runs", || processes::program(pid).as_deref() == Some("burn"));
        let before = condition(pid);
        for word in ["attach", "release"] {
            let output = home.coplace().args([word, &pid.to_string()]).output().unwrap();
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{word}: {stderr}");
            let wanted = match word {
                "attach" => {
                    format!("process {pid} (burn) belongs to user {owner}; only that user and root may")
                }
                _ => "is not under coplace".to_owned(),
            };
            assert!(stderr.contains(&wanted), "{word}: {stderr}");
        }
        assert_eq!(home.status().unwrap()["apps"].as_array().map(Vec::len), Some(0));
        assert_eq!(before.differences(&condition(pid)), Vec::<String>::new());
        // Its own it is given.
        if owner == 0 {
            let mut own = home.start("own", home.command(&burn).args(["--seconds", "60"]));
            let output = home.coplace().args(["attach", &own.pid().to_string()]).output().unwrap();
            assert!(output.status.success(), "{output:?}");
            own.signal(libc::SIGTERM);
            assert!(own.ended_within(Duration::from_secs(60)).success() && own.verified());
        }
        other.signal(libc::SIGTERM);
        assert!(other.ended_within(Duration::from_secs(60)).success() && other.verified());
    }
}

#[test]
fn unattachable_processes_are_refused_and_left_alone() {
    let home = Home::new();
    let no_scheduler = home.coplace().args(["attach", "1"]).output().unwrap();
    assert_eq!(no_scheduler.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&no_scheduler.stderr).contains("no scheduler runs"));
    let daemon = home.daemon(&[]);
    let mut under = home.coplace();
    under.args(["run", "--quiet", "--name", "known", "--", "sleep", "100"]);
    let _run = home.start("known", &mut under);
    home.until("it runs under coplace", || {
        home.app("known").is_some_and(|app| app["state"] == "running" || app["state"] == "starting")
    });
    let known = home.app("known").unwrap()["pid"].as_u64().unwrap().to_string();
    let mut shell = home.start("shell", home.command("sh").args(["-c", "sleep 100; true"]));
    let shell_pid = shell.pid().to_string();
    let first = match rustix::process::geteuid().is_root() {
        true => "first process",
        false => "belongs to user 0",
    };
    for (pid, wanted) in [
        ("2", "thread of the kernel"),
        ("1", first),
        ("4000000", "no process 4000000"),
        (shell_pid.as_str(), "is a shell"),
        (known.as_str(), "under coplace already, as known"),
    ] {
        let output = home.coplace().args(["attach", pid]).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        // In a container the kernel's threads are not to be seen.
        assert!(stderr.contains(wanted) || pid == "2" && stderr.contains("no process 2"), "{pid}: {stderr}");
        assert_eq!(output.status.code(), Some(2), "{pid}: {stderr}");
    }
    let output = home.coplace().args(["release", &shell_pid, "nobody"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && stderr.contains("is not under coplace"), "{stderr}");
    assert!(stderr.contains("no program nobody"), "{stderr}");
    shell.signal(libc::SIGKILL);
    shell.ended_within(Duration::from_secs(60));
    drop(daemon);
}

#[test]
fn a_released_run_goes_on_unmanaged_and_can_be_attached() {
    let home = Home::new();
    let _daemon = home.daemon(&["--policy", "TA"]);
    let mut run = home.start(
        "run",
        home.coplace().args(["run", "--", &app("regions"), "--size", "S", "--scale", &scaled(8.0)]),
    );
    home.until("its teams are known", || home.app("regions").is_some_and(|app| app["team"].is_u64()));
    let pid = home.app("regions").unwrap()["pid"].as_u64().unwrap() as u32;
    let released = home.coplace().args(["release", "regions"]).output().unwrap();
    assert!(released.status.success(), "{released:?}");
    assert!(home.app("regions").is_none());
    assert_eq!(processes::masks(pid), vec![processes::own_mask(); processes::masks(pid).len()]);
    let attached = home.coplace().args(["attach", &pid.to_string(), "--name", "again"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&attached.stdout).into_owned();
    assert!(attached.status.success() && !stderr.contains("does not carry"), "{stderr}");
    // Beside another one it is made narrower, which only its library can do.
    let other = home.start(
        "other",
        home.coplace().args(["run", "--", &app("regions"), "--size", "S", "--scale", &scaled(2.0)]),
    );
    if processes::cpu_count() > 1 {
        home.until("its team shrinks", || {
            home.app("again").is_some_and(|app| app["team"] == processes::cpu_count() / 2)
        });
    }
    drop(other);
    assert!(run.ended_within(Duration::from_secs(60)).success() && run.verified(), "{}", run.stdout());
    assert!(run.stderr().contains("was released; it goes on"), "{}", run.stderr());
    home.until("it is gone", || home.app("again").is_none());
    let pages = || fs::read_dir(home.path().join("h/pages")).map_or(0, |entries| entries.flatten().count());
    home.until("its pages are gone", || pages() == 0);
}

#[test]
fn a_rule_adopts_programs_and_a_killed_daemon_restores_them() {
    let home = Home::new();
    let solver = home.path().join("solver");
    fs::copy(app("burn"), &solver).unwrap();
    let directory = home.path().canonicalize().unwrap();
    let config = format!(
        "placement = 'affinity'\n[[adopt]]\npath = '{}/sol*'\nname = 'ruled'\nrigid = true\nmax_threads = 1\n",
        directory.display()
    );
    fs::write(home.path().join("config.toml"), config).unwrap();
    let mut daemon = home.daemon(&[]);
    let mut program = home.start("solver", home.command(&solver).args(["--seconds", "60"]));
    let before = condition(program.pid());
    let _other = home.start("helper", home.command(helper("misbehave", &home)).arg("affinity"));
    home.until("the rule takes it in", || home.app("ruled").is_some_and(|app| app["attached"] == true));
    let apps = home.status().unwrap()["apps"].as_array().unwrap().len();
    assert_eq!(apps, 1, "{:?}", home.status());
    home.until("it is confined", || processes::cpu_count() == 1 || condition(program.pid()) != before);
    daemon.signal(libc::SIGKILL);
    daemon.ended_within(Duration::from_secs(60));
    home.until("the guard gives it back", || before.differences(&condition(program.pid())).is_empty());
    // Asked to, it ends early, with its report.
    program.signal(libc::SIGTERM);
    assert!(program.ended_within(Duration::from_secs(60)).success() && program.verified());
}
