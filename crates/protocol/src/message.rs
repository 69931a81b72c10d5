//! The messages.

use std::collections::BTreeMap;
use std::path::PathBuf;

use plan::{Report, Speedup};
use serde::{Deserialize, Serialize};
use topology::CpuSet;
use workload::{AppId, Demand, WaitPolicy};

use crate::history::Explanation;

/// Version of the messages; both sides must speak the same.
pub const VERSION: u32 = 4;

/// Who a scheduler is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// `coplace daemon`: acts.
    Daemon,
    /// `coplace daemon --observe`: plans and logs, never acts.
    Observer,
    /// A `coplace run` or `coplace mix` that schedules for all of its user's; yields to a daemon.
    Leader,
}

/// A process that cannot be mistaken for a later one with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcessId {
    /// Process ID, as `/proc` names it.
    pub pid: u32,
    /// Field 22 of `/proc/PID/stat`.
    pub start_time_ticks: u64,
}

/// One program under coplace, as kept on disk: enough for a successor to adopt it and for a
/// guard to set it free.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppRecord {
    /// Its name: the one asked for until it is registered, then the unique one.
    pub id: AppId,
    /// User whose program it is: who registered it, as the socket says (`SO_PEERCRED`); of an attached program
    /// its real user ID.
    pub uid: u32,
    /// Root of its process tree.
    pub process: ProcessId,
    /// The `coplace run` or `mix` that started it and guards it.
    pub guardian: ProcessId,
    /// For people: what was typed.
    pub command: Vec<String>,
    /// Working directory in which it was started; of an attached program its `/proc/PID/cwd` at that time.
    pub directory: PathBuf,
    /// Directory of the preload library's pages.
    pub pages: PathBuf,
    /// CPUs that it was entitled to when it came; what it gets back.
    pub original_cpus: CpuSet,
    /// What its user asks for, with the weight of its nice value where none was stated, and no more threads
    /// than a narrow start gives it.
    pub demand: Demand,
    /// When it came, in CLOCK_MONOTONIC nanoseconds: the order that survives a change of scheduler.
    pub arrived_ns: u64,
    /// Whether it was let go (executed) already.
    pub started: bool,
    /// The defaults where an older coplace wrote the record.
    #[serde(default)]
    pub terms: Terms,
}

impl AppRecord {
    /// Whether its process has yet to execute a launcher of parallel programs.
    pub fn is_launcher_to_be(&self) -> bool {
        self.terms.launches && !self.started
    }

    /// What was decided for it when it was let go: its next scheduler is to know.
    pub fn started_with(&mut self, threads: Option<u32>, passive: Option<String>) {
        self.terms.passive = passive.or(self.terms.passive.take());
        if threads.is_some() {
            self.terms.threads = threads;
            self.demand.max_threads = threads;
        }
    }
}

/// How a program came, and what its user said about it beyond its demand.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Terms {
    /// It ran before it came under coplace, and is given back as it was.
    pub attached: bool,
    /// A narrow start: the threads that its own variables tell it to have, for good.
    pub threads: Option<u32>,
    /// Memory that it is expected to need at most, as its user says.
    pub memory_bytes: Option<u64>,
    /// CPU masks that its launcher or its runtime chose for single threads do not count.
    pub rebind: bool,
    /// How its runtimes are told to wait; `AsIs`, too, where its environment says that already.
    pub waiting: WaitPolicy,
    /// Nothing in its environment stands against a narrow start that the policy chooses.
    pub may_start_narrow: bool,
    /// Why the policy chose a narrow start; `None`: it did not.
    pub narrow: Option<String>,
    /// Why the scheduler made its waiting passive; `None`: it did not.
    pub passive: Option<String>,
    /// What it executes first is a launcher of parallel programs: it is left alone from the beginning, as others are from
    /// when they are found to be one. What it has seen of the machine until then it binds its ranks to.
    pub launches: bool,
    /// By what it is known again when it is started another time; empty: not at all.
    pub key: ProgramKey,
}

