//! What happened under a scheduler, and why the plan in force is as it is: values, which `coplace explain` puts into
//! words.

use plan::{MoveReason, Plan, Rejection, Remark, Report, Severity, Speedup};
use serde::{Deserialize, Serialize};
use topology::{CpuSet, Withheld};
use workload::AppId;

/// One thing that happened, and when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HistoryEntry {
    /// Nanoseconds since the scheduler began.
    pub at_ns: u64,
    /// What happened then.
    pub news: News,
}

/// What can happen. Where `why` is text, it is for people: what a kernel or a library said, what is on record with the
/// program, or a clause of coplace's own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum News {
    /// This plan is in force from now on.
    Plan {
        /// Serialized in its text form.
        #[serde(with = "plan_text")]
        plan: Plan,
        /// What the policy says about it, and why programs lost CPUs.
        report: Report,
    },
    /// The policy's own plan was not taken.
    Rejected {
        /// What is wrong with it; never empty.
        why: Vec<Rejection>,
    },
    /// A user has set a policy, or new settings for it.
    Policy {
        /// In words and letters: "equal parts (EQ)".
        name: String,
    },
    /// CPUs that programs here do not get.
    Withheld(Withheld),
    /// It is managed from now on; of one that waited for memory, said once it is admitted.
    Came {
        /// Which program.
        app: AppId,
        /// As in [`AppRecord::uid`](crate::AppRecord::uid).
        #[serde(default)]
        uid: u32,
        /// Program and arguments; of an attached program its `/proc/PID/cmdline`.
        command: Vec<String>,
    },
    /// It waits before it is let go.
    Waits {
        /// Which program.
        app: AppId,
        /// The shortage of memory, as a clause: "it is expected to need …".
        why: String,
    },
    /// It has waited for memory, and waits no more.
    Admitted {
        /// Which program.
        app: AppId,
    },
    /// It is expected to run so many threads that cannot be resized, as last time.
    ExpectedRigid {
        /// Which program.
        app: AppId,
        /// Its width in an earlier run, at least 2.
        threads: u32,
    },
    /// It starts with fewer threads than it would have, and why.
    NarrowStart {
        /// Which program.
        app: AppId,
        /// A clause that follows its name: "starts with 1 of 4 threads, …".
        why: String,
    },
    /// Its runtimes are told to sleep while they wait, and why.
    Passive {
        /// Which program.
        app: AppId,
        /// A clause: "it runs 4 threads on 2 CPUs".
        why: String,
    },
    /// It counts as rigid with so many threads until it enters another region.
    #[serde(alias = "stays")]
    StuckInRegion {
        /// Which program.
        app: AppId,
        /// Its team; 1 where none was seen.
        threads: u32,
        /// A clause: "it has stayed in one parallel region for …".
        why: String,
    },
    /// It counted as rigid, and its teams can be resized from now on.
    Resizable {
        /// Which program.
        app: AppId,
    },
    /// What its threads chose of CPUs.
    Chose {
        /// Which program.
        app: AppId,
        /// Differs from what was reported of it last.
        chosen: Choice,
    },
    /// Its region rates give another speed-up curve than it was planned with so far.
    Speedup {
        /// Which program.
        app: AppId,
        /// The new curve.
        speedup: Speedup,
    },
    /// It takes what more important programs leave (`yields`), or has its part again.
    Nice {
        /// Which program.
        app: AppId,
        /// Of its topmost process, −20 to 19 (`/proc/PID/stat` field 19).
        nice: i32,
        /// Whether it is out of the plan from now on.
        yields: bool,
    },
    /// Somebody else stopped it.
    Stopped {
        /// Which program.
        app: AppId,
    },
    /// It was set free while the scheduler did not act, and is taken in anew.
    SetFree {
        /// Which program.
        app: AppId,
    },
    /// A rule of the configuration took it in.
    TakenIn {
        /// The name that it was given.
        app: AppId,
        /// Its topmost process; of a parallel job the launcher.
        pid: u32,
        /// "rule 2 of the configuration", counted from 1.
        rule: String,
    },
    /// A rule of the configuration matches a process that could not be taken in.
    NotTakenIn {
        /// Its topmost process; of a parallel job the launcher.
        pid: u32,
        /// "rule 2 of the configuration", counted from 1.
        rule: String,
        /// A sentence without its full stop.
        why: String,
    },
    /// It was given back at a user's request, and runs on as without coplace.
    #[serde(alias = "given_back")]
    Released {
        /// Which program.
        app: AppId,
    },
    /// Its `run` went before it said that it had started.
    GivenUp {
        /// Which program.
        app: AppId,
    },
    /// None of its processes lives any more.
    Ended {
        /// Which program.
        app: AppId,
    },
    /// A mechanism failed, or something could not be read or written.
    Failed {
        /// `None`: no program in particular.
        app: Option<AppId>,
        /// What failed, and the error.
        why: String,
    },
}

/// What a program's threads chose of CPUs themselves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Choice {
    /// None of them chose any, or none does any more.
    Nothing,
    /// All chose these; the program is placed within them.
    Same(CpuSet),
    /// One by one; `all`: none is left that chose nothing.
    Each {
        /// Every CPU that one of them chose.
        cpus: CpuSet,
        /// Whether no thread is left that chose nothing.
        all: bool,
    },
}

