//! A machine that this one is not, under QEMU: `tests/guest/boot` drives it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::top;

/// How long anything may take in a guest that emulates eight CPUs on a machine that is busy.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// A guest that runs. It ends with the test, however that ends.
pub struct Guest {
    boot: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    sessions: u32,
    is_lost_to_emulation: bool,
}

impl Guest {
    /// Boots one of the machines of `tests/guest/boot`, or tells why that cannot be done here.
    /// `tests` are test programs of the workspace that are to run in there, as `/tests/NAME`, and `kept` are other
    /// programs and libraries, which go in with their symbols.
    pub fn boot(machine: &str, tests: &[&str], kept: &[PathBuf]) -> Result<Guest, String> {
        static BUILT: OnceLock<()> = OnceLock::new();
        BUILT.get_or_init(|| {
            let made = Command::new("make").args(["--quiet", "guest"]).current_dir(top()).output();
            let made = made.unwrap_or_else(|error| panic!("make guest: {error}"));
            assert!(made.status.success(), "make guest: {}", String::from_utf8_lossy(&made.stderr));
        });
        let errors = File::create(top().join(format!("build/guest/boot-{machine}.err")));
        let mut boot = Command::new(top().join("tests/guest/boot"));
        boot.args(tests.iter().map(|name| format!("--with={name}={}", test_program(name))));
        let name = |path: &PathBuf| path.file_name().expect("it is a file").to_string_lossy().into_owned();
        boot.args(kept.iter().map(|path| format!("--keep={}={}", name(path), path.display())));
        if let Some(path) = breathe_llvm() {
            boot.arg(format!("--with=breathe-llvm={}", path.display()));
        }
        boot.args([machine, "--serve"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        boot.stderr(errors.expect("make guest made the directory"));
        let mut boot = match boot.spawn() {
            Ok(boot) => boot,
            Err(error) => return Err(format!("tests/guest/boot needs python3: {error}")),
        };
        let (requests, answers) = (boot.stdin.take().expect("piped"), boot.stdout.take().expect("piped"));
        let mut guest = Guest {
            boot,
            requests,
            answers: BufReader::new(answers),
            sessions: 0,
            is_lost_to_emulation: false,
        };
        match guest.answer(machine) {
            answer if answer["ready"] == true => Ok(guest),
            answer => Err(answer["missing"].as_str().unwrap_or("no reason given").to_owned()),
        }
    }

    /// The one guest that all tests of a file share; where it cannot be booted, the calling test counts as skipped.
    pub fn shared(
        slot: &'static OnceLock<Mutex<Result<Guest, String>>>,
        boot: impl FnOnce() -> Result<Guest, String>,
    ) -> Option<MutexGuard<'static, Result<Guest, String>>> {
        let guest = slot.get_or_init(|| Mutex::new(boot()));
        let guest = guest.lock().unwrap_or_else(PoisonError::into_inner);
        match guest.as_ref() {
            Ok(_) => Some(guest),
            Err(why) => {
                crate::skipped_here(why);
                None
            }
        }
    }

    fn answer(&mut self, request: &str) -> Value {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("boot prints text");
        let answer: Value = serde_json::from_str(&line).unwrap_or_else(|_| {
            let status = self.boot.wait();
            panic!("the guest is gone ({status:?}) at: {request}\nbuild/guest/boot-*.err and console-*.log tell more")
        });
        if let Some(why) = answer["gone"].as_str() {
            self.is_lost_to_emulation = answer["by_emulation"] == true;
            panic!("the guest is gone at: {request}\n{why}");
        }
        answer
    }

    /// Whether its kernel died, and QEMU is to blame: what it was asked meanwhile says nothing.
    pub fn is_lost_to_emulation(&self) -> bool {
        self.is_lost_to_emulation
    }

    /// Runs a shell script in the guest: its exit status and what it printed.
    pub fn try_sh(&mut self, script: &str) -> (i64, String) {
        let request = json!({ "run": script, "within_s": PATIENCE.as_secs() });
        writeln!(self.requests, "{request}").expect("the guest listens");
        let answer = self.answer(script);
        let output = answer["output"].as_str().expect("an answer has an output").to_owned();
        (answer["status"].as_i64().expect("an answer has a status"), output)
    }

    /// The same for a script that must succeed.
    pub fn sh(&mut self, script: &str) -> String {
        let (status, output) = self.try_sh(script);
        assert_eq!(status, 0, "{script}\n{output}");
        output
    }

    /// A daemon with these options, in a home of its own. What runs beside its programs is an emulated
    /// machine's overhead, which comes and goes: it is to plan as if that were not there.
    pub fn session(&mut self, options: &str) -> Session<'_> {
        self.sessions += 1;
        let home = format!("/run/s{}", self.sessions);
        let mut session = Session { guest: self, home, programs: BTreeMap::new() };
        session.sh(&format!(
            "coplace daemon --unmanaged ignore {options} > $OUT/daemon 2>&1 & echo $! > $OUT/daemon.pid"
        ));
        session.until("the daemon answers", |session| {
            session.json("coplace status --json").filter(|status| status["role"] == "daemon")
        });
        session
    }
}

