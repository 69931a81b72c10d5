//! One process of a program that has a page of the preload library.

use linux::page::{Owner, Page, state};
use linux::{Process, Root};
use regions::{Because, Finding, Obstacle};

use super::patience::Patience;
use crate::resizing::{Analyst, MOST_LOADS, Question};

/// A process that entered no region for this long leaves its share to the others.
const IDLE_NS: u64 = 1_000_000_000;

/// For how long a page's owner is looked for: a process may be seen later than its page.
const FOUND_NS: u64 = 5_000_000_000;

/// A process with a page of the preload library.
pub(super) struct Member {
    pub page: Page,
    pub owner: Owner,
    pub found_ns: u64,
    pub lives: bool,
    pub regions: u64,
    /// When it was last seen to have entered regions.
    pub entered_ns: u64,
    pub patience: Patience,
    /// What was asked about it last, how often that changed while it ran regions, and what was found.
    pub asked: Option<Question>,
    pub changes: u32,
    pub finding: Option<Finding>,
}

impl Member {
    /// Asks whether it may be resized with what it has loaded by now, and hands the answer on.
    pub fn ask(&mut self, analyst: &Analyst) {
        // A page that may be that of several keeps its threads.
        let Owner::Is(process) = self.owner else { return };
        let question = Question {
            process,
            loads: self.page.loads(),
            generation: self.page.generation(),
            runtimes: self.page.runtimes(),
        };
        if self.asked != Some(question) {
            self.changes += u32::from(self.asked.is_some() && self.regions > 0);
            self.asked = Some(question);
        }
        let answer = match self.changes > MOST_LOADS {
            true => Some(Finding::Rigid(Obstacle::KeepsLoading)),
            false => analyst.ask(question),
        };
        match &answer {
            Some(Finding::Resizable { because: Because::User }) => self.page.set_resizable_by_user(),
            Some(Finding::Resizable { .. }) => self.page.set_resizable(question.loads, question.generation),
            Some(Finding::Rigid(_)) => self.page.set_not_resizable(),
            // What was found before holds for what was loaded before.
            None => {}
        }
        self.finding = answer.or(self.finding.take());
    }

    /// Threads that it may run at any time: all of its own while it may not be resized.
    pub fn may_run(&self, now: u32) -> u32 {
        match self.page.may_resize() && self.page.rigid_bits() == 0 {
            true => now,
            false => now.max(self.page.max_team()),
        }
    }

    pub fn has_runtime(&self) -> bool {
        self.page.has(state::RUNTIME_INITIALISED)
    }

    pub fn find_owner(&mut self, living: &[Process], now_ns: u64, root: &Root) {
        let is_open = match self.owner {
            Owner::Is(_) => false,
            Owner::OneOf(_) => true,
            Owner::Nobody => now_ns.saturating_sub(self.found_ns) < FOUND_NS,
        };
        if is_open {
            self.owner = self.page.owner(living, root);
        }
    }

    /// Whether this process is its owner, or may be.
    pub fn may_belong_to(&self, process: Process) -> bool {
        match &self.owner {
            Owner::Is(owner) => *owner == process,
            Owner::OneOf(candidates) => candidates.contains(&process),
            Owner::Nobody => false,
        }
    }

    pub fn runs_teams(&self) -> bool {
        self.lives && self.has_runtime()
    }

    /// One that has not run any region yet is about to.
    pub fn is_active(&self, now_ns: u64) -> bool {
        self.regions == 0 || now_ns.saturating_sub(self.entered_ns) < IDLE_NS || self.page.is_in_region()
    }
}