/// What tells one program from another across its runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct ProgramKey {
    /// A hash of the executed file.
    pub binary: String,
    /// Its first argument that is no option: the script of an interpreter, the tool of a suite.
    pub main_argument: String,
    /// A hash of all arguments.
    pub arguments: String,
}

/// A program under coplace, as people name it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Which {
    /// Any process of it.
    Pid(u32),
    /// Its name in `coplace status`.
    Id(AppId),
}

/// What a client says. Serialized as an object whose `say` is the message's name in snake_case. A request
/// that is not granted is answered by `Refused`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub enum ToScheduler {
    /// First on every connection. Answer: `Hello`, or `Refused` and the end where the versions differ.
    Hello {
        /// The client's [`VERSION`].
        version: u32,
        /// The client's process ID; nothing depends on it.
        pid: u32,
    },
    /// A program that is held before its first instruction (or, after a change of scheduler,
    /// runs already) wants to be managed. Answer: `Registered`, later `Start`.
    Register {
        /// What the client knows of it; the scheduler sets `uid`, and may change the name, the CPUs and the
        /// weight.
        record: Box<AppRecord>,
    },
    /// It was executed.
    Started {
        /// As `Registered` named it.
        id: AppId,
    },
    /// It ended; answer: `Account`.
    Ended {
        /// As `Registered` named it.
        id: AppId,
    },
    /// Its user stopped it (Ctrl-Z); it leaves the rotation.
    Suspend {
        /// As `Registered` named it.
        id: AppId,
    },
    /// Its user continued it.
    Resume {
        /// As `Registered` named it.
        id: AppId,
    },
    /// A terminating signal is on its way: let it run so that it can die. Answer: `Done`.
    Terminating {
        /// As `Registered` named it.
        id: AppId,
    },
    /// A running program is to be taken in. Answer: `Attached`.
    Attach {
        /// Its topmost process; of a parallel job any rank, or the launcher.
        pid: u32,
        /// Name to show it by, made unique; `None`: its file's name.
        name: Option<AppId>,
        /// What its user asks for.
        demand: Demand,
    },
    /// A program is to be released: to be as it was before it was taken in. Answer: `Released`.
    Release {
        /// The program; only its user and root may have it released.
        which: Which,
    },
    /// How everything stands. Answer: `Status`.
    Status,
    /// Why is it so; of one program, or of all.
    Explain {
        /// `None`: all. A program that is not here and was not lately is refused.
        id: Option<AppId>,
    },
    /// Which policy is in force. Answer: `Policy`.
    GetPolicy,
    /// `settings` are those of the policy's page in docs/policies; `script` the text of a Lua policy.
    SetPolicy {
        /// Its letters or words, in any case, or the name of a Lua file.
        policy: String,
        /// As JSON; `None`: those in force stay.
        settings: Option<serde_json::Value>,
        /// `None` for a policy that comes with coplace; without it a Lua file is refused.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        script: Option<String>,
    },
    /// Record events and plans from now on. Answer: `Recorded` for each line, until the connection
    /// ends.
    Record,
    /// A daemon starts: a leader lets go of everything and ends the connection.
    Yield,
}

