//! The guard: a small process of its own that sets every program free when the scheduler is lost.
//!
//! It watches the scheduler's lease. When the holder has died or does not beat, a successor (or
//! the holder itself) has a moment to take over; then everything in the registry is set free. It
//! decides nothing else, and undoes nothing that a living scheduler does.

mod seen;

use std::io;
use std::path::{Path, PathBuf};

use linux::Root;
use linux::host::{self, Lock, Started};
use linux::pidfd::PidFd;
use protocol::ProcessId;

use crate::home::Home;
use crate::identity;
use crate::lease::{Lease, OpenLease};
use crate::registry::Registry;
use crate::restore;
use seen::Seen;

/// How often the lease is looked at.
const POLL_NS: u64 = 100_000_000;
/// How long a successor may take. With the age at which a lease counts as stale and the work
/// itself it stays below the second that is promised.
const SUCCESSOR_NS: u64 = 300_000_000;
/// The same while the holder lives without beating: nobody can take its lock, only it can return.
const RETURN_NS: u64 = 100_000_000;
/// What could not be undone is tried again this often, ...
const AGAIN_NS: u64 = 500_000_000;
/// ... for this long; a scheduler that comes later starts a guard of its own.
const PATIENCE_NS: u64 = 30_000_000_000;
/// How long a guard that was just started, or seen, is trusted to be there.
const TRUSTED_NS: u64 = 1_000_000_000;
/// A guard is started no more often than this.
const RETRY_NS: u64 = 90_000_000;
/// Names the `coplace` binary whose `guard` command is to be started, for programs that host a
/// scheduler and are not `coplace` themselves.
pub const GUARD_VARIABLE: &str = "COPLACE_GUARD";

/// All that `coplace guard` does. Returns when there is nothing left to guard.
pub fn run(home: &Home) -> io::Result<()> {
    let _lock = match lock_patiently(home) {
        Ok(Some(lock)) => lock,
        Ok(None) => return Ok(()),
        // Whoever had this home has put it away meanwhile.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    detach();
    linux::clock::raise_priority();
    let root = Root::live();
    // What the guard before may have been about to write, and records of which it alone knew what they were about.
    Registry::new(home).sweep();
    Registry::new(home).remove_set_aside();
    let (mut seen, mut holder) = (Seen::default(), None);
    loop {
        if let Some(lease) = Lease::open(home).filter(|lease| lease.view().is_fresh(linux::clock::now_ns())) {
            // A successor knows of those programs only that are on record.
            if holder.is_some_and(|holder| holder != lease.view().holder) {
                seen.set_lost_free(home, &root);
            }
            holder = Some(lease.view().holder);
            watch(&lease, &root, home, &mut seen);
        } else if !wait_for_successor(home) {
            seen.set_lost_free(home, &root);
            let somebody_schedules = set_all_free_and_stay(home, &root);
            // Kept from running in the middle of that, it may have written about a program that is forgotten.
            Registry::new(home).sweep();
            if !somebody_schedules {
                return Ok(());
            }
        }
    }
}

/// A scheduler that only looks whether there is a guard holds the lock for an instant.
fn lock_patiently(home: &Home) -> io::Result<Option<Box<dyn Lock>>> {
    for _ in 0..5 {
        if let Some(lock) = home.lock_guard()? {
            return Ok(Some(lock));
        }
        linux::clock::sleep_until(linux::clock::now_ns() + 10_000_000);
    }
    Ok(None)
}

/// Keeps nothing of whoever started the scheduler: neither his directory nor his pipes, on whose
/// end somebody may be waiting. `ensure` has seen to session and standard descriptors.
fn detach() {
    let _ = std::env::set_current_dir("/");
    // The last to go when memory runs out; granted to root only.
    let _ = host::with(|host| host.write(Path::new("/proc/self/oom_score_adj"), b"-900"));
}

/// Until the holder ends or ceases to beat. While it does neither, a look costs no more than a wait,
/// a read and the names in two directories: there are ten of them a second.
fn watch(lease: &OpenLease, root: &Root, home: &Home, seen: &mut Seen) {
    seen.watch(home, root);
    let holder = PidFd::open(identity::to_linux(lease.view().holder), root);
    // Without a handle on the holder every look is a whole one.
    let Ok(holder) = holder else {
        linux::clock::sleep_until(linux::clock::now_ns() + POLL_NS);
        return;
    };
    while holder.wait_exit(POLL_NS).is_ok_and(|ended| !ended) && lease.beats(linux::clock::now_ns()) {
        seen.watch(home, root);
    }
}

/// Waits a moment for a fresh lease.
fn wait_for_successor(home: &Home) -> bool {
    let since_ns = linux::clock::now_ns();
    let stalled = Lease::read(home).is_some_and(|lease| identity::is_alive(lease.holder));
    let patience_ns = if stalled { RETURN_NS } else { SUCCESSOR_NS };
    while linux::clock::now_ns() - since_ns < patience_ns {
        if Lease::is_fresh(home) {
            return true;
        }
        linux::clock::sleep_until(linux::clock::now_ns() + 10_000_000);
    }
    Lease::is_fresh(home)
}

/// Sets free what is there, and stays to see to the rest. `false`: nothing more to do; `true`:
/// somebody schedules again.
fn set_all_free_and_stay(home: &Home, root: &Root) -> bool {
    let since_ns = linux::clock::now_ns();
    if broken!(GuardIdle) {
        return false;
    }
    loop {
        let reports = restore::set_all_free(root, home, || !Lease::is_fresh(home));
        let left = reports.values().any(|report| !report.problems.is_empty());
        // A record that comes now was written by a scheduler that took no lease yet.
        let living = Registry::new(home).list().is_ok_and(|listing| !listing.records.is_empty());
        let until_ns = linux::clock::now_ns() + AGAIN_NS;
        while linux::clock::now_ns() < until_ns {
            if Lease::is_fresh(home) {
                return true;
            }
            if !living && !left {
                return false;
            }
            linux::clock::sleep_until(linux::clock::now_ns() + 20_000_000);
        }
        if linux::clock::now_ns() - since_ns > PATIENCE_NS {
            return false;
        }
    }
}

/// The scheduler's hold on its guard.
#[derive(Debug)]
pub struct GuardHandle {
    home: Home,
    program: Option<PathBuf>,
    child: Option<Box<dyn Started>>,
    tried_ns: Option<u64>,
    /// When the lock was last seen held, by our guard or somebody else's.
    held_ns: Option<u64>,
    problem: Option<io::Error>,
}

/// Sees to it that a guard runs; fails only where the home cannot be used at all.
pub fn ensure(home: &Home) -> io::Result<GuardHandle> {
    let mut handle = GuardHandle {
        home: home.clone(),
        program: program(),
        child: None,
        tried_ns: None,
        held_ns: None,
        problem: None,
    };
    drop(home.lock_guard()?);
    handle.check();
    Ok(handle)
}

/// The binary that knows the `guard` command, and coplace's other ones.
pub fn program() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os(GUARD_VARIABLE).filter(|path| !path.is_empty()) {
        return Some(path.into());
    }
    // By its link, which also works when the file was replaced meanwhile.
    let own = host::with(|host| host.own_executable()).ok()?;
    let name = own.file_name()?.to_str()?.trim_end_matches(" (deleted)");
    (name == "coplace").then(|| PathBuf::from("/proc/self/exe"))
}

