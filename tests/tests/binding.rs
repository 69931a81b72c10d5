//! Programs that bind threads to CPUs, or have them bound: every binding succeeds as it does alone, whatever
//! their neighbours do, and what was chosen is kept.

use std::fs;
use std::process::Command;
use std::time::Duration;

use coplace_tests::{Child, Home, app, openmp_helper, processes, skipped, skipped_part, top};

const PATIENCE: Duration = Duration::from_secs(120);

/// The first and the last CPU that this process may use; `None`, said loudly, where there is one only.
fn two_cpus(test: &str) -> Option<(u32, u32)> {
    let mask = processes::own_mask();
    let numbers = || mask.split([',', '-']).map(|number| number.parse::<u32>().expect("CPUs have numbers"));
    let (first, last) = (numbers().min()?, numbers().max()?);
    if first == last {
        skipped(test, "there is one CPU only");
        return None;
    }
    Some((first, last))
}

fn run(home: &Home, name: &str) -> Command {
    let mut command = home.coplace();
    command.args(["run", "--quiet", "--name", name]);
    command
}

/// On these two CPUs, whatever runs beside the test.
fn daemon(home: &Home, first: u32, last: u32) -> Child {
    home.daemon(&["--policy", "TA", "--unmanaged", "ignore", "--cpus", &format!("{first},{last}")])
}

/// A resizable neighbour that runs for some seconds. What runs beside the tests makes it no slower than it must.
fn neighbour(home: &Home, name: &str, scale: &str) -> Child {
    let mut command = run(home, name);
    command.arg(app("regions")).args(["--size", "S", "--scale", scale]).env("OMP_WAIT_POLICY", "passive");
    home.start(name, &mut command)
}

fn ends_well(home: &Home, children: Vec<Child>) {
    for mut child in children {
        let status = child.ended_within(PATIENCE);
        assert!(status.success(), "{status}: {}{}; {}", child.stdout(), child.stderr(), home.traces());
    }
}

#[test]
fn a_program_that_binds_itself_while_it_is_narrow_succeeds() {
    let Some((first, last)) = two_cpus("binding while narrow") else { return };
    let home = Home::new();
    let _daemon = daemon(&home, first, last);
    let program = openmp_helper("binds", &home);
    let go = home.path().join("go");
    let start = |how: &str| {
        let mut command = run(&home, how);
        home.start(how, command.args([&program, how]).arg(&go).arg("0.6"))
    };
    let children: Vec<Child> = ["fork", "raw", "pthread", "handle", "attr"].map(start).into();
    let narrow = || {
        let running = home.running("binds");
        let one = |pid: &u32| processes::masks(*pid).iter().all(|mask| mask.parse::<u32>().is_ok());
        running.len() == children.len() && running.iter().all(one)
    };
    home.until("all of them stand on one CPU", narrow);
    fs::write(&go, "").unwrap();
    // Their places change again and again while they are bound, as one after the other ends.
    ends_well(&home, children);
}

#[test]
fn neighbours_that_come_later_move_no_thread_that_was_bound() {
    let Some((first, last)) = two_cpus("binding before neighbours come") else { return };
    let home = Home::new();
    let _daemon = daemon(&home, first, last);
    let program = openmp_helper("binds", &home);
    let go = home.path().join("go");
    fs::write(&go, "").unwrap();
    for how in ["fork", "pthread"] {
        let mut command = run(&home, how);
        let bound = home.start(how, command.args([&program, how]).arg(&go).arg("2"));
        home.until("it is seen", || home.app(how).is_some());
        ends_well(&home, vec![neighbour(&home, &format!("beside-{how}"), "0.3"), bound]);
    }
}

/// A program without any library, built statically; `None` where that cannot be done.
fn static_binds(home: &Home) -> Option<String> {
    let binary = home.path().join("binds-static");
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-std=gnu11", "-fopenmp", "-static", "-o"]).arg(&binary);
    let built = cc.arg(top().join("tests/programs/binds.c")).output().expect("cc is here");
    if !built.status.success() {
        skipped_part("a static program that binds itself", String::from_utf8_lossy(&built.stderr));
        return None;
    }
    Some(binary.to_str().expect("the home's path is text").to_owned())
}

