//! The thread that looks at what processes have mapped.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use glob::Pattern;
use linux::host;
use linux::mapped::{self, Gone, Mapped};
use linux::{Process, Root, procfs};
use regions::{Because, Cause, Examination, Finding, Obstacle, Reason, Verdict, judge};

use super::kept::{Kept, key_of};
use super::{TOLERANT_VARIABLE, UserOverride, fits, listed};

/// Files larger than this are not analysed.
const MOST_BYTES: u64 = 256 << 20;
/// Answers kept; beyond these all are asked for again.
const MOST_ANSWERS: usize = 4_000;
/// A file counts as changed since the process began if it was written so much later: the clocks of files
/// and processes tick coarsely.
const TICK: Duration = Duration::from_millis(20);

/// Whether a process may be resized with what it has loaded by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Question {
    /// The process whose mapped code is looked at.
    pub process: Process,
    /// As its page counts them.
    pub loads: u32,
    /// Times that exec has started its page anew, as the page says.
    pub generation: u32,
    /// Distinct OpenMP runtimes in it, as its page counts them; with several it is rigid.
    pub runtimes: u32,
}

/// Asks once, answers later.
#[derive(Clone)]
pub struct Analyst {
    answers: Arc<Mutex<BTreeMap<Question, Option<Finding>>>>,
    queue: Option<Sender<Question>>,
}

impl Analyst {
    /// `notes`: where findings about files are kept. Without a thread nobody is ever found resizable.
    pub fn start(notes: Option<PathBuf>, root: &Root) -> Analyst {
        let answers: Arc<Mutex<BTreeMap<Question, Option<Finding>>>> = Arc::default();
        let (queue, questions) = mpsc::channel();
        let (root, to) = (root.clone(), answers.clone());
        let body = move || {
            let mut library = Library { kept: Kept::at(notes), files: BTreeMap::new(), listed: listed() };
            while let Some(question) = host::receive(&questions) {
                let finding = library.analyse(&question, &root);
                let mut answers = host::lock(&to);
                if answers.len() > MOST_ANSWERS {
                    answers.clear();
                }
                answers.insert(question, Some(finding));
            }
        };
        let began = host::with(|host| host.spawn("analyst", Box::new(body)));
        Analyst { answers, queue: began.is_ok().then_some(queue) }
    }

    /// `None`: not known yet.
    pub fn ask(&self, question: Question) -> Option<Finding> {
        let mut answers = host::lock(&self.answers);
        match answers.get(&question) {
            Some(answer) => answer.clone(),
            None => {
                if let Some(queue) = &self.queue {
                    answers.insert(question, None);
                    // A thread that is gone answers nothing: the program keeps its threads.
                    let _ = queue.send(question);
                }
                None
            }
        }
    }
}

/// A file as it was when it was looked at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Edition {
    identity: mapped::Identity,
    bytes: u64,
    written: Option<SystemTime>,
}

struct Library {
    kept: Kept,
    files: BTreeMap<Edition, Verdict>,
    listed: Vec<Pattern>,
}

impl Library {
    fn analyse(&mut self, question: &Question, root: &Root) -> Finding {
        let pid = question.process.pid;
        let user_override = user_override(pid, root);
        if user_override == UserOverride::Whole {
            return Finding::Resizable { because: Because::User };
        }
        let Ok(objects) = mapped::code(pid, root) else { return Finding::Rigid(Obstacle::Hidden) };
        let began = start_time(question.process);
        let examinations: Vec<(String, Examination)> = objects
            .iter()
            .filter_map(|object| {
                let name = object.path.file_name().unwrap_or(object.path.as_os_str());
                let name = name.to_string_lossy().into_owned();
                let examination = self.object(pid, object, &name, &user_override, began, root)?;
                Some((name, examination))
            })
            .collect();
        // Somebody else may have its number by now, or it something else loaded.
        match question.process.is_alive(root) {
            true => judge(question.runtimes, &examinations),
            false => Finding::Rigid(Obstacle::Hidden),
        }
    }

    /// `None`: it has nothing to do with OpenMP.
    fn object(
        &mut self,
        pid: u32,
        object: &Mapped,
        name: &str,
        user_override: &UserOverride,
        began: Option<SystemTime>,
        root: &Root,
    ) -> Option<Examination> {
        let named = name.to_owned();
        let file = match mapped::open(pid, object, root) {
            Ok(file) => file,
            Err(Gone::Replaced) => return Some(Examination::Obstacle(Obstacle::Replaced { object: named })),
            Err(Gone::Unreadable(_)) => {
                return Some(Examination::Obstacle(Obstacle::Unreadable { object: named }));
            }
        };
        let metadata = file.metadata().ok()?;
        let edition = Edition {
            identity: object.identity.clone(),
            bytes: metadata.len(),
            written: metadata.modified().ok(),
        };
        let known = self.files.get(&edition).cloned();
        if known == Some(Verdict::NoRegions) {
            return None;
        }
        if known.is_none() && !regions::uses_openmp(&file) {
            self.files.insert(edition, Verdict::NoRegions);
            return None;
        }
        let changed = began.zip(edition.written).is_some_and(|(began, written)| written > began + TICK);
        if changed {
            return Some(Examination::Obstacle(Obstacle::Replaced { object: named }));
        }
        if let Some(because) = self.vouched(&object.path, user_override) {
            return Some(Examination::Vouched(because));
        }
        if let Some(verdict) = known {
            return Some(Examination::Analysed(verdict));
        }
        if edition.bytes > MOST_BYTES {
            return Some(Examination::Obstacle(Obstacle::TooLarge { object: named }));
        }
        let Some(verdict) = self.analyse_file(file) else {
            return Some(Examination::Obstacle(Obstacle::Unreadable { object: named }));
        };
        self.files.insert(edition, verdict.clone());
        Some(Examination::Analysed(verdict))
    }

    fn vouched(&self, path: &Path, user_override: &UserOverride) -> Option<Because> {
        match user_override {
            UserOverride::Named(patterns) if fits(patterns, path) => Some(Because::User),
            _ => fits(&self.listed, path).then_some(Because::Listed),
        }
    }

    fn analyse_file(&mut self, file: File) -> Option<Verdict> {
        let (mut file, mut bytes) = (file, Vec::new());
        // Its symbols were read through the same handle.
        file.rewind().ok()?;
        file.take(MOST_BYTES).read_to_end(&mut bytes).ok()?;
        let key = key_of(&bytes);
        if let Some(known) = self.kept.get(&key) {
            return Some(known.clone());
        }
        // A file that was made to confuse the analysis must not take the scheduler with it.
        let verdict = catch_unwind(AssertUnwindSafe(|| regions::analyse(&bytes)));
        let verdict =
            verdict.unwrap_or(Verdict::Dependent(Reason { cause: Cause::NotFollowed, function: None }));
        self.kept.insert(key, verdict.clone());
        Some(verdict)
    }
}

fn user_override(pid: u32, root: &Root) -> UserOverride {
    let variables = procfs::environ(pid, root).unwrap_or_default();
    let value = variables.iter().find(|(name, _)| name == TOLERANT_VARIABLE);
    value.map_or(UserOverride::None, |(_, value)| UserOverride::parse(value))
}

/// When a process began, by the clock that files are dated with.
fn start_time(process: Process) -> Option<SystemTime> {
    let since_boot = Duration::from_nanos(linux::clock::since_boot_ns());
    let at = Duration::from_secs_f64(process.start_time_ticks as f64 / procfs::ticks_per_second() as f64);
    SystemTime::now().checked_sub(since_boot.checked_sub(at)?)
}
