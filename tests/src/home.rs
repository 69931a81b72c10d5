//! A scheduler's home for one test.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::{coplace, patience, processes, programs, top};

const TOKEN: &str = "COPLACE_TEST";

/// So many directories lie between the top of the control groups and those of a user's scope.
const DEEPEST: u32 = 7;

/// How long a test waits for what comes soon on a machine that is neither slow nor busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Its directory, its mark in the environment of all that is started in it, and the lock that
/// keeps the heavy tests from disturbing one another. Dropping it ends everything.
pub struct Home {
    directory: tempfile::TempDir,
    mark: String,
    user: Option<u32>,
    _lock: File,
}

impl Home {
    /// Waits until no other test of this checkout has a home, and makes the directory.
    pub fn new() -> Home {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let lock = File::create(lock_path()).expect("the lock can be made");
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).expect("the lock can be taken");
        let directory =
            tempfile::Builder::new().prefix("coplace-").tempdir().expect("a directory can be made");
        let mark = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        // What other programs of the machine use is no matter of most tests.
        let config = directory.path().join("config.toml");
        fs::write(config, "unmanaged = 'ignore'\n").expect("the directory can be written");
        fs::create_dir(directory.path().join("out")).expect("the directory can be written");
        Home { directory, mark, user: None, _lock: lock }
    }

    /// The home of a user whom nobody is, as whom everything in it runs. `None` where this process cannot
    /// become another.
    pub fn of(user: u32) -> Option<Home> {
        let tried = Command::new("true").uid(user).gid(user).status();
        if !tried.is_ok_and(|status| status.success()) {
            return None;
        }
        let mut home = Home::new();
        for path in [home.path(), &home.path().join("out")] {
            chown(path, Some(user), Some(user)).expect("who becomes another user may give files away");
        }
        home.user = Some(user);
        Some(home)
    }

    /// A program where this home's user finds it: the checkout may be somebody's alone.
    pub fn program(&self, path: &Path) -> PathBuf {
        if self.user.is_none() {
            return path.to_owned();
        }
        let copy = self.path().join(path.file_name().expect("a program has a name"));
        if !copy.exists() {
            fs::copy(path, &copy).expect("it can be copied");
            fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).expect("it is ours");
        }
        copy
    }

    /// Its temporary directory, which is removed with it.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    fn mark(&self) -> String {
        format!("{TOKEN}={}", self.mark)
    }

    /// A command in this home, without anything that this process's environment would bring in.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        let foreign = std::env::vars_os().map(|(name, _)| name).filter(|name| {
            let name = name.to_string_lossy();
            name.starts_with("OMP_")
                || name.starts_with("GOMP_")
                || name.starts_with("COPLACE_")
                || name == "LD_PRELOAD"
        });
        foreign.for_each(|name| {
            command.env_remove(name);
        });
        command
            .env(TOKEN, &self.mark)
            .env("COPLACE_RUNTIME_DIR", self.path().join("h"))
            .env("COPLACE_CONFIG", self.path().join("config.toml"))
            .env("XDG_CACHE_HOME", self.path().join("cache"))
            .current_dir(self.path())
            .stdin(Stdio::null());
        if let Some(user) = self.user {
            command.env("HOME", self.path()).uid(user).gid(user);
        }
        command
    }

    /// The `coplace` binary under test, as a command in this home.
    pub fn coplace(&self) -> Command {
        self.command(self.program(&coplace()))
    }

    /// Starts a command whose output goes to files, so that nobody waits for its end.
    pub fn start(&self, name: &str, command: &mut Command) -> Child {
        let file = |ending: &str| File::create(self.output(name, ending)).expect("the home can be written");
        let child = command.stdout(file("out")).stderr(file("err")).spawn();
        let child = child.unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Child { child, name: name.to_owned(), out: self.output(name, "out"), err: self.output(name, "err") }
    }

    fn output(&self, name: &str, ending: &str) -> PathBuf {
        self.path().join("out").join(format!("{name}.{ending}"))
    }

    /// Starts `coplace daemon`, and waits until it answers.
    pub fn daemon(&self, options: &[&str]) -> Child {
        let daemon = self.start("daemon", self.coplace().arg("daemon").args(options));
        self.until("the daemon answers", || self.status().is_some_and(|status| status["role"] == "daemon"));
        daemon
    }

    /// What `coplace status --json` prints; `None` where no scheduler runs.
    pub fn status(&self) -> Option<Value> {
        self.json(&["status", "--json"])
    }

    /// The JSON that a command prints, if it ends well.
    pub fn json(&self, arguments: &[&str]) -> Option<Value> {
        let output = self.ask(arguments);
        output.status.success().then(|| serde_json::from_slice(&output.stdout).expect("it prints JSON"))
    }

    /// Runs a command that asks the scheduler something, again where a machine that stood still for
    /// most of a second kept that one from answering.
    pub fn ask(&self, arguments: &[&str]) -> Output {
        let since = Instant::now();
        loop {
            let output = self.coplace().args(arguments).output().expect("coplace can be started");
            let unheard = String::from_utf8_lossy(&output.stderr).contains("does not answer");
            if !unheard || since.elapsed() > patience(PATIENCE) {
                return output;
            }
        }
    }

    /// A program in the scheduler's status.
    pub fn app(&self, name: &str) -> Option<Value> {
        let status = self.status()?;
        status["apps"].as_array()?.iter().find(|app| app["id"] == name).cloned()
    }

    /// Runs `coplace mix` on this text, to its end.
    pub fn mix(&self, text: &str, options: &[&str]) -> Mix {
        let file = self.path().join("mix.toml");
        let (json, output) = (self.path().join("mix.json"), self.path().join("out"));
        fs::write(&file, text).expect("the home can be written");
        let _ = fs::remove_file(&json);
        let mut command = self.coplace();
        command.arg("mix").arg(&file).arg("--json").arg(&json).arg("--output").arg(&output);
        command.args(["--quiet", "--keep-going"]).args(options);
        let mut child = self.start("mix", &mut command);
        let status = child.ended_within(Duration::from_secs(300));
        let json =
            fs::read(&json).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or(Value::Null);
        Mix { status, json, stderr: child.stderr(), output }
    }

    /// Waits until something holds that must hold soon.
    pub fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let since = Instant::now();
        while !holds() {
            assert!(
                since.elapsed() < patience(PATIENCE),
                "not after {:?}: {what}; {}\n{}",
                patience(PATIENCE),
                self.traces(),
                self.processes().into_iter().map(processes::standing_alone).collect::<String>()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Everything that was started here and lives.
    pub fn processes(&self) -> Vec<u32> {
        processes::with_environment(&self.mark())
    }

    /// Those of them that run one of these programs.
    pub fn running(&self, program: &str) -> Vec<u32> {
        self.processes()
            .into_iter()
            .filter(|pid| processes::program(*pid).as_deref() == Some(program))
            .collect()
    }

    /// What everybody here said on stderr, for the message of a failed test.
    pub fn traces(&self) -> String {
        let Ok(entries) = fs::read_dir(self.path().join("out")) else { return String::new() };
        let mut all = String::new();
        for path in entries.flatten().map(|entry| entry.path()) {
            let text = fs::read_to_string(&path).unwrap_or_default();
            if !text.trim().is_empty() {
                all += &format!(
                    "\n[{}]\n{}",
                    path.file_name().unwrap_or_default().to_string_lossy(),
                    text.trim()
                );
            }
        }
        all
    }

    /// cgroups of this home's scheduler that are still there: `coplace-` and a hash of its path
    /// (FNV-1a, folded), the name that docs/formats documents.
    pub fn groups(&self) -> Vec<PathBuf> {
        let path = self.path().join("h").canonicalize().unwrap_or_else(|_| self.path().join("h"));
        let bytes = path.as_os_str().as_encoded_bytes().iter();
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        let name = format!("coplace-{:08x}", (hash ^ hash >> 32) as u32);
        let mut found = Vec::new();
        search(Path::new("/sys/fs/cgroup"), &name, DEEPEST, &mut found);
        found
    }

    /// Nothing of a home whose programs have ended is left: no process, no cgroup.
    pub fn is_left_clean(&self) {
        self.until("every process of this home has ended", || self.processes().is_empty());
        let members = |group: &Path| fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        let below = |group: &PathBuf| -> Vec<PathBuf> {
            let entries = fs::read_dir(group).into_iter().flatten().flatten();
            entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
        };
        let left: Vec<PathBuf> =
            self.groups().into_iter().flat_map(|group| [below(&group), vec![group]].concat()).collect();
        let left: Vec<(String, &PathBuf)> = left.iter().map(|group| (members(group), group)).collect();
        assert!(left.is_empty(), "groups are left, with these processes: {left:?}; {}", self.traces());
    }
}

/// In the checkout, or where there is none in this user's own directory.
fn lock_path() -> PathBuf {
    const NAME: &str = "whole-system-tests.lock";
    match programs() {
        Some(_) => std::env::temp_dir().join(NAME),
        None => {
            fs::create_dir_all(top().join("target")).expect("target/ can be made");
            top().join("target").join(NAME)
        }
    }
}

impl Default for Home {
    fn default() -> Self {
        Home::new()
    }
}

fn search(directory: &Path, name: &str, depth: u32, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        match entry.file_name().to_str() == Some(name) {
            true => found.push(entry.path()),
            false if depth > 0 => search(&entry.path(), name, depth - 1, found),
            false => {}
        }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        for _ in 0..100 {
            let left = self.processes();
            if left.is_empty() {
                break;
            }
            left.into_iter().for_each(processes::end);
            std::thread::sleep(Duration::from_millis(20));
        }
        // Groups that a failed test left behind must not disturb the next one, nor keep anybody frozen now that the
        // guard has been ended with everything else.
        for group in self.groups() {
            for child in fs::read_dir(&group).into_iter().flatten().flatten() {
                let _ = fs::write(child.path().join("freezer.state"), "THAWED");
                let _ = fs::remove_dir(child.path());
            }
            let _ = fs::remove_dir(group);
        }
    }
}

