//! What can happen.

use plan::App;
use policy::Policy;
use serde::{Deserialize, Serialize};
use topology::CpuSet;
use workload::AppId;

/// What the engine is told.
pub enum Event {
    /// A program is there; one of the same name is taken to be the same, described anew.
    Arrived(App),
    Left(AppId),
    /// What was seen of a program: its team, its malleability as it proved to be, whether it waits
    /// passively, may be stopped, must stay somewhere. Arrival and suspension are kept as they are;
    /// one of a program that is not there (any more) says nothing.
    Observed(App),
    /// A user asked that it stand still, or stopped it.
    Suspend(AppId),
    Resume(AppId),
    /// Other CPUs are allowed or usable than before.
    Machine {
        allowed: CpuSet,
        usable: CpuSet,
    },
    /// Load average over 15 minutes, in thousandths.
    Load {
        average_15min_milli: u64,
    },
    /// Another policy decides from now on; programs stay.
    Policy(Box<dyn Policy>),
    /// The policy asked to be woken.
    Wake,
}

/// The same as it is written down.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Recorded {
    Arrived(App),
    Left(AppId),
    Observed(App),
    Suspend(AppId),
    Resume(AppId),
    Machine {
        allowed: CpuSet,
        usable: CpuSet,
    },
    Load {
        average_15min_milli: u64,
    },
    /// By its letters; the settings stand before it in the recording.
    Policy(String),
    Wake,
}

impl Event {
    pub fn recorded(&self) -> Recorded {
        match self {
            Event::Arrived(app) => Recorded::Arrived(app.clone()),
            Event::Left(id) => Recorded::Left(id.clone()),
            Event::Observed(app) => Recorded::Observed(app.clone()),
            Event::Suspend(id) => Recorded::Suspend(id.clone()),
            Event::Resume(id) => Recorded::Resume(id.clone()),
            Event::Machine { allowed, usable } => {
                Recorded::Machine { allowed: allowed.clone(), usable: usable.clone() }
            }
            Event::Load { average_15min_milli } => {
                Recorded::Load { average_15min_milli: *average_15min_milli }
            }
            Event::Policy(policy) => Recorded::Policy(policy.letters().to_owned()),
            Event::Wake => Recorded::Wake,
        }
    }
}

impl Recorded {
    /// The event again; `policy` makes a policy of its letters.
    pub fn event(self, policy: impl FnOnce(&str) -> Option<Box<dyn Policy>>) -> Result<Event, String> {
        Ok(match self {
            Recorded::Arrived(app) => Event::Arrived(app),
            Recorded::Left(id) => Event::Left(id),
            Recorded::Observed(app) => Event::Observed(app),
            Recorded::Suspend(id) => Event::Suspend(id),
            Recorded::Resume(id) => Event::Resume(id),
            Recorded::Machine { allowed, usable } => Event::Machine { allowed, usable },
            Recorded::Load { average_15min_milli } => Event::Load { average_15min_milli },
            Recorded::Policy(letters) => {
                Event::Policy(policy(&letters).ok_or_else(|| format!("there is no policy {letters}"))?)
            }
            Recorded::Wake => Event::Wake,
        })
    }
}