#[test]
fn scripts_static_programs_and_python_bind_as_they_do_alone() {
    let Some((first, last)) = two_cpus("scripts with taskset") else { return };
    let home = Home::new();
    let _daemon = daemon(&home, first, last);
    let regions = app("regions");
    let script = format!(
        "{regions} --size S --scale 0.2 && taskset -c {first} {regions} --size S --scale 0.1 && \
         taskset -c {last} {regions} --size S --scale 0.1"
    );
    let python = format!(
        "import os, time\n\
         def worker(cpu):\n \
          os.sched_setaffinity(0, {{cpu}})\n \
          until = time.monotonic() + 0.5\n \
          while time.monotonic() < until: pass\n \
          assert os.sched_getaffinity(0) == {{cpu}}, os.sched_getaffinity(0)\n\
         for turn in range(3):\n \
          children = []\n \
          for cpu in ({first}, {last}):\n  \
           child = os.fork()\n  \
           if child == 0:\n   \
            try: worker(cpu)\n   \
            except BaseException as error: print(error, flush=True); os._exit(1)\n   \
            os._exit(0)\n  \
           children.append(child)\n \
          assert all(os.waitpid(child, 0)[1] == 0 for child in children)\n"
    );
    let mut children = vec![
        home.start("script", run(&home, "script").args(["sh", "-c", &script])),
        home.start("python", run(&home, "python").args(["python3", "-c", &python])),
        neighbour(&home, "beside", "0.4"),
    ];
    let go = home.path().join("go");
    fs::write(&go, "").unwrap();
    if let Some(program) = static_binds(&home) {
        let mut command = run(&home, "static");
        children.push(home.start("static", command.args([&program, "raw"]).arg(&go).arg("1")));
    }
    ends_well(&home, children);
}

#[test]
fn a_self_restricted_program_keeps_its_mask_when_freed() {
    let Some((first, last)) = two_cpus("a program that restricts itself") else { return };
    let home = Home::new();
    let mut daemon = daemon(&home, first, last);
    let last = last.to_string();
    let burn = app("burn");
    let script = format!("taskset -c {last} {burn} --seconds 60; true");
    let _script = home.start("script", run(&home, "script").args(["sh", "-c", &script]));
    let place = |name: &str| home.app(name).map(|app| app["place"].to_string()).unwrap_or_default();
    let _beside = neighbour(&home, "beside", "20");
    home.until("the neighbour has the other CPU", || place("beside") == format!("\"{first}\""));
    let bound = || home.running("burn").into_iter().filter(|pid| processes::masks(*pid) == [last.clone()]);
    assert_eq!(bound().count(), 1, "{:?}", home.status());
    daemon.signal(libc::SIGTERM);
    daemon.ended_within(PATIENCE);
    assert_eq!(bound().count(), 1, "what it chose is its own");
    let own = processes::own_mask();
    let free = |pid: u32| processes::masks(pid).iter().all(|mask| *mask == own);
    home.until("the neighbour is free", || home.running("regions").into_iter().all(free));
}

#[test]
fn a_team_bound_by_its_runtime_is_never_resized() {
    let Some((first, last)) = two_cpus("bound teams") else { return };
    let home = Home::new();
    let _daemon = daemon(&home, first, last);
    let bound = |name: &str| {
        let mut command = run(&home, name);
        command.env("OMP_PROC_BIND", "true").env("OMP_PLACES", "threads").env("OMP_WAIT_POLICY", "passive");
        home.start(name, command.arg(app("cg")).args(["--size", "S", "--scale", "0.3"]))
    };
    let children = vec![bound("a"), bound("b"), neighbour(&home, "c", "0.2")];
    let rigid_reason = |name: &str| home.app(name).map(|app| app["rigid"].to_string()).unwrap_or_default();
    home.until("it is told why", || {
        rigid_reason("a").contains("OMP_PROC_BIND") && rigid_reason("b").contains("OMP_PROC_BIND")
    });
    ends_well(&home, children);
}
