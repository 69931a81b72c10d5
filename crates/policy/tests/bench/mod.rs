//! A machine to try policies on, program by program.

#![allow(dead_code)] // Each test file uses its own part of this.

use std::sync::Arc;

use coplace_policy::{Memory, Policy, Settings, by_name};
use plan::{Plan, Snapshot};
use topology::Machine;

/// The paper's Figure 1: two processors of two cores.
pub const FIGURE_1: &str = "pack:2 core:2";

/// A machine with programs that come and go under one policy.
pub struct Bench {
    pub snapshot: Snapshot,
    pub policy: Box<dyn Policy>,
    pub memory: Memory,
    pub wake_at_ns: Option<u64>,
    pub lines: Vec<String>,
}

impl Bench {
    pub fn new(machine: &str, policy: &str, settings: &Settings) -> Bench {
        Bench {
            snapshot: Snapshot::for_machine(Arc::new(Machine::synthetic(machine).unwrap())),
            policy: by_name(policy, settings).unwrap(),
            memory: Memory::default(),
            wake_at_ns: None,
            lines: Vec::new(),
        }
    }

    pub fn decide(&mut self) -> Plan {
        let decision = self.policy.decide(&self.snapshot, &self.memory);
        self.memory = decision.memory;
        self.wake_at_ns = decision.wake_at_ns;
        self.lines = decision.report.lines();
        decision.plan
    }

    /// Programs as [`Snapshot::with_apps`] reads them.
    pub fn arrive(&mut self, apps: &str) -> Plan {
        self.snapshot.now_ns += 1_000_000;
        self.snapshot = self.snapshot.clone().with_apps(apps).unwrap();
        self.decide()
    }

    pub fn leave(&mut self, name: &str) -> Plan {
        self.snapshot.now_ns += 1_000_000;
        self.snapshot.apps.retain(|app| app.id.as_str() != name);
        self.decide()
    }

    /// The plan with `count` malleable programs that have just arrived one by one.
    pub fn grow(&mut self, count: usize) -> Plan {
        let mut plan = Plan::default();
        while self.snapshot.apps.len() < count {
            plan = self.arrive(&format!("a{}", self.snapshot.apps.len() + 1));
        }
        plan
    }
}