/// What a scheduler says, as an answer or unasked. Serialized like [`ToScheduler`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub enum FromScheduler {
    /// Answer to a `Hello` of the same version.
    Hello {
        /// The scheduler's [`VERSION`].
        version: u32,
        /// The scheduler's process ID; of a leader that of the `coplace run` or `mix`.
        pid: u32,
        /// What kind of scheduler it is.
        role: Role,
    },
    /// The name that it goes by from now on (made unique), and what its environment is to hold
    /// besides its own when it is executed.
    Registered {
        /// The name in the record that was sent, which tells one answer from another.
        asked: AppId,
        /// `asked`, or that numbered (`cg.2`) where it is taken; the old name of a program that is known
        /// already.
        id: AppId,
        /// Variables that the policy wants, `OMP_DYNAMIC` for example; mostly empty.
        environment: BTreeMap<String, String>,
    },
    /// Let it go, with what was decided for it since it came.
    Start {
        /// As `Registered` named it.
        id: AppId,
        /// A narrow start with so many threads.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        threads: Option<u32>,
        /// Its runtimes are told to sleep while they wait; why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        passive: Option<String>,
    },
    /// It waits for memory before it is let go, or for another reason than its turn.
    Waits {
        /// As `Registered` named it.
        id: AppId,
        /// The shortage of memory, as a clause; empty if it has passed meanwhile.
        why: String,
    },
    /// `notes`: what its user should know.
    Attached {
        /// The unique name that it was given; of a job that is under coplace already, the name that it has.
        id: AppId,
        /// One sentence each without its full stop; may be empty.
        notes: Vec<String>,
    },
    /// It is no longer under coplace; told to who asked, and to who had it registered.
    Released {
        /// Which program.
        id: AppId,
        /// Its living processes.
        processes: usize,
        /// What could not be made as it was, and why.
        problems: Vec<String>,
    },
    /// Answer to `Ended`; also sent unasked by a scheduler that ends, for programs that live on.
    Account {
        /// Empty, and without a name, for a program that was never admitted.
        account: Account,
    },
    /// Answer to `Status`.
    Status {
        /// As everything stood when it was asked for.
        status: Status,
    },
    /// Answer to `Explain`.
    Explanation {
        /// Has `app` where one program was asked about.
        explanation: Box<Explanation>,
    },
    /// Answer to `GetPolicy` and `SetPolicy`: the policy in force from now on.
    Policy {
        /// Its short name, "EQ"; of a Lua policy its file.
        letters: String,
        /// What it does, in a few words: "equal parts".
        words: String,
    },
    /// A line of the trace.
    Recorded {
        /// A JSON object as in docs/formats/trace.md, without the line break.
        line: String,
    },
    /// Answer to `Suspend`, `Resume`, `Terminating` and `Yield`: the request was accepted.
    Done,
    /// The request could not be fulfilled; why and what to do.
    Refused {
        /// For people: a sentence without its full stop.
        why: String,
    },
}

/// What one program got and did under coplace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Account {
    /// `None` where no account was kept, as for a program that was never admitted.
    pub id: Option<AppId>,
    /// From its arrival to its end; of a program that has not ended, until now.
    pub response_ns: u64,
    /// Waiting before it was let go.
    pub waited_ns: u64,
    /// Wall time by the width of its place (CPUs), while it was in turn or not.
    #[serde(with = "widths")]
    pub width_ns: BTreeMap<u32, u64>,
    /// Wall time for which it was in turn.
    pub in_turn_ns: u64,
    /// How often it was given the CPUs in turn.
    pub turns: u64,
    /// Changes of width.
    pub reconfigurations: u64,
    /// Changes of place.
    pub moves: u64,
    /// CPU time of its processes.
    pub cpu_time_ns: u64,
    /// Names of the programs that ran beside it, with the time for which they did.
    pub neighbours_ns: BTreeMap<AppId, u64>,
    /// Parallel regions that the preload library counted.
    pub regions: u64,
    /// Slowdown against running alone with the widest team, and half the width of its 95% interval, from region
    /// rates; `None` where the rates do not tell.
    pub slowdown: Option<(f64, f64)>,
    /// For people: how the slowdown was found, or why there is none.
    pub slowdown_source: String,
}

