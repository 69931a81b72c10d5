//! What runs beside a scheduler and wants to know what stands on its machine: adapters of other kinds of work.
//!
//! A service has threads of its own; what is asked of it here is done at once. The scheduler tells it what it sees,
//! and when it is in the way. It decides nothing about programs.

use protocol::AppRecord;
use topology::CpuSet;

/// The machine as the scheduler sees it at a look.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scene {
    /// CPUs that programs may use and that unmanaged ones leave to them.
    pub usable: CpuSet,
    /// Those that were admitted, in the order of their names.
    pub programs: Vec<Occupant>,
    /// Nobody waits to be let in or on, or is on the way to another team or place.
    pub settled: bool,
}

/// One program in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Occupant {
    /// Who it is, and with what demand it came.
    pub record: AppRecord,
    /// Where its threads may run.
    pub place: CpuSet,
    /// Threads that run together, as far as it has shown any.
    pub team: Option<u32>,
}

/// Drop ends it.
pub trait Service: Send {
    /// A few times a second while programs are there, less often otherwise.
    fn observe(&mut self, scene: &Scene);
    /// Somebody asks for CPUs, or what was seen holds no longer: whatever this does on CPUs ends at once.
    fn withdraw(&mut self);
    /// How it is, for `coplace status`.
    fn status(&self) -> String;
}