/// A process that a test started; its output lies in files.
pub struct Child {
    child: std::process::Child,
    name: String,
    out: PathBuf,
    err: PathBuf,
}

impl Child {
    /// Of the process itself, such as `coplace run`, not of a program below it.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to it alone, not to what it has started.
    pub fn signal(&self, number: i32) {
        processes::signal(self.pid(), number);
    }

    /// How it has ended; `None` while it runs.
    pub fn has_ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("it is our child")
    }

    /// Waits for its end. Panics, with all that it printed, if that takes longer than `most`.
    pub fn ended_within(&mut self, most: Duration) -> ExitStatus {
        let most = patience(most);
        let since = Instant::now();
        loop {
            if let Some(status) = self.has_ended() {
                return status;
            }
            assert!(
                since.elapsed() < most,
                "{} has not ended after {most:?}: {} {}\n{}",
                self.name,
                self.stdout(),
                self.stderr(),
                processes::standing(self.pid())
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// What it has printed so far.
    pub fn stdout(&self) -> String {
        fs::read_to_string(&self.out).unwrap_or_default()
    }

    /// What it has said on stderr so far.
    pub fn stderr(&self) -> String {
        fs::read_to_string(&self.err).unwrap_or_default()
    }

    /// Whether the last line that it printed is `VERIFIED`, by which the apps confirm their result.
    pub fn verified(&self) -> bool {
        self.stdout().lines().last() == Some("VERIFIED")
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // The home ends what still runs; here only no zombie is to be left.
        let _ = self.child.try_wait();
    }
}

/// How a `coplace mix` ended.
pub struct Mix {
    /// Of `coplace mix` itself.
    pub status: ExitStatus,
    /// What it wrote by `--json`; null where it wrote nothing.
    pub json: Value,
    /// What it said on stderr.
    pub stderr: String,
    output: PathBuf,
}

impl Mix {
    /// A program's entry in the result. Panics where there is none.
    pub fn program(&self, name: &str) -> &Value {
        let programs =
            self.json["programs"].as_array().unwrap_or_else(|| panic!("no result; {}", self.stderr));
        let found = programs.iter().find(|program| program["name"] == name);
        found.unwrap_or_else(|| panic!("no program {name} in {}", self.json))
    }

    /// Every program ended VERIFIED.
    pub fn is_verified(&self) {
        let programs =
            self.json["programs"].as_array().unwrap_or_else(|| panic!("no result; {}", self.stderr));
        for program in programs {
            assert_eq!(program["verified"], true, "{program}; {}", self.stderr);
        }
        assert!(self.status.success(), "{}; {}", self.status, self.stderr);
    }

    /// Seconds by the width of a program's place.
    pub fn widths(&self, name: &str) -> BTreeMap<u32, f64> {
        let widths = self.program(name)["widths_s"].as_object().expect("widths");
        widths
            .iter()
            .map(|(width, s)| (width.parse().expect("a width"), s.as_f64().expect("seconds")))
            .collect()
    }

    /// Every plan that was in force, in order.
    pub fn plans(&self) -> Vec<String> {
        let plans = self.json["plans"].as_array().expect("plans").iter();
        plans.map(|at| at["plan"].as_str().expect("text").to_owned()).collect()
    }

    /// What a program printed.
    pub fn printed(&self, name: &str) -> String {
        fs::read_to_string(self.output.join(format!("{name}.out"))).unwrap_or_default()
    }
}