impl Account {
    /// The account of a program under one scheduler and, after that, under another.
    pub fn followed_by(mut self, later: Account) -> Account {
        fn add<K: Ord>(sums: &mut BTreeMap<K, u64>, more: BTreeMap<K, u64>) {
            more.into_iter().for_each(|(key, ns)| *sums.entry(key).or_default() += ns);
        }
        add(&mut self.width_ns, later.width_ns);
        add(&mut self.neighbours_ns, later.neighbours_ns);
        self.waited_ns += later.waited_ns;
        self.in_turn_ns += later.in_turn_ns;
        self.turns += later.turns;
        self.reconfigurations += later.reconfigurations;
        self.moves += later.moves;
        // These are counted from the program's beginning, by whichever scheduler.
        self.response_ns = self.response_ns.max(later.response_ns);
        self.cpu_time_ns = self.cpu_time_ns.max(later.cpu_time_ns);
        self.regions = self.regions.max(later.regions);
        // Each is of one scheduler's time alone.
        if later.slowdown.is_some() || self.slowdown.is_none() {
            (self.slowdown, self.slowdown_source) = (later.slowdown, later.slowdown_source);
        }
        Account { id: later.id.or(self.id), ..self }
    }
}

/// How a program stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AppState {
    /// For its turn to begin, or for memory, before it is let go or by the plan.
    Waiting,
    /// Its user stopped it.
    Suspended,
    /// It takes what more important programs leave.
    Yielding,
    /// It is held yet, or on its way to its first team and place.
    Starting,
    /// Under the plan, in turn or not.
    Running,
}

impl std::fmt::Display for AppState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            AppState::Waiting => "waiting",
            AppState::Suspended => "suspended",
            AppState::Yielding => "yielding",
            AppState::Starting => "starting",
            AppState::Running => "running",
        })
    }
}

/// One program as `coplace status` shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AppStatus {
    /// Its unique name.
    pub id: AppId,
    /// Topmost process of its tree; of a parallel job the launcher.
    pub pid: u32,
    /// As in [`AppRecord::uid`].
    pub uid: u32,
    /// Program and arguments; of an attached program its `/proc/PID/cmdline`.
    pub command: Vec<String>,
    /// The first in the order of [`AppState`] that applies.
    pub state: AppState,
    /// CPUs (`os_index`) on which its threads may run now; empty until it is admitted.
    pub place: CpuSet,
    /// Threads that a plan gave it last; 0: none has yet.
    pub threads: u32,
    /// Threads that run together now, or did last; `None` before there were any.
    pub team: Option<u32>,
    /// Why it counts as rigid, if it does.
    pub rigid: Option<String>,
    /// What was found about whether its teams may be resized, once it ran parallel regions.
    #[serde(default)]
    pub resizing: Option<regions::Finding>,
    /// It was running when it was taken in.
    #[serde(default)]
    pub attached: bool,
    /// What its runtimes were told about waiting, and why; `None`: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<String>,
    /// What it waits for, other than its turn.
    #[serde(default)]
    pub waits_for: Option<String>,
    /// How its speed grows with its threads, as learned from its region rates now or earlier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speedup: Option<Speedup>,
    /// Pages that were moved after it to other NUMA nodes.
    #[serde(default)]
    pub memory: MemoryMoves,
    /// Its tree of bubbles, a line each, indented; empty where it has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub bubbles: String,
    /// What it got so far; for one that is not admitted yet, only `id` and `response_ns` are set.
    pub account: Account,
}

/// What moving a program's pages after it cost and brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryMoves {
    /// Bytes moved so far; a page that moves again counts again.
    pub bytes: u64,
    /// Time in the kernel's calls, off the scheduler's thread.
    pub cost_ns: u64,
    /// Pages that the kernel would not move: shared, pinned or gone.
    pub failed_pages: u64,
    /// How fast it was before the last move and has been since; `None` where its rates do not tell (yet).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub brought: Option<Brought>,
}

/// Steady rates of a program with teams of one size, in thousandths of a parallel region a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Brought {
    /// Size of these teams: the widest of which both rates are known.
    pub threads: u32,
    /// Before its memory moved; above 0.
    pub before_milli: u64,
    /// Since its memory moved.
    pub after_milli: u64,
}

