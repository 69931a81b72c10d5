//! The rule for a whole process, from what is known of each object that it has mapped.

use serde::{Deserialize, Serialize};

use crate::{Reason, Verdict};

/// What was found about one process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "resizing")]
pub enum Finding {
    /// It may be resized.
    Resizable {
        /// The weakest of the grounds that its objects have.
        because: Because,
    },
    /// It may not.
    Rigid(Obstacle),
}

/// What speaks for a program; of several objects the weakest ground counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Because {
    /// Its code shows that results do not depend on the team.
    Analysed,
    /// Its author says so.
    Declared,
    /// It is on the list of what was tried.
    Listed,
    /// Its user says so.
    #[serde(rename = "word")]
    User,
}

/// What stands in the way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "obstacle")]
pub enum Obstacle {
    /// Code of this object does, or may.
    Code {
        /// Its name, as the process has mapped it.
        object: String,
        /// What the code does.
        reason: Reason,
    },
    /// This file is not the one that was mapped.
    Replaced {
        /// Its name, as the process has mapped it.
        object: String,
    },
    /// This file could not be read.
    Unreadable {
        /// Its name, as the process has mapped it.
        object: String,
    },
    /// This file is too large to look at.
    TooLarge {
        /// Its name, as the process has mapped it.
        object: String,
    },
    /// Several OpenMP runtimes are in the process.
    SeveralRuntimes,
    /// It loads more code again and again.
    KeepsLoading,
    /// The process could not be looked at.
    Hidden,
}

impl Obstacle {
    /// A sentence for people, without its subject: "rigid, as …".
    pub fn sentence(&self) -> String {
        match self {
            Obstacle::Code { object, reason } => format!("{object}: {reason}"),
            Obstacle::Replaced { object } => {
                format!("{object}: the file was changed or replaced while the program runs")
            }
            Obstacle::Unreadable { object } => format!("{object}: the file could not be read"),
            Obstacle::TooLarge { object } => format!("{object}: the file is too large to be analysed"),
            Obstacle::SeveralRuntimes => "several OpenMP runtimes are in one process".into(),
            Obstacle::KeepsLoading => "it keeps loading code while its parallel regions run".into(),
            Obstacle::Hidden => "what it has loaded could not be looked at".into(),
        }
    }
}

impl Because {
    /// A clause for people, without its full stop.
    pub fn sentence(self) -> &'static str {
        match self {
            Because::Analysed => "its code shows that results do not depend on the number of threads",
            Because::Declared => "its author declared that results do not depend on the number of threads",
            Because::Listed => "it is on the list of those that were tried with fewer threads",
            Because::User => "its user says so (--tolerant)",
        }
    }
}

/// What is known of one mapped object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Examination {
    /// It was not needed: the list or the user speaks for it.
    Vouched(Because),
    /// Its code was analysed.
    Analysed(Verdict),
    /// It could not be.
    Obstacle(Obstacle),
}

/// The rule, of everything that a process has mapped.
pub fn judge(runtimes: u32, objects: &[(String, Examination)]) -> Finding {
    let mut because = Because::Analysed;
    for (object, examination) in objects {
        match examination {
            Examination::Vouched(by) => because = because.max(*by),
            Examination::Analysed(Verdict::NoRegions | Verdict::Independent { .. }) => {}
            Examination::Analysed(Verdict::Declared) => because = because.max(Because::Declared),
            Examination::Analysed(Verdict::Dependent(reason)) => {
                return Finding::Rigid(Obstacle::Code { object: object.clone(), reason: reason.clone() });
            }
            Examination::Obstacle(obstacle) => return Finding::Rigid(obstacle.clone()),
        }
    }
    match runtimes {
        0 | 1 => Finding::Resizable { because },
        _ => Finding::Rigid(Obstacle::SeveralRuntimes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cause;

    fn named(objects: &[Examination]) -> Vec<(String, Examination)> {
        objects.iter().map(|examination| ("x".to_owned(), examination.clone())).collect()
    }

    #[test]
    fn one_dependent_object_makes_all_rigid() {
        let independent = Examination::Analysed(Verdict::Independent { regions: 3 });
        let reason = Reason { cause: Cause::ThreadLocal, function: None };
        let dependent = Examination::Analysed(Verdict::Dependent(reason.clone()));
        let objects = named(&[independent.clone(), Examination::Vouched(Because::Listed), dependent]);
        assert_eq!(judge(1, &objects), Finding::Rigid(Obstacle::Code { object: "x".into(), reason }));
        let weakest = named(&[independent, Examination::Vouched(Because::Listed)]);
        assert_eq!(judge(1, &weakest), Finding::Resizable { because: Because::Listed });
    }

    #[test]
    fn several_runtimes_make_a_process_rigid() {
        let independent = named(&[Examination::Analysed(Verdict::Independent { regions: 1 })]);
        assert_eq!(judge(2, &independent), Finding::Rigid(Obstacle::SeveralRuntimes));
        assert!(matches!(judge(1, &independent), Finding::Resizable { .. }));
    }
}
