//! How a program is stopped and let go, by each mechanism.

use std::sync::{Arc, Mutex};

use linux::host;
use linux::protection::is_launcher;
use linux::signals::Targets;
use linux::spread::spread;
use linux::{Root, Switch};

use crate::clock::Turn;

/// Whether its user has stopped a program, as is known now: a scheduler that was kept from running learns it later.
pub type StoppedByUser = Box<dyn Fn() -> bool + Send>;

pub(super) struct Freeze {
    pub switch: Switch,
}

impl Turn for Freeze {
    fn stop(&mut self) -> linux::Result<()> {
        self.switch.set(true)
    }

    fn resume(&mut self) -> linux::Result<()> {
        self.switch.set(false)
    }

    fn resumes_first(&self) -> bool {
        true
    }
}

/// `cpu.idle`: who is not in turn runs only where those in turn leave a CPU idle.
pub(super) struct Idle {
    pub switch: Switch,
    pub targets: Arc<Mutex<Targets>>,
    pub root: Root,
}

impl Turn for Idle {
    fn stop(&mut self) -> linux::Result<()> {
        self.switch.set(true)
    }

    fn resume(&mut self) -> linux::Result<()> {
        self.switch.set(false)?;
        // Who holds the targets is about to set masks itself; the next switch mends what this one
        // leaves.
        if let Ok(targets) = self.targets.try_lock() {
            spread(&targets.processes(), &self.root);
        }
        Ok(())
    }
}

pub(super) struct Stop {
    pub targets: Arc<Mutex<Targets>>,
    pub root: Root,
    pub stopped_by_user: StoppedByUser,
}

impl Stop {
    fn targets(&self) -> std::sync::MutexGuard<'_, Targets> {
        host::lock(&self.targets)
    }
}

impl Turn for Stop {
    fn stop(&mut self) -> linux::Result<()> {
        // Its user has stopped it. If it runs, that stop is over, and its `run` was killed before it could say so: who
        // found it stopped by us would take that for the stop on record.
        if (self.stopped_by_user)() {
            return Ok(());
        }
        // A process may have become a launcher since its program was last looked at.
        self.targets().stop_except(|process| is_launcher(process, &self.root), &self.root);
        Ok(())
    }

    fn resume(&mut self) -> linux::Result<()> {
        self.targets().cont(&self.root);
        if broken!(StopsByHandUndone) {
            linux::signals::cont(&self.targets().processes(), &self.root);
        }
        Ok(())
    }

    fn is_stopped_by_others(&self) -> bool {
        self.targets().are_stopped_by_others()
    }
}