impl GuardHandle {
    /// To be called with every beat: starts a guard if there is none.
    pub fn check(&mut self) {
        self.problem = self.try_check().err();
    }

    /// Why there is no guard, if there is none.
    pub fn problem(&self) -> Option<&io::Error> {
        self.problem.as_ref()
    }

    fn try_check(&mut self) -> io::Result<()> {
        if broken!(NoGuard) {
            return Ok(());
        }
        if let Some(child) = &mut self.child
            && child.has_ended()?
        {
            self.child = None;
        }
        let now_ns = linux::clock::now_ns();
        let within = |at_ns: Option<u64>, ns| at_ns.is_some_and(|at_ns| now_ns.saturating_sub(at_ns) < ns);
        // A guard of ours that lives has the lock or is about to take it.
        let is_ours =
            self.child.is_some() && (within(self.tried_ns, TRUSTED_NS) || within(self.held_ns, TRUSTED_NS));
        if is_ours || within(self.tried_ns, RETRY_NS) {
            return Ok(());
        }
        if self.home.lock_guard()?.is_none() {
            self.held_ns = Some(now_ns);
            return Ok(());
        }
        let Some(program) = &self.program else {
            let why = format!("only coplace itself can be a guard; set {GUARD_VARIABLE} to it");
            return Err(io::Error::new(io::ErrorKind::NotFound, why));
        };
        self.tried_ns = Some(now_ns);
        self.child = Some(host::with(|host| host.start_guard(program, self.home.path()))?);
        Ok(())
    }

    /// Its process, if this scheduler started it.
    pub fn process(&self) -> Option<ProcessId> {
        self.child.as_ref().and_then(|child| identity::of_pid(child.pid()))
    }
}
