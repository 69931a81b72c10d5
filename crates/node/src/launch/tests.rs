use super::*;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

fn launch(command: &[&str]) -> Launch {
    Launch { command: command.iter().map(OsString::from).collect(), ..Launch::default() }
}

/// What the command wrote to its standard output.
fn output(mut launch: Launch, additions: &[(&str, &str)]) -> (String, Ended) {
    let (read, write) = io::pipe().unwrap();
    launch.stdout = Some(write.into());
    let additions = additions.iter().map(|(name, value)| (name.into(), value.into())).collect();
    let mut running = Held::spawn(launch).unwrap().let_go(&additions).unwrap();
    let mut text = String::new();
    { read }.read_to_string(&mut text).unwrap();
    (text, running.wait().unwrap())
}

#[test]
fn a_held_program_does_nothing_until_let_go_and_reports_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("mark");
    let script = format!("echo > {}; exit 7", mark.display());
    let held = Held::spawn(launch(&["sh", "-c", &script])).unwrap();
    assert!(identity::is_alive(held.process()));
    std::thread::sleep(Duration::from_millis(30));
    assert!(!mark.exists());
    let process = held.process();
    let mut running = held.let_go(&BTreeMap::new()).unwrap();
    assert_eq!(running.process(), process);
    assert_eq!(running.wait().unwrap(), Ended::Status(7));
    assert_eq!(running.try_wait().unwrap(), Some(Ended::Status(7)));
    assert!(mark.exists());
}

#[test]
fn a_held_program_that_is_dropped_never_runs() {
    let held = Held::spawn(launch(&["sleep", "60"])).unwrap();
    let process = held.process();
    drop(held);
    assert!(!identity::is_alive(process));
}

#[test]
fn variables_added_last_win_and_the_others_pass_through() {
    let mut one = launch(&["sh", "-c", "echo $COPLACE_TEST_A$COPLACE_TEST_B$COPLACE_TEST_C"]);
    one.environment = [("COPLACE_TEST_A".into(), "1".into()), ("COPLACE_TEST_B".into(), "2".into())].into();
    let (text, ended) = output(one, &[("COPLACE_TEST_B", "3"), ("COPLACE_TEST_C", "=4")]);
    assert_eq!((text.as_str(), ended), ("13=4\n", Ended::Status(0)));
}

#[test]
fn a_launched_program_gets_its_directory_and_arguments() {
    let dir = tempfile::tempdir().unwrap();
    let mut one = launch(&["sh", "-c", "pwd -P; printf '%s.' \"$@\"", "sh", "a b", "", "ü"]);
    one.directory = Some(dir.path().to_owned());
    let expected = format!("{}\na b..ü.", dir.path().canonicalize().unwrap().display());
    assert_eq!(output(one, &[]).0, expected);
}

#[test]
fn launch_errors_distinguish_missing_forbidden_and_directory() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str, mode: u32| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path.display().to_string()
    };
    let error = |program: &str| {
        let error = match Held::spawn(launch(&[program])) {
            Ok(held) => held.let_go(&BTreeMap::new()).unwrap_err(),
            Err(error) => error,
        };
        (error.exit_status(), error.to_string())
    };
    let (status, text) = error("no-such-program-anywhere");
    assert!(status == 127 && text.contains("not found in PATH (/"), "{text}");
    let (status, text) = error("/no/such/program");
    assert!(status == 127 && text.contains("not found (/no/such/program)"), "{text}");
    let (status, text) = error(&dir.path().display().to_string());
    assert!(status == 126 && text.contains("directory"), "{text}");
    let (status, text) = error(&file("plain", "text", 0o644));
    assert!(status == 126 && text.contains("plain"), "{text}");
    let (status, text) = error(&file("script", "#!/no/such/interpreter\n", 0o755));
    assert!(status == 126 && text.contains("interpreter"), "{text}");
    assert_eq!(error("").0, 127);
    let spawned = Held::spawn(Launch { directory: Some("/no/such".into()), ..launch(&["true"]) });
    let spawned = spawned.unwrap_err();
    assert!(spawned.exit_status() == 125 && spawned.to_string().contains("/no/such"));
    assert!(matches!(Held::spawn(launch(&[])), Err(LaunchError::Empty)));
    assert!(matches!(Held::spawn(launch(&["true", "a\0b"])), Err(LaunchError::ZeroByte { .. })));
}

#[test]
fn a_script_without_interpreter_line_runs_in_the_shell() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("script");
    // Written by another process: a test beside this one that forks while we write would keep it busy.
    let write = r#"echo 'echo "$1"' > "$0" && chmod 755 "$0""#;
    assert!(std::process::Command::new("sh").args(["-c", write]).arg(&path).status().unwrap().success());
    assert_eq!(output(launch(&[path.to_str().unwrap(), "x y"]), &[]).0, "x y\n");
}

