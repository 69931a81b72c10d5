//! Programs of which nothing is on record, because somebody has damaged or removed that while nobody schedules.

use std::path::{Path, PathBuf};

use linux::Root;
use linux::host;
use protocol::{AppRecord, ProcessId, Terms};
use topology::CpuSet;
use workload::{AppId, Demand};

use super::{Freeing, Report, set_free_by};
use crate::home::Home;
use crate::registry::Traces;

/// Sets a program free of which nothing is on record, but which has pages here: where it stands in a group of ours, or
/// `was_lost`: something on record was damaged or removed. What was done to it is unknown. Its masks stay: nobody can
/// tell from them what its user wanted. `None`: it is not one of ours.
pub fn set_stray_free(
    process: ProcessId,
    pages: &Path,
    was_lost: bool,
    root: &Root,
    home: &Home,
) -> Option<Report> {
    let record = AppRecord {
        id: AppId::new("stray").ok()?,
        uid: host::own_uid(),
        process,
        guardian: process,
        command: Vec::new(),
        directory: PathBuf::new(),
        pages: pages.to_owned(),
        original_cpus: CpuSet::default(),
        demand: Demand::default(),
        arrived_ns: 0,
        started: true,
        terms: Terms::default(),
    };
    let traces = Traces::default();
    let freeing =
        Freeing { record: &record, traces: &traces, root, members: Vec::new(), report: Report::default() };
    let is_ours = was_lost || !freeing.observed_groups(&home.group_name()).is_empty();
    is_ours.then(|| set_free_by(&record, &traces, &home.group_name(), root))
}