/// How a scheduler and its programs stand: what `coplace status --json` prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The scheduler's process ID; of a leader that of the `coplace run` or `mix`.
    pub pid: u32,
    /// What kind of scheduler it is.
    pub role: Role,
    /// In words and letters: "equal parts (EQ)".
    pub policy: String,
    /// The plan in text form.
    pub plan: String,
    /// CPUs (`os_index`) to share out: online, configured, and given to a program here by who started it; with
    /// no program here, those that the scheduler itself may use.
    pub allowed: CpuSet,
    /// `allowed`, no more than the quota pays for, less those left to unmanaged programs; never empty.
    pub usable: CpuSet,
    /// What confines programs to CPUs, in words: "cpuset (cgroup v2)"; of an observer "none: observing".
    pub placement: String,
    /// What stops programs out of turn, in words: "SIGSTOP"; of an observer "none: observing".
    pub turns: String,
    /// What the policy says about the plan.
    pub report: Report,
    /// Those under the policy by name, then those that wait to be admitted in order of arrival.
    pub apps: Vec<AppStatus>,
    /// What runs beside the scheduler, a line each.
    #[serde(default)]
    pub services: Vec<String>,
    /// Gang switches so far, and how late they came (median and 95th percentile).
    pub switches: u64,
    /// Median over the latest 4096 switches; 0 before the first.
    pub jitter_median_ns: u64,
    /// 95th percentile of the same.
    pub jitter_p95_ns: u64,
    /// CPU time that the scheduler itself used.
    pub cpu_time_ns: u64,
    /// Since the scheduler began.
    pub uptime_ns: u64,
}

/// A message is buffered before its kind is known, and JSON's keys, which are strings, are no
/// numbers any more by then.
mod widths {
    use std::collections::BTreeMap;

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(widths: &BTreeMap<u32, u64>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(widths.iter().map(|(width, ns)| (width.to_string(), ns)))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<u32, u64>, D::Error> {
        let texts: BTreeMap<String, u64> = BTreeMap::deserialize(deserializer)?;
        let parse = |(width, ns): (String, u64)| Ok((width.parse().map_err(D::Error::custom)?, ns));
        texts.into_iter().map(parse).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_goes_on_under_the_next_scheduler() {
        let ft = AppId::new("ft").unwrap();
        let first = Account {
            id: AppId::new("cg").ok(),
            response_ns: 10,
            waited_ns: 1,
            width_ns: BTreeMap::from([(1, 5), (2, 4)]),
            neighbours_ns: BTreeMap::from([(ft.clone(), 3)]),
            turns: 2,
            cpu_time_ns: 7,
            regions: 100,
            ..Account::default()
        };
        let second = Account {
            id: AppId::new("cg.2").ok(),
            response_ns: 20,
            width_ns: BTreeMap::from([(2, 20)]),
            neighbours_ns: BTreeMap::from([(ft.clone(), 1)]),
            turns: 1,
            cpu_time_ns: 30,
            regions: 400,
            slowdown: Some((1.5, 0.1)),
            ..Account::default()
        };
        let whole = first.followed_by(second);
        assert_eq!((whole.response_ns, whole.waited_ns, whole.turns), (20, 1, 3));
        assert_eq!(whole.width_ns, BTreeMap::from([(1, 5), (2, 24)]));
        assert_eq!(whole.neighbours_ns[&ft], 4);
        // All of them count from the program's beginning.
        assert_eq!((whole.cpu_time_ns, whole.regions), (30, 400));
        assert_eq!((whole.slowdown, whole.id), (Some((1.5, 0.1)), AppId::new("cg.2").ok()));
    }

    #[test]
    fn an_account_comes_back_as_it_was_sent() {
        let neighbour = AppId::new("ft").unwrap();
        let account = Account {
            id: AppId::new("cg").ok(),
            width_ns: BTreeMap::from([(1, 5), (12, 7)]),
            neighbours_ns: BTreeMap::from([(neighbour, 3)]),
            slowdown: Some((1.5, 0.25)),
            ..Account::default()
        };
        let message = FromScheduler::Account { account };
        let line = serde_json::to_string(&message).unwrap();
        assert_eq!(serde_json::from_str::<FromScheduler>(&line).unwrap(), message);
    }
}