#[test]
fn a_held_program_keeps_no_private_descriptor_of_ours_open() {
    let (mut read, write) = io::pipe().unwrap();
    let held = Held::spawn(launch(&["sleep", "60"])).unwrap();
    drop(write);
    // Ends at once if the held process has closed its copy; the test would hang for a minute else.
    let began = Instant::now();
    assert_eq!(read.read(&mut [0]).unwrap(), 0);
    assert!(began.elapsed() < Duration::from_secs(10));
    drop(held);
}

#[test]
fn a_program_finds_the_signal_dispositions_of_our_own_start() {
    // The test runner ignores SIGPIPE through the Rust runtime; nobody else does.
    let (text, _) = output(launch(&["sh", "-c", "grep -E 'Sig(Ign|Blk)' /proc/self/status"]), &[]);
    let masks: Vec<u64> = text
        .lines()
        .map(|line| u64::from_str_radix(line.split_ascii_whitespace().nth(1).unwrap(), 16).unwrap())
        .collect();
    let pipe = 1 << (libc::SIGPIPE - 1);
    assert_eq!(masks[0], 0, "blocked: {text}");
    assert_eq!(masks[1] & pipe != 0, inherited::was_ignored(libc::SIGPIPE), "{text}");
}

#[test]
fn a_stopped_program_reports_its_stop_signal_while_stopped() {
    let mut running = Held::spawn(launch(&["sleep", "60"])).unwrap().let_go(&BTreeMap::new()).unwrap();
    assert_eq!(running.stop_signal(), None);
    // In a process group that nobody controls SIGTSTP stops nothing.
    running.signal(libc::SIGSTOP);
    while running.stop_signal() != Some(libc::SIGSTOP) {
        std::thread::sleep(Duration::from_millis(1));
    }
    running.signal(libc::SIGCONT);
    while running.stop_signal().is_some() {
        std::thread::sleep(Duration::from_millis(1));
    }
    running.signal(libc::SIGTERM);
    assert_eq!(running.wait().unwrap(), Ended::Signal(libc::SIGTERM));
}

#[test]
fn a_held_program_starts_by_itself_when_its_guardian_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("mark");
    let mut one = launch(&["sh", "-c", "echo > mark"]);
    one.directory = Some(dir.path().to_owned());
    let held = Held::spawn(one).unwrap();
    // What a guardian's death does to its child: the pipe ends, and nobody kills.
    let Held { mut running, go, .. } = held;
    running.killed_by_drop = false;
    drop(go);
    assert_eq!(running.wait().unwrap(), Ended::Status(0));
    assert!(mark.exists());
}

/// The CPUs that a program finds whose user gave it `initial` and whose held process was left with `left`.
fn cpus_at_start(initial: &str, left: &str) -> String {
    let cpus = |text: &str| text.parse::<topology::CpuSet>().unwrap();
    // In a thread of its own: no other test is to have these CPUs.
    std::thread::scope(|scope| {
        let run = scope.spawn(|| {
            linux::affinity::set(rustix::thread::gettid().as_raw_nonzero().get() as u32, &cpus(initial))
                .unwrap();
            let (read, write) = io::pipe().unwrap();
            let mut launch = launch(&["grep", "Cpus_allowed_list", "/proc/self/status"]);
            launch.stdout = Some(write.into());
            let held = Held::spawn(launch).unwrap();
            linux::affinity::set(held.process().pid, &cpus(left)).unwrap();
            held.let_go(&BTreeMap::new()).unwrap().wait().unwrap();
            let mut text = String::new();
            { read }.read_to_string(&mut text).unwrap();
            text.trim_start_matches("Cpus_allowed_list:").trim().to_owned()
        });
        run.join().unwrap()
    })
}

#[test]
fn a_program_starts_only_on_cpus_that_its_user_gave() {
    let own: Vec<u32> = linux::affinity::get(std::process::id()).unwrap().iter().collect();
    let [one, other, ..] = own[..] else {
        return coplace_skipped::skipped_here("there is only one CPU");
    };
    let both = if other == one + 1 { format!("{one}-{other}") } else { format!("{one},{other}") };
    assert_eq!(cpus_at_start(&one.to_string(), &both), one.to_string(), "widened behind its back");
    assert_eq!(cpus_at_start(&both, &other.to_string()), other.to_string(), "placed by a scheduler");
}

#[test]
fn an_exec_error_is_explained_from_the_programs_directory() {
    let dir = tempfile::tempdir().unwrap();
    // Where the tests run `src` is a directory, and there is no `tool`.
    fs::write(dir.path().join("src"), "text").unwrap();
    fs::create_dir(dir.path().join("tool")).unwrap();
    let error = |program: &str| {
        let launch = Launch { directory: Some(dir.path().to_owned()), ..launch(&[program]) };
        Held::spawn(launch).unwrap_err().to_string()
    };
    assert!(error("./tool").ends_with("./tool: it is a directory"), "{}", error("./tool"));
    assert!(!error("./src").contains("directory"), "{}", error("./src"));
}
