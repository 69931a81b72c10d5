//! What a program is, judged by what it has shown.

use linux::page::RigidReason;
use regions::Finding;

use super::patience::PATIENCE_NS;
use super::{SETTLE_NS, Watch};

/// What a program is, as far as it has shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Nature {
    /// Nothing known yet.
    Starting,
    /// An OpenMP program that follows the team size it is asked for.
    Resizable,
    /// A resizable one that has stayed in one parallel region for so long, with more threads than it was
    /// asked to have, that it counts as rigid until it enters another; the reason, for people.
    StuckInRegion(String),
    /// It runs the threads that it runs; the reason, for people.
    Rigid(String),
    /// No parallel runtime that we know, and no more than one busy thread so far.
    Serial,
}

/// What a program has shown.
#[derive(Clone, Copy, Debug)]
struct Shown<'a> {
    declared_rigid: bool,
    /// It has an OpenMP runtime with the preload library.
    runtime: bool,
    /// Pages of the preload library are there of which it is not known whose they are.
    uncertain: bool,
    /// Why its runtime cannot be asked for another team.
    rigid: Option<RigidReason>,
    /// Parallel regions that it has entered.
    regions: u64,
    /// What its code says about resizing, once that is known.
    finding: Option<&'a Finding>,
    /// It has stayed in one region for too long after it was asked for a narrower team.
    stuck: bool,
    may_resize: bool,
    /// At the last look. One whose processes come and go, or that loads more while it runs, stays that
    /// while it is looked at: such programs have all their threads until then.
    was_resizable: bool,
    /// Most busy threads in processes whose runtime has run no region.
    most_silent: u32,
    /// Most busy threads in processes without a runtime that we know, and why no page is there of them.
    most_busy: u32,
    unheard: Option<&'a str>,
    /// It may still show a runtime.
    young: bool,
}

impl Shown<'_> {
    fn nature(self) -> Nature {
        if self.declared_rigid {
            return Nature::Rigid("it was declared rigid".into());
        }
        if let Some(nature) = self.nature_by_runtime() {
            return nature;
        }
        match self.most_busy {
            0 | 1 if self.young => Nature::Starting,
            0 | 1 => Nature::Serial,
            threads => {
                let why = self.unheard.unwrap_or("none of them from an OpenMP runtime that we know");
                Nature::Rigid(format!("it ran {threads} threads, {why}"))
            }
        }
    }

    /// What its OpenMP runtime says, if that says something already.
    fn nature_by_runtime(self) -> Option<Nature> {
        if !self.runtime {
            return None;
        }
        if self.uncertain {
            let why =
                "which of its processes a page of the preload library belongs to cannot be told (namespaces)";
            return Some(Nature::Rigid(why.into()));
        }
        if let Some(reason) = self.rigid {
            return Some(Nature::Rigid(reason.sentence().into()));
        }
        // Until one of them enters a region.
        if self.most_silent > 1 && self.regions == 0 {
            return Some(Nature::Rigid(format!(
                "it ran {} threads, none of them in parallel regions of its OpenMP runtime",
                self.most_silent
            )));
        }
        if let Some(Finding::Rigid(obstacle)) = self.finding {
            return Some(Nature::Rigid(obstacle.sentence()));
        }
        if self.stuck {
            return Some(Nature::StuckInRegion(format!(
                "it has stayed in one parallel region for {} s after it was asked for a narrower team",
                PATIENCE_NS / 1_000_000_000
            )));
        }
        if self.may_resize || self.was_resizable {
            return Some(Nature::Resizable);
        }
        // Its code is being looked at.
        (self.regions > 0).then_some(Nature::Starting)
    }
}

impl Watch {
    /// One whose processes come and go, or that loads more while it runs, stays what it was while that is
    /// looked at: those have all their threads until then.
    pub(super) fn nature(&mut self, runtime: bool, now_ns: u64) -> Nature {
        let nature = self.nature_now(runtime, now_ns);
        self.was_resizable = nature == Nature::Resizable;
        nature
    }

    fn nature_now(&self, runtime: bool, now_ns: u64) -> Nature {
        Shown {
            declared_rigid: self.declared_rigid,
            runtime,
            uncertain: self.teams.is_uncertain(),
            rigid: self.teams.rigid(),
            regions: self.teams.regions(),
            finding: self.teams.finding(),
            stuck: self.teams.is_stuck_in_region(),
            may_resize: self.teams.may_resize(),
            was_resizable: self.was_resizable,
            most_silent: self.most_silent,
            most_busy: self.most_busy,
            unheard: self.unheard.as_deref(),
            young: now_ns.saturating_sub(self.started_ns) < SETTLE_NS,
        }
        .nature()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Shown<'_> = Shown {
        declared_rigid: false,
        runtime: false,
        uncertain: false,
        rigid: None,
        regions: 0,
        finding: None,
        stuck: false,
        may_resize: false,
        was_resizable: false,
        most_silent: 0,
        most_busy: 0,
        unheard: None,
        young: false,
    };

    fn is_rigid(shown: Shown<'_>) -> bool {
        matches!(shown.nature(), Nature::Rigid(_))
    }

    #[test]
    fn without_a_runtime_threads_make_a_program_rigid() {
        assert_eq!(Shown { young: true, ..NOTHING }.nature(), Nature::Starting);
        assert_eq!(NOTHING.nature(), Nature::Serial);
        assert!(is_rigid(Shown { most_busy: 2, young: true, ..NOTHING }));
    }

    #[test]
    fn a_runtime_is_resizable_only_once_that_was_found() {
        let team = Shown { runtime: true, regions: 5, ..NOTHING };
        assert_eq!(team.nature(), Nature::Starting, "its code is being looked at");
        let found = Shown { may_resize: true, ..team };
        assert_eq!(found.nature(), Nature::Resizable);
        assert_eq!(Shown { was_resizable: true, ..team }.nature(), Nature::Resizable);
        assert!(matches!(Shown { stuck: true, ..found }.nature(), Nature::StuckInRegion(_)));
    }

    #[test]
    fn reasons_against_resizing_outweigh_the_rest() {
        let found = Shown { runtime: true, regions: 5, may_resize: true, was_resizable: true, ..NOTHING };
        for against in [
            Shown { declared_rigid: true, ..found },
            Shown { uncertain: true, ..found },
            Shown { rigid: Some(RigidReason::FloatingPoint), ..found },
            Shown { most_silent: 2, regions: 0, ..found },
        ] {
            assert!(is_rigid(against), "{against:?}");
        }
        assert!(!is_rigid(Shown { most_silent: 2, ..found }), "it runs regions, and more beside them");
    }
}
