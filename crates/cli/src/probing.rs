//! The probe beside a daemon, and where its findings are kept: in the evidence store.

use std::collections::BTreeMap;
use std::sync::Arc;

use evidence::{Kind, Program, Sample, Store};
use probe::online::{Burst, Company, Evidence, Online};
use probe::slowdown::{class_footprints, llc_bytes};
use serde_json::json;
use topology::Machine;

use crate::exit::Failure;
use crate::profile;

/// Starts the probe; `None`, with a word about it, where the machine does not tell its last-level cache.
pub fn start() -> Result<Option<Online>, Failure> {
    let machine = Arc::new(Machine::discover().machine);
    let Some((footprints, llc_bytes)) = class_footprints(&machine).zip(llc_bytes(&machine)) else {
        eprintln!("coplace: no probe: this machine does not report the size of its last-level cache");
        return Ok(None);
    };
    let kept = Kept {
        store: profile::open()?,
        machine_description: profile::machine_description(&machine),
        llc_bytes,
    };
    Online::start(machine, footprints.to_vec(), Box::new(kept)).map(Some).map_err(Failure::ours)
}

struct Kept {
    store: Store,
    machine_description: String,
    llc_bytes: u64,
}

fn program(company: &Company) -> Program {
    profile::program(company.record.terms.key.clone(), company.record.command.join(" "))
}

impl Evidence for Kept {
    fn known(&mut self, company: &Company) -> Result<BTreeMap<u64, usize>, String> {
        let program = program(company);
        if program.binary.is_empty() {
            return Err("its file cannot be read, so it would not be recognised".into());
        }
        let samples = self.store.samples(Some(&program)).map_err(|error| error.to_string())?;
        let same = |sample: &&Sample| {
            sample.kind == Kind::Burst
                && sample.threads == company.threads
                && sample.machine == self.machine_description
        };
        let mut known = BTreeMap::new();
        for sample in samples.iter().filter(same) {
            if let Some(footprint) = sample.value["burst"]["footprint_bytes"].as_u64() {
                *known.entry(footprint).or_default() += 1;
            }
        }
        Ok(known)
    }

    fn keep(&mut self, company: &Company, burst: &Burst) -> Result<(), String> {
        let sample = Sample {
            program: program(company),
            threads: company.threads,
            machine: self.machine_description.clone(),
            kind: Kind::Burst,
            at_ns: profile::now_ns(),
            value: json!({ "burst": burst, "llc_bytes": self.llc_bytes, "probe_threads": 1 }),
        };
        self.store.add(&sample).map_err(|error| error.to_string())
    }
}
