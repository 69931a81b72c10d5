//! What can happen.

use std::collections::BTreeMap;

use plan::App;
use policy::Policy;
use serde::{Deserialize, Serialize};
use topology::CpuSet;
use workload::AppId;

use crate::start::{Arrival, MemoryRoom};

/// What the engine is told. `P` is a policy, or in a recording its letters ([`Recorded`]).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event<P = Box<dyn Policy>> {
    /// A program is there; one of the same name is taken to be the same, described anew.
    Arrived(App),
    /// A program is held before its first instruction: it is admitted, or waits for memory first.
    Came(Box<Arrival>),
    /// A program has ended, or is released.
    Left(AppId),
    /// What was seen of a program: its team, its malleability as it proved to be, whether it waits
    /// passively, may be stopped, must stay somewhere. Arrival and suspension are kept as they are;
    /// one of a program that is not there (any more) says nothing.
    Observed(App),
    /// Where a program has to stay from now on, whatever else was observed of it; not given: anywhere.
    Within {
        /// The program.
        app: AppId,
        /// The CPUs that it may not leave; `None`: it may stand anywhere.
        within: Option<CpuSet>,
    },
    /// A user asked that it stand still, or stopped it.
    Suspend(AppId),
    /// A user asked that it run again, or continued it.
    Resume(AppId),
    /// Other CPUs are allowed or usable than before.
    Machine {
        /// CPUs that the kernel and the configuration let programs use.
        allowed: CpuSet,
        /// Those of them that plans may use.
        usable: CpuSet,
    },
    /// Other CPUs are allowed, paid for or left by unmanaged programs than before; which are usable follows from it.
    Allowance(Allowance),
    /// Memory for programs that wait for some.
    Memory(MemoryRoom),
    /// Load average over 15 minutes, in thousandths.
    Load {
        /// Runnable threads on average, in thousandths.
        average_15min_milli: u64,
    },
    /// Another policy decides from now on; programs stay. In a recording the settings stand before it.
    Policy(P),
    /// The policy asked to be woken.
    Wake,
}

/// The same as it is written down.
pub type Recorded = Event<String>;

/// What the kernel, the quotas and other programs leave to managed ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allowance {
    /// CPUs that the kernel and the configuration let programs use.
    pub allowed: CpuSet,
    /// CPU time that all programs have together, in thousandths of a CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paid_milli_cpus: Option<u32>,
    /// What unmanaged programs use of each CPU, in thousandths, smoothed.
    pub unmanaged_milli: BTreeMap<u32, u32>,
}

impl<P> Event<P> {
    /// The same event with another form of the policy, if it names one.
    pub fn with_policy<Q, E>(&self, form: impl FnOnce(&P) -> Result<Q, E>) -> Result<Event<Q>, E> {
        Ok(match self {
            Event::Arrived(app) => Event::Arrived(app.clone()),
            Event::Came(arrival) => Event::Came(arrival.clone()),
            Event::Left(id) => Event::Left(id.clone()),
            Event::Observed(app) => Event::Observed(app.clone()),
            Event::Within { app, within } => Event::Within { app: app.clone(), within: within.clone() },
            Event::Suspend(id) => Event::Suspend(id.clone()),
            Event::Resume(id) => Event::Resume(id.clone()),
            Event::Machine { allowed, usable } => {
                Event::Machine { allowed: allowed.clone(), usable: usable.clone() }
            }
            Event::Allowance(allowance) => Event::Allowance(allowance.clone()),
            Event::Memory(room) => Event::Memory(room.clone()),
            Event::Load { average_15min_milli } => Event::Load { average_15min_milli: *average_15min_milli },
            Event::Policy(policy) => Event::Policy(form(policy)?),
            Event::Wake => Event::Wake,
        })
    }
}

impl Event {
    /// As it is written down: a policy by its letters.
    pub fn recorded(&self) -> Recorded {
        match self.with_policy(|policy| Ok::<_, std::convert::Infallible>(policy.letters().to_owned())) {
            Ok(recorded) => recorded,
            Err(never) => match never {},
        }
    }
}

/// A recording names a policy that is not here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no policy {0}")]
pub struct NoSuchPolicy(pub String);

impl Recorded {
    /// The event again; `policy` makes a policy of its letters.
    pub fn event(&self, policy: impl FnOnce(&str) -> Option<Box<dyn Policy>>) -> Result<Event, NoSuchPolicy> {
        self.with_policy(|letters| policy(letters).ok_or_else(|| NoSuchPolicy(letters.clone())))
    }
}