/// `breathe` built with LLVM's OpenMP runtime, in the guest as `/tests/breathe-llvm`; `None` where there is no
/// compiler that does.
pub fn breathe_llvm() -> Option<PathBuf> {
    Some(top().join("build/guest/breathe-llvm")).filter(|path| path.exists())
}

/// A test program of the workspace, built as `cargo test --workspace` builds it.
fn test_program(name: &str) -> String {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "--workspace", "--quiet", "--no-run", "--message-format=json", "--test", name]);
    let output = cargo.current_dir(top()).output().unwrap_or_else(|error| panic!("{cargo:?}: {error}"));
    assert!(output.status.success(), "{cargo:?}: {}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    let messages = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let found = messages.filter(|message| message["target"]["name"] == name);
    let found = found.filter_map(|message| message["executable"].as_str().map(str::to_owned)).next_back();
    found.unwrap_or_else(|| panic!("{cargo:?} built no {name}"))
}

/// A daemon that often does not answer is broken, however slow the machine is.
const MOST_STARTS_AGAIN: u32 = 5;

/// Where the guest has the groups of all programs: `<scheduler>/<program>` below it.
const GROUPS: &str = "/sys/fs/cgroup/coplace";

/// What the guest's kernel says of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sight {
    /// `Cpus_allowed_list` of the first thread of its first process; empty where it has no process.
    pub cpus: String,
    /// `Mems_allowed_list` of that thread.
    pub mems: String,
    /// Whether the group's `cgroup.freeze` is 1.
    pub frozen: bool,
    /// Whether the group's `cpu.idle` is 1.
    pub idle: bool,
    /// The group's `cgroup.procs`.
    pub pids: Vec<u32>,
}

/// A daemon in the guest and the programs that came to it.
pub struct Session<'a> {
    guest: &'a mut Guest,
    home: String,
    /// How each program was started, and how often again.
    programs: BTreeMap<String, (String, u32)>,
}

