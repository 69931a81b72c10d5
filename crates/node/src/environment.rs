//! Variables that programs find in their environment because of how they were started.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

/// By these MPI launchers are told not to bind ranks to CPUs of their choice: two jobs on one
/// machine would be bound to the same ones, and a place could not be changed. Asked for on a
/// launcher's command line, binding goes before the variable.
const NO_BINDING: &[(&str, &str)] = &[
    // Open MPI to 4, Open MPI 5 and PRRTE, MPICH (Hydra), Intel MPI, MVAPICH2, Slurm's srun.
    ("OMPI_MCA_hwloc_base_binding_policy", "none"),
    ("PRTE_MCA_hwloc_default_binding_policy", "none"),
    ("HYDRA_BINDING", "none"),
    ("I_MPI_PIN", "off"),
    ("MV2_ENABLE_AFFINITY", "0"),
    ("SLURM_CPU_BIND", "none"),
];

/// By these runtimes and libraries are told how many threads to have from the start.
const THREADS: &[&str] = &[
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "GOTO_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "RAYON_NUM_THREADS",
    "POLARS_MAX_THREADS",
    "JULIA_NUM_THREADS",
    "GOMAXPROCS",
    "DOTNET_PROCESSOR_COUNT",
];
const JAVA: &str = "JAVA_TOOL_OPTIONS";

/// What a program's environment gains: launchers do not bind, unless the user said how
/// (`rebind` overrules that), and with `threads` everything starts that narrow.
pub fn additions<'a>(
    present: impl Fn(&str) -> Option<&'a OsStr>,
    rebind: bool,
    threads: Option<u32>,
) -> BTreeMap<OsString, OsString> {
    let mut added = BTreeMap::new();
    for (name, value) in NO_BINDING {
        if rebind || present(name).is_none() {
            added.insert(OsString::from(name), OsString::from(value));
        }
    }
    if let Some(threads) = threads {
        added.extend(THREADS.iter().map(|name| (OsString::from(name), OsString::from(threads.to_string()))));
        let mut options = present(JAVA).unwrap_or_default().to_owned();
        if !options.is_empty() {
            options.push(" ");
        }
        options.push(format!("-XX:ActiveProcessorCount={threads}"));
        added.insert(JAVA.into(), options);
    }
    added
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_do_not_bind_unless_their_user_said_how() {
        let nothing = |_: &str| None;
        assert_eq!(additions(nothing, false, None).len(), NO_BINDING.len());
        let said = |name: &str| (name == "HYDRA_BINDING").then_some(OsStr::new("core"));
        assert!(!additions(said, false, None).contains_key(OsStr::new("HYDRA_BINDING")));
        assert_eq!(additions(said, true, None)[OsStr::new("HYDRA_BINDING")], "none");
    }

    #[test]
    fn a_narrow_start_is_told_to_every_runtime_and_added_to_what_java_is_told_already() {
        let java = |name: &str| (name == JAVA).then_some(OsStr::new("-Xmx1g"));
        let added = additions(java, false, Some(3));
        assert_eq!(added[OsStr::new("OMP_NUM_THREADS")], "3");
        assert_eq!(added[OsStr::new("GOMAXPROCS")], "3");
        assert_eq!(added[OsStr::new(JAVA)], "-Xmx1g -XX:ActiveProcessorCount=3");
    }
}
