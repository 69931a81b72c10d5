//! Variables that programs find in their environment because of how they were started.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use workload::WaitPolicy;

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

/// By these OpenMP runtimes are told to bind each thread to a place, which they work out from all CPUs
/// that they see.
const BINDING: &[&str] = &["OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"];

/// By these OpenMP runtimes are told how their threads wait; whoever set one has decided.
const WAITING: &[&str] = &["OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY"];
/// libgomp and LLVM's listen to the first; LLVM's and Intel's spin 200 ms before they sleep without the second.
const PASSIVE: &[(&str, &str)] = &[("OMP_WAIT_POLICY", "passive"), ("KMP_BLOCKTIME", "0")];
const ACTIVE: &[(&str, &str)] = &[("OMP_WAIT_POLICY", "active")];
/// Ranks poll for messages whatever OpenMP is told. Open MPI's then let others run in between; other MPI
/// libraries have nothing of that kind that can be told by a variable alone.
const YIELDING: (&str, &str) = ("OMPI_MCA_mpi_yield_when_idle", "1");

/// What a program's environment gains: launchers do not bind, unless the user said how
/// (`rebind` overrules that), with `threads` everything starts that narrow, and waiting threads are
/// told to sleep or to spin unless the user's own variables say how they wait.
pub fn additions<'a>(
    present: impl Fn(&str) -> Option<&'a OsStr>,
    rebind: bool,
    threads: Option<u32>,
    waiting: WaitPolicy,
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
    let settings: &[(&str, &str)] = match waiting {
        WaitPolicy::Passive => PASSIVE,
        WaitPolicy::Active => ACTIVE,
        WaitPolicy::Auto | WaitPolicy::AsIs => &[],
    };
    if waiting_variable(&present).is_none() {
        added.extend(settings.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))));
    }
    let (yielding, yes) = YIELDING;
    if waiting == WaitPolicy::Passive && present(yielding).is_none() {
        added.insert(yielding.into(), yes.into());
    }
    added
}

/// The variable by which a program's user told OpenMP how its threads wait.
pub fn waiting_variable<'a>(present: impl Fn(&str) -> Option<&'a OsStr>) -> Option<&'static str> {
    WAITING.iter().copied().find(|name| present(name).is_some())
}

/// The variable by which a program's user told it how many threads to have.
pub fn threads_variable<'a>(present: impl Fn(&str) -> Option<&'a OsStr>) -> Option<&'static str> {
    THREADS.iter().copied().find(|name| present(name).is_some())
}

/// The variable by which a program's user has its threads bound. Started narrow it would bind them to the
/// first CPUs of the machine, wherever it is placed.
pub fn binding_variable<'a>(present: impl Fn(&str) -> Option<&'a OsStr>) -> Option<&'static str> {
    let is_set = |name: &&&str| {
        let value = present(name).map(|value| value.to_string_lossy().trim().to_ascii_lowercase());
        value.is_some_and(|value| !["", "false", "none", "disabled"].contains(&value.as_str()))
    };
    BINDING.iter().find(is_set).copied()
}

/// Whether the policy may choose that it starts with few threads: not where its user said how many, or
/// has them bound.
pub fn may_start_narrow<'a>(present: impl Fn(&str) -> Option<&'a OsStr>) -> bool {
    threads_variable(&present).is_none() && binding_variable(&present).is_none()
}

/// What is left to the scheduler of how its threads wait: nothing where the user's variables say it.
pub fn open_wait_policy<'a>(asked: WaitPolicy, present: impl Fn(&str) -> Option<&'a OsStr>) -> WaitPolicy {
    if waiting_variable(present).is_some() { WaitPolicy::AsIs } else { asked }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_do_not_bind_unless_their_user_asked() {
        let nothing = |_: &str| None;
        let additions = |present: &dyn Fn(&str) -> Option<&'static OsStr>, rebind| {
            additions(present, rebind, None, WaitPolicy::Auto)
        };
        assert_eq!(additions(&nothing, false).len(), NO_BINDING.len());
        let stated = |name: &str| (name == "HYDRA_BINDING").then_some(OsStr::new("core"));
        assert!(!additions(&stated, false).contains_key(OsStr::new("HYDRA_BINDING")));
        assert_eq!(additions(&stated, true)[OsStr::new("HYDRA_BINDING")], "none");
    }

    #[test]
    fn a_narrow_start_reaches_every_runtime_and_keeps_java_options() {
        let java = |name: &str| (name == JAVA).then_some(OsStr::new("-Xmx1g"));
        let added = additions(java, false, Some(3), WaitPolicy::Auto);
        assert_eq!(added[OsStr::new("OMP_NUM_THREADS")], "3");
        assert_eq!(added[OsStr::new("GOMAXPROCS")], "3");
        assert_eq!(added[OsStr::new(JAVA)], "-Xmx1g -XX:ActiveProcessorCount=3");
    }

    #[test]
    fn a_program_whose_threads_are_bound_does_not_start_narrow() {
        let may = |name: &'static str, value: &'static str| {
            may_start_narrow(|asked| (asked == name).then_some(OsStr::new(value)))
        };
        assert!(may("HOME", "/"));
        for stated in ["OMP_NUM_THREADS", "OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"]
        {
            assert!(!may(stated, "2"), "{stated}");
        }
        for (name, value) in [("OMP_PROC_BIND", "FALSE"), ("OMP_PROC_BIND", ""), ("KMP_AFFINITY", "none")] {
            assert!(may(name, value), "{name}={value}");
        }
    }

    #[test]
    fn waiting_is_set_unless_the_user_has_set_it() {
        let set = |waiting, stated: Option<&'static str>| {
            let present = move |name: &str| (Some(name) == stated).then_some(OsStr::new("its"));
            let mut added = additions(present, false, None, waiting);
            added.retain(|name, _| !NO_BINDING.iter().any(|(binding, _)| name == binding));
            added.into_iter().map(|(name, value)| format!("{}={}", name.display(), value.display())).collect()
        };
        let [openmp, blocktime, ranks] =
            ["OMP_WAIT_POLICY=passive", "KMP_BLOCKTIME=0", "OMPI_MCA_mpi_yield_when_idle=1"];
        let passive: Vec<String> = set(WaitPolicy::Passive, None);
        assert_eq!(passive, [blocktime, ranks, openmp]);
        for stated in WAITING {
            assert_eq!(set(WaitPolicy::Passive, Some(stated)), [ranks], "{stated}");
            assert_eq!(set(WaitPolicy::Active, Some(stated)), Vec::<String>::new(), "{stated}");
        }
        assert_eq!(set(WaitPolicy::Passive, Some(YIELDING.0)), [blocktime, openmp]);
        assert_eq!(set(WaitPolicy::Active, None), ["OMP_WAIT_POLICY=active"]);
        for nothing in [WaitPolicy::Auto, WaitPolicy::AsIs] {
            assert_eq!(set(nothing, None), Vec::<String>::new());
        }
        assert_eq!(open_wait_policy(WaitPolicy::Auto, |_| None), WaitPolicy::Auto);
        assert_eq!(open_wait_policy(WaitPolicy::Auto, |_| Some(OsStr::new("0"))), WaitPolicy::AsIs);
    }
}