impl Session<'_> {
    fn script(&self, script: &str) -> String {
        let home = &self.home;
        format!("export COPLACE_RUNTIME_DIR={home} OUT={home}.out; mkdir -p $OUT; {script}")
    }

    /// Runs a shell script that must succeed, and returns what it printed. The session's directory for output
    /// is `$OUT` there.
    pub fn sh(&mut self, script: &str) -> String {
        let script = self.script(script);
        self.guest.sh(&script)
    }

    /// Changes the policy; in an emulated machine the daemon may not answer at once.
    pub fn set_policy(&mut self, policy: &str) {
        let script = self.script(&format!("coplace policy set {policy}"));
        self.until("the policy is set", |session| (session.guest.try_sh(&script).0 == 0).then_some(()));
    }

    /// What a command prints as JSON, if it ends well.
    pub fn json(&mut self, command: &str) -> Option<Value> {
        let script = self.script(command);
        let (status, output) = self.guest.try_sh(&script);
        (status == 0).then(|| serde_json::from_str(&output).expect("it prints JSON"))
    }

    /// Starts a program by `coplace run`; `options` go before the command.
    pub fn start(&mut self, name: &str, options: &str, command: &str) {
        // Threads that wait for their next region hardly spin: the guest's CPUs are few in truth.
        let script = format!(
            "GOMP_SPINCOUNT=200 coplace run --name {name} {options} -- {command} > $OUT/{name} 2> $OUT/{name}.err & \
             echo $! > $OUT/{name}.pid"
        );
        self.sh(&script);
        self.programs.insert(name.to_owned(), (script, 0));
    }

    /// Starts a program once more that runs without coplace, because in an emulated machine that has no CPU time
    /// the daemon did not answer it within the seconds that a `run` waits.
    fn start_unheard_again(&mut self, name: &str) {
        let unheard = self.script(&format!(
            "grep -q 'does not answer' $OUT/{name}.err && kill -TERM $(cat $OUT/{name}.pid)"
        ));
        if self.guest.try_sh(&unheard).0 == 0 {
            let (script, again) = self.programs.get_mut(name).expect("it was started");
            *again += 1;
            assert!(*again <= MOST_STARTS_AGAIN, "{name} was not answered again and again");
            println!("{name} was not answered, and is started again");
            let script = script.clone();
            self.sh(&script);
        }
    }

    /// What the kernel says of every program that has a group. It takes one small process in the
    /// guest, whose CPUs are few in truth.
    pub fn sample(&mut self) -> BTreeMap<String, Sight> {
        let files = ["cgroup.freeze", "cpu.idle"];
        let files = files.map(|file| format!("{GROUPS}/*/*/{file}")).join(" ");
        let mut sights = BTreeMap::new();
        let script = format!(
            "grep -s '' {files} {GROUPS}/*/*/cgroup.procs
             for group in {GROUPS}/*/*; do
                read -r pid < $group/cgroup.procs &&
                    for may in cpus:Cpus mems:Mems; do
                        echo $group/${{may%:*}}:$(grep -s ${{may#*:}}_allowed_list /proc/$pid/status | cut -f 2)
                    done
             done 2> /dev/null; true"
        );
        for line in self.sh(&script).lines() {
            let Some((path, value)) = line.split_once(':') else { continue };
            let mut parts = path.rsplit('/');
            let (Some(file), Some(name)) = (parts.next(), parts.next()) else { continue };
            let sight: &mut Sight = sights.entry(name.to_owned()).or_default();
            match file {
                // Of its first thread; where others have other CPUs, `masks` tells.
                "cpus" => sight.cpus = value.into(),
                "mems" => sight.mems = value.into(),
                "cgroup.freeze" => sight.frozen = value == "1",
                "cpu.idle" => sight.idle = value == "1",
                _ => sight.pids.extend(value.parse::<u32>()),
            }
        }
        sights
    }

    /// The masks of a program's threads.
    pub fn masks(&mut self, sight: &Sight) -> Vec<String> {
        let files = sight.pids.iter().map(|pid| format!("/proc/{pid}/task/*/status"));
        let files: Vec<String> = files.collect();
        let lines = self.sh(&format!("grep -sh Cpus_allowed_list {}; true", files.join(" ")));
        lines.lines().filter_map(|line| line.split_whitespace().nth(1)).map(str::to_owned).collect()
    }

    /// Asks again and again for what must come soon.
    pub fn until<T>(&mut self, what: &str, mut get: impl FnMut(&mut Self) -> Option<T>) -> T {
        let since = Instant::now();
        loop {
            if let Some(got) = get(self) {
                return got;
            }
            assert!(since.elapsed() < PATIENCE, "not after {PATIENCE:?}: {what}; {}", self.traces());
            // Looking takes CPU time in the guest.
            std::thread::sleep(Duration::from_millis(700));
        }
    }

    /// Waits until the kernel reports what must be; every thread has its program's CPUs then.
    pub fn until_all(
        &mut self,
        what: &str,
        holds: impl Fn(&BTreeMap<String, Sight>) -> bool,
    ) -> BTreeMap<String, Sight> {
        self.until(what, |session| {
            let sights = session.sample();
            let missing = session.programs.keys().filter(|name| !sights.contains_key(*name));
            let missing: Vec<String> = missing.cloned().collect();
            missing.iter().for_each(|name| session.start_unheard_again(name));
            if !missing.is_empty() || !holds(&sights) {
                return None;
            }
            let confined = |sight: &Sight| {
                let masks = session.masks(sight);
                !masks.is_empty() && masks.iter().all(|mask| *mask == sight.cpus)
            };
            sights.values().all(confined).then_some(sights)
        })
    }

    /// The CPUs of each program, sorted.
    pub fn places(sights: &BTreeMap<String, Sight>) -> Vec<&str> {
        let mut places: Vec<&str> = sights.values().map(|sight| sight.cpus.as_str()).collect();
        places.sort_unstable();
        places
    }

    /// What everybody said, for the message of a failed test.
    pub fn traces(&mut self) -> String {
        let script = self.script("head -v -n 50 $OUT/*; coplace explain | tail -n 40");
        self.guest.try_sh(&script).1
    }

    /// Ends every program by SIGTERM, then the daemon: each must have verified its result, and
    /// nothing of coplace may be left.
    pub fn end(mut self) {
        for name in self.programs.clone().into_keys() {
            self.sh(&format!("kill -TERM $(cat $OUT/{name}.pid) 2> /dev/null; true"));
        }
        for name in self.programs.clone().into_keys() {
            self.until(&format!("{name} has ended"), |session| {
                let alive =
                    session.sh(&format!("kill -0 $(cat $OUT/{name}.pid) 2> /dev/null && echo alive; true"));
                alive.is_empty().then_some(())
            });
            let printed = self.sh(&format!("cat $OUT/{name}"));
            assert_eq!(printed.lines().last(), Some("VERIFIED"), "{name}: {printed}; {}", self.traces());
        }
        self.sh("kill -TERM $(cat $OUT/daemon.pid) 2> /dev/null; true");
        self.until("the groups are gone", |session| {
            session.sh("ls -d /sys/fs/cgroup/coplace 2> /dev/null; true").is_empty().then_some(())
        });
    }
}

impl Drop for Session<'_> {
    /// Nothing of a session whose test failed is left to the next one.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let script = format!(
            "for group in {GROUPS}/*/*; do echo 1 > $group/cgroup.kill; done; cat $OUT/*.pid | xargs kill -9; sleep 3"
        );
        let script = self.script(&script);
        // A guest that is gone is what the test has failed on: a second panic would hide it.
        let _ = catch_unwind(AssertUnwindSafe(|| self.guest.try_sh(&script)));
    }
}
