//! Ways in which the node would be wrong, for the test that shows that [`crate::explore`] finds such.

use std::cell::Cell;

/// One deliberate fault; its doc says what is not as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mutant {
    /// Who sets free leaves groups as they are, frozen or not.
    NothingThawed,
    /// Who sets free continues nobody.
    NobodyContinued,
    /// Who sets free widens no thread.
    NothingWidened,
    /// Who sets free leaves programs in our groups.
    NobodyMovedBack,
    /// Who sets free continues those, too, whom their users have stopped.
    UsersStopForgotten,
    /// Places are taken from a team before it has shrunk.
    CpusTakenFirst,
    /// Teams are asked to widen before the CPUs are there.
    TeamsWidenedFirst,
    /// A place is written down after the threads are bound to it.
    PlacesNotedLate,
    /// That a program is stopped by signals is not written down.
    StopsNotNoted,
    /// The groups of a program are written down when it has been moved.
    GroupsNotedLate,
    /// Launchers are stopped with what they launched.
    LaunchersStopped,
    /// The guard sets nobody free.
    GuardIdle,
    /// Nobody starts a guard.
    NoGuard,
    /// A successor leaves programs as its predecessor left them.
    AdoptedAsTheyAre,
    /// Two may hold the scheduler's lock.
    LockTakenTwice,
    /// What cannot be resized is planned as if it could.
    RigidTakenForResizable,
    /// The record of a program that has ended stays.
    RecordsKept,
    /// A program whose member comes back is not let go again.
    HeldForEver,
    /// A scheduler that was late takes nobody back.
    NobodyReadopted,
    /// A team that has outgrown what the plan knows of loses CPUs at once.
    TeamsOutgrown,
    /// Where a program had to stay from the beginning is forgotten once it is looked at.
    WithinForgotten,
    /// Who sets free sends SIGCONT to those, too, who never were stopped.
    AllContinued,
    /// A turn begins for those, too, whom somebody else has stopped.
    StopsByHandUndone,
}

pub const ALL: [Mutant; 23] = [
    Mutant::NothingThawed,
    Mutant::NobodyContinued,
    Mutant::NothingWidened,
    Mutant::NobodyMovedBack,
    Mutant::UsersStopForgotten,
    Mutant::CpusTakenFirst,
    Mutant::TeamsWidenedFirst,
    Mutant::PlacesNotedLate,
    Mutant::StopsNotNoted,
    Mutant::GroupsNotedLate,
    Mutant::LaunchersStopped,
    Mutant::GuardIdle,
    Mutant::NoGuard,
    Mutant::AdoptedAsTheyAre,
    Mutant::LockTakenTwice,
    Mutant::RigidTakenForResizable,
    Mutant::RecordsKept,
    Mutant::HeldForEver,
    Mutant::NobodyReadopted,
    Mutant::TeamsOutgrown,
    Mutant::WithinForgotten,
    Mutant::AllContinued,
    Mutant::StopsByHandUndone,
];

thread_local! {
    static CURRENT: Cell<Option<Mutant>> = const { Cell::new(None) };
}

/// From now on what runs in this thread has this fault.
pub fn set(mutant: Option<Mutant>) {
    CURRENT.set(mutant);
}

pub fn is_active(mutant: Mutant) -> bool {
    CURRENT.get() == Some(mutant)
}
