//! What the registry of a world says of a process's program.

use std::path::{Path, PathBuf};

use model::{Kernel, Process};
use topology::CpuSet;

use super::actors::HOME;
use crate::registry::Traces;

/// What is on record to have been done to the program of a process.
pub(super) fn traces_of(kernel: &Kernel, process: &Process) -> Vec<Traces> {
    let Some(app) = process.app else { return Vec::new() };
    // A scheduler that does not know the program any more may give it another name.
    let names = [format!("p{app}"), format!("p{app}.2"), format!("p{app}.3")];
    let file =
        |name: &str, end: &str| kernel.file(&Path::new(HOME).join("apps").join(format!("{name}.{end}")));
    let traces = names.iter().filter_map(|name| {
        let spreads = file(name, "spread").is_some();
        let noted = file(name, "traces").and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let traces: Option<Traces> = noted.or_else(|| spreads.then(|| Traces::begin(Traces::default())));
        traces.map(|traces| Traces { spreads: traces.spreads || spreads, ..traces })
    });
    traces.collect()
}

pub(super) fn has_group(traces: &[Traces], group: &Path) -> bool {
    traces.iter().any(|traces| traces.groups.iter().any(|own| own == group))
}

/// A group that it is on record to be in and that nobody has any more.
pub(super) fn missing_group(kernel: &Kernel, process: &Process) -> Option<PathBuf> {
    let groups = traces_of(kernel, process).into_iter().flat_map(|traces| traces.groups);
    groups.into_iter().find(|group| !kernel.groups.exists(group))
}

pub(super) fn is_on_record(kernel: &Kernel, process: &Process, mask: &CpuSet) -> bool {
    // A place, or what of the program's own lies in one; or one CPU, for a moment.
    let placed = |traces: &Traces| traces.places.iter().flatten().any(|place| mask.is_subset(place));
    let known = |traces: &Traces| placed(traces) || traces.spreads && mask.len() == 1;
    traces_of(kernel, process).iter().any(known)
}