impl News {
    /// The program that it is about, where it is about one.
    pub fn app(&self) -> Option<&AppId> {
        match self {
            News::Came { app, .. }
            | News::Waits { app, .. }
            | News::Admitted { app }
            | News::ExpectedRigid { app, .. }
            | News::NarrowStart { app, .. }
            | News::Passive { app, .. }
            | News::StuckInRegion { app, .. }
            | News::Resizable { app }
            | News::Chose { app, .. }
            | News::Speedup { app, .. }
            | News::Nice { app, .. }
            | News::Stopped { app }
            | News::SetFree { app }
            | News::TakenIn { app, .. }
            | News::Released { app }
            | News::GivenUp { app }
            | News::Ended { app } => Some(app),
            News::Failed { app, .. } => app.as_ref(),
            News::Plan { .. }
            | News::Rejected { .. }
            | News::Policy { .. }
            | News::Withheld(_)
            | News::NotTakenIn { .. } => None,
        }
    }

    /// Whether it is about this program, among others.
    pub fn concerns(&self, app: &AppId) -> bool {
        match self {
            News::Plan { plan, report } => {
                plan.apps().contains(app)
                    || report.moves.contains_key(app)
                    || report.remarks.iter().any(|remark| remark.concerns(app))
            }
            other => other.app() == Some(app),
        }
    }

    /// How much it matters; a plan counts as its gravest remark, one without remarks as `Info`.
    pub fn severity(&self) -> Severity {
        match self {
            News::Plan { report, .. } => {
                report.remarks.iter().map(Remark::severity).max().unwrap_or(Severity::Info)
            }
            News::Rejected { .. } => Severity::Error,
            News::Failed { .. } | News::NotTakenIn { .. } => Severity::Warning,
            News::Waits { .. }
            | News::NarrowStart { .. }
            | News::Passive { .. }
            | News::Nice { yields: true, .. }
            | News::Stopped { .. }
            | News::SetFree { .. }
            | News::GivenUp { .. }
            | News::Withheld(_) => Severity::Notice,
            _ => Severity::Info,
        }
    }
}

/// Why it is so: of all programs, or of one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// The most recent news, oldest first; where one program was asked about, only what concerns it.
    pub history: Vec<HistoryEntry>,
    /// The plan in force, and what the policy says about it.
    #[serde(with = "plan_text")]
    pub plan: Plan,
    /// What the policy says about the plan in force, and why programs lost CPUs by it.
    pub report: Report,
    /// Of the program that was asked about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<AppExplanation>,
}

/// Why one program stands as it does, beside what the history says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AppExplanation {
    /// The program that was asked about.
    pub id: AppId,
    /// What it waits for before it is let go.
    pub waits_for: Option<String>,
    /// What its runtimes were told about waiting, and why.
    pub waiting: Option<String>,
    /// Why the plan in force moved it.
    pub moved: Option<MoveReason>,
}

/// A plan as people, logs and tests write it.
mod plan_text {
    use plan::Plan;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(plan: &Plan, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(plan)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Plan, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> AppId {
        AppId::new(name).unwrap()
    }

    fn plan(text: &str, remarks: Vec<Remark>) -> News {
        News::Plan { plan: text.parse().unwrap(), report: Report { remarks, ..Report::default() } }
    }

    #[test]
    fn news_of_a_program_are_not_those_of_a_longer_name() {
        assert!(!News::Ended { app: id("cg.2") }.concerns(&id("cg")));
        assert!(News::Ended { app: id("cg") }.concerns(&id("cg")));
        let news = plan("cg.2 on 0-1 waiting [w]", Vec::new());
        assert!(!news.concerns(&id("cg")) && news.concerns(&id("cg.2")) && news.concerns(&id("w")));
        let named = plan("a on 0-1", vec![Remark::LevelUp { apps: vec![id("cg")] }]);
        assert!(named.concerns(&id("cg")));
        assert!(!News::Failed { app: None, why: "cg: no".into() }.concerns(&id("cg")));
    }

    #[test]
    fn a_plan_is_as_severe_as_its_worst_remark() {
        assert_eq!(plan("a on 0", Vec::new()).severity(), Severity::Info);
        let why = vec![Rejection::Failed("7: no".into())];
        let rejected = Remark::Rejected { policy: "mine".into(), why };
        assert_eq!(plan("a on 0", vec![Remark::LevelsInTurn, rejected]).severity(), Severity::Error);
    }

    #[test]
    fn an_explanation_comes_back_as_it_was_sent() {
        let history = vec![
            HistoryEntry {
                at_ns: 1,
                news: News::Came { app: id("a"), uid: 1000, command: vec!["./a".into()] },
            },
            HistoryEntry { at_ns: 2, news: plan("a on 0-1", vec![Remark::LevelsInTurn]) },
        ];
        let app =
            AppExplanation { id: id("a"), waits_for: None, waiting: None, moved: Some(MoveReason::Rotated) };
        let sent = Explanation { history, app: Some(app), ..Explanation::default() };
        let line = serde_json::to_string(&sent).unwrap();
        assert_eq!(serde_json::from_str::<Explanation>(&line).unwrap(), sent, "{line}");
    }
}
