//! What a decision is made from, and the parts that it divides the CPUs into.

use plan::{App, Run, Snapshot, Tree};
use topology::CpuSet;
use workload::AppId;

use super::gather::leaf;
use super::needs::{Need, needs};
use super::slices::Period;
use crate::{Memory, Settings};

/// What a decision is made from.
pub(crate) struct Context<'a> {
    pub snapshot: &'a Snapshot,
    pub settings: &'a Settings,
    pub memory: &'a Memory,
    pub needs: Vec<Need<'a>>,
    /// Whether exact shares go before the bound on standing still, and before leaving programs that
    /// share a single CPU to the kernel, which knows no weights.
    pub exact_shares: bool,
}

impl<'a> Context<'a> {
    pub fn new(snapshot: &'a Snapshot, settings: &'a Settings, memory: &'a Memory) -> Context<'a> {
        Context::for_some(snapshot, settings, memory, |_| true)
    }

    /// Of a decision that only these programs take part in; all others wait.
    pub fn for_some(
        snapshot: &'a Snapshot,
        settings: &'a Settings,
        memory: &'a Memory,
        takes_part: impl FnMut(&App) -> bool,
    ) -> Context<'a> {
        let needs = needs(snapshot, &memory.places, takes_part);
        Context { snapshot, settings, memory, needs, exact_shares: false }
    }

    /// How long the outermost turns last.
    pub(super) fn period(&self) -> Period {
        if self.exact_shares { Period::Exact } else { Period::Usual }
    }

    pub fn everybody(&self) -> Vec<usize> {
        (0..self.needs.len()).collect()
    }

    /// `need` on all of `place` that is open to it, with as many threads as it can use there.
    pub fn run(&self, need: &Need<'_>, place: &CpuSet) -> Run {
        let place = need.open(place);
        Run { threads: need.threads_on(place.len()), ..Run::new(need.app.id.clone(), place) }
    }

    pub(super) fn on(&self, index: usize, place: &CpuSet) -> Tree {
        leaf(self.run(&self.needs[index], place))
    }

    pub(super) fn must_not_stop(&self, index: usize) -> bool {
        !self.needs[index].app.stoppable
    }

    pub(super) fn ids(&self, members: &[usize]) -> Vec<AppId> {
        members.iter().map(|&index| self.needs[index].app.id.clone()).collect()
    }
}

/// One part of a division, and the programs that share it (indices into `Context::needs`).
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub place: CpuSet,
    pub members: Vec<usize>,
}
