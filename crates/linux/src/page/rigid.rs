//! The bits of a page's `rigid`.

use serde::{Deserialize, Serialize};

/// Why the library passes every call of a program unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RigidReason {
    /// It called `omp_set_dynamic(0)`.
    SetDynamic0,
    /// It counts on a number of threads that it asked for: for a region whose code is not known to do with
    /// fewer (if its user vouches for the whole program), as a strict number (OpenMP 6.0), or for a league.
    ExplicitNumThreads,
    /// `COPLACE_RIGID=1` is in its environment, or the default page says so.
    Declared,
    /// Its OpenMP runtime is neither GCC's nor LLVM's, or none was found.
    RuntimeUnknown,
    /// It waits actively, and its runtime cannot end spinning idle threads: LLVM's, or GCC's before 9.
    SpinsInDock,
    /// The code of one of its regions lies in no object, so that nobody can look at it.
    GeneratedCode,
    /// Rounding, exceptions or flushing to zero have changed since the first region in a thread that starts
    /// regions: threads made before and after compute differently.
    FloatingPoint,
    /// Its runtime binds each thread to one of the places worked out at its start (`OMP_PROC_BIND`, …).
    BindsThreads,
    /// A bit that this version does not know: rigid all the same.
    Unknown,
}

impl RigidReason {
    const KNOWN: [(u32, RigidReason); 8] = [
        (1 << 0, RigidReason::SetDynamic0),
        (1 << 1, RigidReason::ExplicitNumThreads),
        (1 << 2, RigidReason::Declared),
        (1 << 3, RigidReason::RuntimeUnknown),
        (1 << 4, RigidReason::SpinsInDock),
        (1 << 5, RigidReason::GeneratedCode),
        (1 << 6, RigidReason::FloatingPoint),
        (1 << 16, RigidReason::BindsThreads),
    ];

    pub(super) fn of(bits: u32) -> Vec<RigidReason> {
        let mut reasons: Vec<_> =
            Self::KNOWN.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, reason)| *reason).collect();
        if bits & !Self::KNOWN.iter().fold(0, |all, (bit, _)| all | bit) != 0 {
            reasons.push(RigidReason::Unknown);
        }
        reasons
    }

    /// A sentence for people.
    pub fn sentence(self) -> &'static str {
        match self {
            RigidReason::SetDynamic0 => "The program forbids smaller teams (omp_set_dynamic(0)).",
            RigidReason::ExplicitNumThreads => {
                "It counts on a number of threads that it asks for: for a parallel region whose code is not known to do with fewer (COPLACE_TOLERANT), as a strict number, or for a league of teams."
            }
            RigidReason::Declared => "It was declared rigid.",
            RigidReason::RuntimeUnknown => {
                "Its OpenMP runtime is neither GCC's nor LLVM's, or none was found."
            }
            RigidReason::SpinsInDock => {
                "Its idle threads spin for ever, and its runtime (LLVM's, or GCC's before 9) cannot end them."
            }
            RigidReason::GeneratedCode => {
                "A parallel region of it was made while it runs, so that nobody can look at its code."
            }
            RigidReason::FloatingPoint => {
                "It changed rounding, exceptions or flushing to zero after its first parallel region (or a library that it loaded did), and its threads differ in that."
            }
            RigidReason::BindsThreads => {
                "Its OpenMP runtime binds each thread to one of the places that it worked out at its start (OMP_PROC_BIND, OMP_PLACES, GOMP_CPU_AFFINITY, KMP_AFFINITY)."
            }
            RigidReason::Unknown => "The preload library gives a reason that this version does not know.",
        }
    }
}
