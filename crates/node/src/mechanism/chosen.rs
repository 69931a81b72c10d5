//! What a program's threads chose for themselves, where programs are placed by affinity.

use std::collections::BTreeMap;

use linux::affinity::{self, Chosen, Stated};
use linux::host;
use linux::{Process, Tid};

use super::{Harness, Keep};
use crate::error::{Error, Result};

impl Harness {
    /// Looks at the masks of all threads: what was chosen is honoured from now on, and who has another
    /// mask than its place gives, without having chosen it, is put there again. `None` where a cpuset
    /// confines: no mask means anything beside it.
    pub fn sample_masks(
        &mut self,
        processes: &[Process],
        stated: BTreeMap<Process, Stated>,
        keep: impl Keep,
    ) -> Result<Option<Chosen>> {
        if !self.places_by_thread() {
            return Ok(None);
        }
        let failed: Option<(Tid, linux::Error)> = {
            // A thread that is being moved has another mask for a moment, which is not its own.
            let _unmoved = host::lock(&self.targets);
            let strayed = self.masks.sample(processes, stated, &self.root);
            match self.masks.place().cloned() {
                Some(place) if strayed => {
                    let outcome = affinity::set_all(processes, &place, &mut self.masks, &self.root);
                    outcome?.failed.into_iter().next()
                }
                _ => None,
            }
        };
        self.keep_own(&keep)?;
        match failed {
            Some((tid, error)) => Err(Error::Thread { tid, error }),
            None => Ok(Some(self.masks.chosen().clone())),
        }
    }

    /// Writes down which masks are the program's own though they look like ours.
    pub(super) fn keep_own(&mut self, keep: impl Keep) -> Result<()> {
        let own = self.masks.own();
        if self.traces.own == own {
            return Ok(());
        }
        self.record(keep, |traces| traces.own = own)
    }
}
