//! `coplace run` from outside: what a program and its shell see must be what they see without it.

mod terminal;

use std::fs;
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use coplace_tests::machine;
use terminal::Terminal;

/// A directory in which the runs of one test meet, and nobody else.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn home(&self) -> PathBuf {
        self.0.path().join("home")
    }

    fn run(&self, options: &[&str], program: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_coplace"));
        command.env("COPLACE_RUNTIME_DIR", self.home()).env_remove("LD_PRELOAD").env_remove("COPLACE_CONFIG");
        command.arg("run").args(options).arg("--").args(program);
        command.stdin(Stdio::null());
        command
    }

    fn shell(&self, script: &str) -> Command {
        self.run(&["-q"], &["sh", "-c", script])
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// One that leads for the others until it is dropped.
    fn leader(&self) -> Running {
        let started = self.file("leader-started");
        let script = format!("echo > {}; exec sleep 100", started.display());
        let running = Running(self.shell(&script).spawn().unwrap());
        until("the leader's program to start", || started.exists());
        running
    }
}

/// A run that is killed with its program when the test is over.
struct Running(Child);

impl Running {
    fn pid(&self) -> i32 {
        self.0.id() as i32
    }

    fn signal(&self, signal: i32) {
        // SAFETY: no pointers; the child was not reaped.
        unsafe { libc::kill(self.pid(), signal) };
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.signal(libc::SIGTERM);
        let began = Instant::now();
        while matches!(self.0.try_wait(), Ok(None)) && began.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[track_caller]
fn until(what: &str, mut is: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < Duration::from_secs(60), "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(3));
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stat_of(pid: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

fn number_in(path: &Path) -> i32 {
    let mut number = None;
    until("a number in a file", || {
        number = fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok());
        number.is_some()
    });
    number.unwrap()
}

#[test]
fn every_exit_status_passes_through() {
    let place = Place::new();
    let _leader = place.leader();
    for status in 0..=255 {
        let ended = place.shell(&format!("exit {status}")).status().unwrap();
        assert_eq!(ended.code(), Some(status));
    }
}

#[test]
fn run_ends_by_its_programs_signal_and_leaves_no_core() {
    let place = Place::new();
    for signal in [libc::SIGTERM, libc::SIGKILL, libc::SIGSEGV, libc::SIGPIPE, libc::SIGABRT, libc::SIGHUP] {
        let ended = place.shell(&format!("kill -{signal} $$")).status().unwrap();
        assert_eq!(ended.signal(), Some(signal));
        assert!(!ended.core_dumped());
    }
}

#[test]
fn a_program_that_cannot_run_gives_127_or_126_and_one_line() {
    let place = Place::new();
    let plain = place.file("plain");
    fs::write(&plain, "").unwrap();
    let broken = place.file("broken");
    // Written by another process: a test beside this one that forks while we write would keep it busy.
    let write = r#"echo '#!/no/such/interpreter' > "$0" && chmod 755 "$0""#;
    assert!(Command::new("sh").args(["-c", write]).arg(&broken).status().unwrap().success());
    for (program, status) in [
        ("no-such-program", 127),
        ("/no/such/program", 127),
        (place.0.path().to_str().unwrap(), 126),
        (plain.to_str().unwrap(), 126),
    ] {
        let output = place.run(&[], &[program]).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{program}");
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(message.starts_with("coplace: cannot run") && message.contains(program), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    }
    assert!(!place.home().exists());
    // This one is found out only when it is executed.
    let output = place.run(&[], &[broken.to_str().unwrap()]).output().unwrap();
    assert_eq!(output.status.code(), Some(126));
    assert!(String::from_utf8_lossy(&output.stderr).contains("interpreter"));
    assert_eq!(fs::read_dir(place.home().join("apps")).unwrap().count(), 0);
}

#[test]
fn standard_input_and_output_pass_through_byte_by_byte() {
    let place = Place::new();
    let bytes: Vec<u8> = (0..1_000_003_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut command = place.run(&["-q"], &["cat"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let sent = bytes.clone();
    let writer = std::thread::spawn(move || stdin.write_all(&sent));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.stdout == bytes);
    assert!(output.status.success());
}

#[test]
fn environment_arguments_and_directory_reach_the_program() {
    let place = Place::new();
    let mut command = place.run(
        &["-q"],
        &[
            "sh",
            "-c",
            "pwd -P; printf '%s|' \"$@\" \"$KEPT\" \"${LD_PRELOAD%%:*}\"",
            "sh",
            "a b",
            "",
            "--name",
            "*",
        ],
    );
    let output =
        command.env("KEPT", "x=y\nz").env("LD_PRELOAD", "/no/such.so").current_dir(place.0.path()).output();
    let directory = place.0.path().canonicalize().unwrap();
    let expected = format!("{}\na b||--name|*|x=y\nz|/no/such.so|", directory.display());
    assert_eq!(text(&output.unwrap()), expected);
}

#[test]
fn descriptors_signals_and_mask_reach_the_program_unchanged() {
    let place = Place::new();
    let script = "ls /proc/self/fd | wc -l; grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status";
    // SAFETY: signal and close are async-signal-safe.
    let prepare = |command: &mut Command| unsafe {
        command.stdout(Stdio::piped()).pre_exec(|| {
            libc::signal(libc::SIGHUP, libc::SIG_IGN);
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            Ok(())
        });
    };
    let mut without = Command::new("bash");
    without.args(["-c", script]).stdin(Stdio::null());
    let mut with = place.run(&["-q"], &["bash", "-c", script]);
    prepare(&mut without);
    prepare(&mut with);
    assert_eq!(text(&with.output().unwrap()), text(&without.output().unwrap()));
}

#[test]
fn signals_sent_to_run_reach_the_program() {
    let place = Place::new();
    for (signal, name) in
        [(libc::SIGTERM, "TERM"), (libc::SIGUSR1, "USR1"), (libc::SIGHUP, "HUP"), (libc::SIGINT, "INT")]
    {
        let ready = place.file(&format!("ready-{name}"));
        let script =
            format!("trap 'exit 42' {name}; echo > {}; while :; do sleep 0.01; done", ready.display());
        let mut running = Running(place.shell(&script).spawn().unwrap());
        until("the program to start", || ready.exists());
        running.signal(signal);
        assert_eq!(running.0.wait().unwrap().code(), Some(42), "{name}");
    }
}

#[test]
fn a_program_that_survives_a_terminating_signal_runs_on() {
    let place = Place::new();
    let got = place.file("got");
    let script = format!(
        "trap 'echo > {0}; n=1' INT; echo > {0}.ready; i=0; while [ $i -lt 300 ]; do sleep 0.01; i=$((i+1)); done; exit 9",
        got.display()
    );
    let mut running = Running(place.shell(&script).spawn().unwrap());
    until("the program to start", || place.file("got.ready").exists());
    running.signal(libc::SIGINT);
    until("the program to get the signal", || got.exists());
    assert_eq!(running.0.wait().unwrap().code(), Some(9));
}

#[test]
fn control_c_ends_the_program_and_the_shell_learns_why() {
    let place = Place::new();
    let mut terminal = Terminal::open(&place.home());
    terminal.type_line("$COPLACE run -q -- sh -c 'echo go$((1)); exec sleep 100'");
    terminal.expect("go1");
    terminal.type_control(b'C');
    terminal.type_line("echo status=$?");
    terminal.expect("status=130");
    terminal.type_line("$COPLACE run -q -- sh -c 'trap \"echo caught; exit 3\" INT; echo go$((2)); while :; do sleep 0.01; done'; echo status=$?");
    terminal.expect("go2");
    terminal.type_control(b'C');
    terminal.expect("caught");
    terminal.expect("status=3");
    terminal.type_line("$COPLACE run -q -- sh -c 'echo go$((3)); exec sleep 100'");
    terminal.expect("go3");
    terminal.type_control(b'\\');
    terminal.type_line("echo status=$?");
    terminal.expect("status=131");
}

#[test]
fn control_z_fg_and_bg_work_as_without_coplace() {
    let place = Place::new();
    let pid = place.file("pid");
    let mut terminal = Terminal::open(&place.home());
    let script = format!("echo $$ > {}; echo go$((1)); exec sleep 1000", pid.display());
    terminal.type_line(&format!("$COPLACE run -q -- sh -c '{script}'"));
    terminal.expect("go1");
    let program = number_in(&pid);
    terminal.type_control(b'Z');
    terminal.expect("Stopped");
    assert_eq!(stat_of(program), Some('T'));
    terminal.type_line("jobs");
    terminal.expect("Stopped");
    // It stays stopped, whatever a guard or another scheduler does.
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(stat_of(program), Some('T'));
    terminal.type_line("bg");
    until("the program to run in the background", || stat_of(program) == Some('S'));
    terminal.type_line("jobs; echo end$((1))");
    terminal.expect("Running");
    terminal.expect("end1");
    terminal.type_line("fg");
    terminal.puts_in_front(program);
    terminal.type_control(b'Z');
    terminal.expect("Stopped");
    until("the program to stop", || stat_of(program) == Some('T'));
    terminal.type_line("fg");
    until("the program to run again", || stat_of(program) == Some('S'));
    terminal.puts_in_front(program);
    terminal.type_control(b'C');
    terminal.type_line("echo status=$?");
    terminal.expect("status=130");
    assert_eq!(stat_of(program), None);
}

#[test]
fn a_background_reader_of_the_terminal_stops_until_in_front() {
    let place = Place::new();
    let mut terminal = Terminal::open(&place.home());
    let pid = place.file("pid");
    terminal.type_line(&format!(
        "$COPLACE run -q -- sh -c 'read line; echo got-$line' & echo $! > {}",
        pid.display()
    ));
    let run = number_in(&pid);
    until("the run to stop", || stat_of(run) == Some('T'));
    terminal.type_line("jobs");
    terminal.expect("Stopped");
    terminal.type_line("fg");
    terminal.expect("COPLACE run");
    terminal.type_line("hello");
    terminal.expect("got-hello");
}

#[test]
fn background_programs_of_scripts_keep_ignored_signals() {
    let place = Place::new();
    let coplace = env!("CARGO_BIN_EXE_coplace");
    let script = format!("{coplace} run -q -- grep SigIgn /proc/self/status & wait $!");
    let output = Command::new("sh")
        .args(["-c", &script])
        .env("COPLACE_RUNTIME_DIR", place.home())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let ignored = u64::from_str_radix(text(&output).split_ascii_whitespace().nth(1).unwrap(), 16).unwrap();
    let bit = |signal: i32| ignored >> (signal - 1) & 1;
    assert_eq!((bit(libc::SIGINT), bit(libc::SIGQUIT), bit(libc::SIGPIPE)), (1, 1, 0));
}

#[test]
fn a_program_outlives_its_killed_run_and_is_free_in_a_second() {
    let place = Place::new();
    let pid = place.file("pid");
    let all = linux::affinity::get(std::process::id()).unwrap();
    for others in [false, true] {
        let leader = others.then(|| place.leader());
        let mut running =
            Running(place.shell(&format!("echo $$ > {}; exec sleep 1000", pid.display())).spawn().unwrap());
        let program = number_in(&pid);
        running.signal(libc::SIGKILL);
        running.0.wait().unwrap();
        machine::pass(Duration::from_secs(1));
        assert_eq!(stat_of(program), Some('S'));
        if leader.is_none() {
            assert_eq!(linux::affinity::get(program as u32).unwrap(), all);
        }
        // SAFETY: no pointers; the program is this test's.
        unsafe { libc::kill(program, libc::SIGKILL) };
        fs::remove_file(&pid).unwrap();
    }
}

#[test]
fn the_lead_passes_on_when_the_leading_run_ends_or_is_killed() {
    let place = Place::new();
    for signal in [libc::SIGTERM, libc::SIGKILL] {
        let first = place.leader();
        let mark = place.file("mark");
        let script = format!("echo > {}; exec sleep 3", mark.display());
        let mut second = Running(place.shell(&script).spawn().unwrap());
        until("the second program to start", || mark.exists());
        first.signal(signal);
        drop(first);
        // A third finds a scheduler again.
        assert_eq!(place.shell("exit 5").status().unwrap().code(), Some(5));
        assert_eq!(second.0.wait().unwrap().code(), Some(0));
        fs::remove_file(&mark).unwrap();
        fs::remove_file(place.file("leader-started")).unwrap();
    }
}

#[test]
fn a_stopped_leader_leaves_the_others_a_scheduler() {
    let place = Place::new();
    let pid = place.file("pid");
    let mut terminal = Terminal::open(&place.home());
    let script = format!("echo $$ > {}; exec sleep 100", pid.display());
    terminal.type_line(&format!("$COPLACE run -q -- sh -c '{script}'"));
    let program = number_in(&pid);
    terminal.type_control(b'Z');
    terminal.expect("Stopped");
    // One that nobody answers says so, and one that is answered says how it ended.
    let output = place.run(&[], &["sh", "-c", "exit 6"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(6) && !stderr.contains("runs as without coplace"), "{stderr}");
    terminal.type_line("fg");
    until("the program to run again", || stat_of(program) == Some('S'));
    terminal.puts_in_front(program);
    terminal.type_control(b'C');
    terminal.type_line("echo status=$?");
    terminal.expect("status=130");
}

#[test]
fn the_last_line_and_json_report_the_run_and_quiet_is_quiet() {
    let place = Place::new();
    let json = place.file("result.json");
    let output =
        place.run(&["--name", "short", "--json", json.to_str().unwrap()], &["sh", "-c", "exit 4"]).output();
    let output = output.unwrap();
    let line = String::from_utf8_lossy(&output.stderr).into_owned();
    let seconds = line.strip_prefix("coplace: short ").and_then(|rest| rest.split_once(' ')).map(|(s, _)| s);
    assert!(seconds.is_some_and(|s| s.starts_with(|c: char| c.is_ascii_digit())), "{line}");
    assert_eq!(line.lines().count(), 1, "{line}");
    let result: serde_json::Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert_eq!((result["name"].as_str(), result["exit_status"].as_i64()), (Some("short"), Some(4)));
    assert!(result["account"].is_object() && result["signal"].is_null());
    let output = place.run(&["-q"], &["true"]).output().unwrap();
    assert!(output.stderr.is_empty() && output.stdout.is_empty());
}

#[test]
fn without_a_home_a_program_runs_as_without_coplace() {
    let place = Place::new();
    let file = place.file("file");
    fs::write(&file, "").unwrap();
    let output =
        place.run(&[], &["sh", "-c", "echo ran; exit 8"]).env("COPLACE_RUNTIME_DIR", &file).output().unwrap();
    assert_eq!((text(&output).as_str(), output.status.code()), ("ran\n", Some(8)));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.lines().count() == 1 && message.contains(file.to_str().unwrap()), "{message}");
}

#[test]
fn nothing_is_left_behind_when_all_have_ended() {
    let place = Place::new();
    place.shell("exit 0").status().unwrap();
    let left = |directory: &str| fs::read_dir(place.home().join(directory)).unwrap().count();
    assert_eq!((left("apps"), left("pages")), (0, 0));
    assert!(!place.home().join("socket").exists() && !place.home().join("lease").exists());
    // The guard goes when there is nothing left to guard: its lock is free again.
    let lock = fs::File::open(place.home().join("guard.lock")).unwrap();
    until("the guard to go", || {
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_ok()
    });
}

#[test]
fn an_ordinary_user_needs_no_rights_and_no_set_up() {
    if !rustix::process::geteuid().is_root() {
        return coplace_skipped::skipped_here("the other tests run as an ordinary user already");
    }
    // A user whom nobody is.
    const SOMEBODY: u32 = 54_331;
    let place = Place::new();
    std::os::unix::fs::chown(place.0.path(), Some(SOMEBODY), Some(SOMEBODY)).unwrap();
    let mut command = place.run(&[], &["id", "-u"]);
    command
        .env_remove("COPLACE_RUNTIME_DIR")
        .env("XDG_RUNTIME_DIR", place.0.path())
        .env("HOME", "/nonexistent");
    let output =
        command.env_remove("XDG_CACHE_HOME").uid(SOMEBODY).gid(SOMEBODY).current_dir("/").output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((text(&output).as_str(), output.status.code()), ("54331\n", Some(0)), "{message}");
    assert!(message.starts_with("coplace: id ") && message.lines().count() == 1, "{message}");
    let home = Path::new("/tmp/coplace-54331");
    assert!(home.join("apps").exists() && !place.file("coplace").exists());
    fs::remove_dir_all(home).unwrap();
}
