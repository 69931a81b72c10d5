//! Programs in PID namespaces of their own, as containers are: numbers of processes mean others in there.

use std::fs;
use std::process::Command;

use coplace_tests::{Child, Home, openmp_helper, processes, skipped};
use serde_json::Value;

/// Words that run a program in a PID namespace; `None` where this user can make none.
fn unshare(more: &str) -> Option<String> {
    let rights = if rustix::process::geteuid().is_root() { "" } else { "-Ur" };
    let prefix = format!("unshare {rights} {more}");
    let tried = Command::new("sh").arg("-c").arg(format!("{prefix} true")).output();
    tried.is_ok_and(|output| output.status.success()).then_some(prefix)
}

fn two_cpus(test: &str) -> bool {
    let enough = processes::cpu_count() >= 2;
    if !enough {
        skipped(test, "a neighbour to share with takes two CPUs");
    }
    enough
}

/// A home whose daemon plans as if nobody else were there.
fn home_with_daemon() -> (Home, Child) {
    let home = Home::new();
    let daemon = home.daemon(&["--policy", "TA", "--unmanaged", "ignore"]);
    (home, daemon)
}

fn run(home: &Home, name: &str, script: &str) -> Child {
    let mut command = home.coplace();
    home.start(name, command.args(["run", "--quiet", "--name", name, "--", "sh", "-c", script]))
}

fn field(home: &Home, app: &str, field: &str) -> Value {
    home.app(app).map_or(Value::Null, |app| app[field].clone())
}

fn pages(home: &Home) -> Vec<String> {
    let directories = fs::read_dir(home.path().join("h/pages")).expect("it is there").flatten();
    let files =
        directories.flat_map(|directory| fs::read_dir(directory.path()).into_iter().flatten().flatten());
    let mut names: Vec<String> = files.map(|file| file.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_program_in_a_namespace_gets_its_threads_back() {
    const NAME: &str = "a_program_in_a_namespace_gets_its_threads_back";
    let Some(prefix) = unshare("-pf --mount-proc") else {
        return skipped(NAME, "no PID namespaces for this user here");
    };
    if !two_cpus(NAME) {
        return;
    }
    let (home, daemon) = home_with_daemon();
    let program = openmp_helper("briefly", &home);
    // Its own namespace, and one in another.
    for (at, prefix) in [prefix.clone(), format!("{prefix} unshare -pf --mount-proc")].iter().enumerate() {
        let neighbour = run(&home, &format!("neighbour{at}"), &format!("exec {program} 600000"));
        let name = format!("inner{at}");
        let mut inner = run(&home, &name, &format!("exec {prefix} {program} 600000"));
        home.until("it is as narrow as its place", || {
            field(&home, &name, "team") == 1 && field(&home, &name, "threads") == 1
        });
        assert!(field(&home, &name, "rigid").is_null(), "{}", home.app(&name).unwrap_or_default());
        neighbour.signal(libc::SIGTERM);
        home.until("it has its threads back", || field(&home, &name, "team").as_u64() >= Some(2));
        inner.signal(libc::SIGKILL);
        inner.ended_within(std::time::Duration::from_secs(20));
        home.running("briefly").into_iter().for_each(processes::end);
        home.until("it has left", || home.app(&name).is_none());
    }
    daemon.signal(libc::SIGTERM);
    home.is_left_clean();
}

#[test]
fn two_containers_of_one_program_share_no_page() {
    const NAME: &str = "two_containers_of_one_program_share_no_page";
    let Some(prefix) = unshare("-pf --mount-proc") else {
        return skipped(NAME, "no PID namespaces for this user here");
    };
    if !two_cpus(NAME) {
        return;
    }
    let (home, daemon) = home_with_daemon();
    let program = openmp_helper("briefly", &home);
    // Two at once, both with the number 1 in there, and then a third in a namespace that may have the number of
    // one that has gone.
    let one = |ms: u32| format!("{prefix} {program} {ms}");
    let script = format!("{} & {} & wait; exec {}", one(1500), one(1500), one(600_000));
    let all = run(&home, "containers", &script);
    let own = |names: &[String]| names.iter().filter(|name| name.starts_with("1-")).count();
    home.until("both have a page of their own", || own(&pages(&home)) == 2);
    // Only their output shows that the first two have gone: one of them has the machine to itself as well for as
    // long as the other one has ended sooner.
    home.until("the first two have ended", || {
        all.stdout().lines().filter(|line| *line == "VERIFIED").count() == 2
    });
    home.until("the third one has the machine to itself", || {
        field(&home, "containers", "team").as_u64() >= Some(2) && home.running("briefly").len() == 1
    });
    assert!(field(&home, "containers", "rigid").is_null(), "{}", home.app("containers").unwrap_or_default());
    all.signal(libc::SIGKILL);
    home.running("briefly").into_iter().for_each(processes::end);
    daemon.signal(libc::SIGTERM);
    home.is_left_clean();
}

#[test]
fn a_page_that_cannot_be_matched_makes_rigid_not_narrow() {
    const NAME: &str = "a_page_that_cannot_be_matched_makes_rigid_not_narrow";
    // Without /proc a program can tell neither its namespace nor when it started.
    let hidden = "-pfm --propagation private sh -c 'mount -t tmpfs none /proc && exec \"$@\"' sh";
    let Some(prefix) = unshare(hidden) else {
        return skipped(NAME, "no namespaces with mounts for this user here");
    };
    if !two_cpus(NAME) {
        return;
    }
    let (home, daemon) = home_with_daemon();
    let program = openmp_helper("briefly", &home);
    let neighbour = run(&home, "neighbour", &format!("exec {program} 600000"));
    let inner = run(&home, "inner", &format!("exec {prefix} {program} 600000"));
    home.until("it counts as one that cannot be resized", || {
        field(&home, "inner", "rigid").as_str().is_some_and(|why| why.contains("cannot be told"))
    });
    home.until("it has all its threads", || field(&home, "inner", "team").as_u64() >= Some(2));
    neighbour.signal(libc::SIGTERM);
    inner.signal(libc::SIGKILL);
    home.running("briefly").into_iter().for_each(processes::end);
    daemon.signal(libc::SIGTERM);
    home.is_left_clean();
}
