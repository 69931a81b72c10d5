//! What the functions of the OpenMP runtimes mean for the thread that calls them inside a region.

/// An imported function as the analysis sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    ThreadNumber,
    TeamSize,
    GlobalNumber,
    /// Writes the bounds of a chunk through the pointers that it is given; returns whether there is one.
    Chunk,
    /// LLVM's: writes the bounds of the one share; only the plain static schedule has that.
    StaticShare,
    /// Returns whether this thread is the one that is to do what follows.
    Chooses,
    /// Has no effect that a thread's share could change: barriers, ends of loops.
    Harmless,
    /// A construct of OpenMP that is not followed.
    Construct,
    /// Asks for more about the team than a share needs.
    Asks,
    Unknown,
}

/// Everything by which code can learn what thread it is, or how many there are, by way of the runtime.
pub const ASKS_TEAM: [&str; 2] = ["omp_get_thread_num", "omp_get_num_threads"];

/// Questions that no share needs, or that the operating system answers.
pub const ASKS_IDENTITY: [&str; 29] = [
    "omp_in_parallel",
    "omp_get_level",
    "omp_get_active_level",
    "omp_get_ancestor_thread_num",
    "omp_get_team_size",
    "omp_get_team_num",
    "omp_get_num_teams",
    "omp_get_place_num",
    "omp_get_partition_num_places",
    "omp_get_partition_place_nums",
    "omp_get_thread_num_",
    "omp_get_num_threads_",
    "omp_in_parallel_",
    "omp_get_level_",
    "uselocale",
    "pthread_self",
    "thrd_current",
    "pthread_getspecific",
    "pthread_setspecific",
    "tss_get",
    "tss_set",
    "gettid",
    "sched_getcpu",
    "getcpu",
    "__tls_get_addr",
    "__emutls_get_address",
    "__kmpc_threadprivate_cached",
    "__kmpc_threadprivate",
    "__kmpc_copyprivate",
];

/// What only matters where regions run it: state that the C library or the kernel keeps for each thread.
pub const STATE_OF_THREAD: [&str; 10] = [
    "__errno_location",
    "__h_errno_location",
    "__res_state",
    "syscall",
    "prctl",
    "sched_getaffinity",
    "sched_setaffinity",
    "getrusage",
    "dlerror",
    "strerror",
];

/// Whether a function sets or reads the floating-point environment of its thread: C's, and Fortran's modules.
pub fn is_of_floating_point_state(name: &str) -> bool {
    const NAMES: [&str; 16] = [
        "fesetround",
        "fegetround",
        "fesetenv",
        "fegetenv",
        "feholdexcept",
        "feupdateenv",
        "feclearexcept",
        "feraiseexcept",
        "fetestexcept",
        "fegetexceptflag",
        "fesetexceptflag",
        "fesetexcept",
        "feenableexcept",
        "fedisableexcept",
        "fesetmode",
        "fegetmode",
    ];
    NAMES.contains(&name) || name.starts_with("_gfortran_ieee_procedure")
}

/// Names that a program looks up at run time have to stand in its data.
pub const LOOKUP_CALLS: [&str; 2] = ["dlsym", "dlvsym"];

/// By which a program starts a region: the register that holds the region's function.
pub fn starts_region(name: &str) -> Option<iced_x86::Register> {
    match name {
        "__kmpc_fork_call" | "__kmpc_fork_teams" => Some(iced_x86::Register::RDX),
        _ if name.starts_with("GOMP_parallel") && name != "GOMP_parallel_end" => {
            Some(iced_x86::Register::RDI)
        }
        _ => None,
    }
}

/// Whether an object that needs this function starts regions or asks about teams.
pub fn is_of_openmp(name: &str) -> bool {
    starts_region(name).is_some() || ASKS_TEAM.contains(&name) || name.starts_with("omp_get_thread_num")
}

const HARMLESS: [&str; 16] = [
    "GOMP_barrier",
    "GOMP_loop_end",
    "GOMP_loop_end_nowait",
    "__kmpc_barrier",
    "__kmpc_for_static_fini",
    "__kmpc_dispatch_fini_4",
    "__kmpc_dispatch_fini_8",
    "__kmpc_dispatch_fini_4u",
    "__kmpc_dispatch_fini_8u",
    "__kmpc_dispatch_init_4",
    "__kmpc_dispatch_init_8",
    "__kmpc_dispatch_init_4u",
    "__kmpc_dispatch_init_8u",
    "__kmpc_end_single",
    "__kmpc_end_master",
    "__kmpc_end_masked",
];

/// Answers do not depend on the team, or the order between threads is all that they touch.
const LIKE_OTHERS: [&str; 17] = [
    "GOMP_critical_start",
    "GOMP_critical_end",
    "GOMP_critical_name_start",
    "GOMP_critical_name_end",
    "GOMP_atomic_start",
    "GOMP_atomic_end",
    "__kmpc_critical",
    "__kmpc_critical_with_hint",
    "__kmpc_end_critical",
    "omp_set_lock",
    "omp_unset_lock",
    "omp_get_wtime",
    "omp_get_max_threads",
    "omp_get_num_procs",
    "omp_init_lock",
    "omp_destroy_lock",
    "omp_get_wtick",
];

pub fn meaning(name: &str) -> Call {
    let is_chunk = |prefix: &str| {
        name.strip_prefix(prefix).is_some_and(|rest| {
            (rest.ends_with("_start") || rest.ends_with("_next"))
                && !rest.contains("ordered")
                && !rest.contains("doacross")
                // Begins a loop with more of its own; shares of a static one have a chunk.
                && !rest.starts_with("static")
                && rest != "start"
        })
    };
    match name {
        "omp_get_thread_num" => Call::ThreadNumber,
        "omp_get_num_threads" => Call::TeamSize,
        "__kmpc_global_thread_num" => Call::GlobalNumber,
        "GOMP_single_start" | "__kmpc_single" | "__kmpc_master" | "__kmpc_masked" => Call::Chooses,
        _ if HARMLESS.contains(&name) => Call::Harmless,
        _ if LIKE_OTHERS.contains(&name) => Call::Unknown,
        _ if ASKS_IDENTITY.contains(&name) => Call::Asks,
        _ if name.starts_with("__kmpc_dispatch_next_") => Call::Chunk,
        _ if name.starts_with("__kmpc_for_static_init_") => Call::StaticShare,
        _ if is_chunk("GOMP_loop_ull_") || is_chunk("GOMP_loop_") => Call::Chunk,
        _ if ["GOMP_", "__kmpc_", "omp_", "GOACC_"].iter().any(|prefix| name.starts_with(prefix)) => {
            Call::Construct
        }
        _ => Call::Unknown,
    }
}

/// The schedule by which `__kmpc_for_static_init_*` deals one contiguous share to each thread.
pub const LLVM_STATIC: i64 = 34;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constructs_differ_from_worksharing() {
        for (name, expected) in [
            ("GOMP_loop_nonmonotonic_dynamic_start", Call::Chunk),
            ("GOMP_loop_ull_guided_next", Call::Chunk),
            ("GOMP_loop_maybe_nonmonotonic_runtime_next", Call::Chunk),
            ("GOMP_loop_ordered_dynamic_start", Call::Construct),
            ("GOMP_loop_doacross_static_start", Call::Construct),
            ("GOMP_loop_end_nowait", Call::Harmless),
            ("GOMP_task", Call::Construct),
            ("GOMP_critical_start", Call::Unknown),
            ("__kmpc_reduce_nowait", Call::Construct),
            ("__kmpc_for_static_init_8u", Call::StaticShare),
            ("omp_in_parallel", Call::Asks),
            ("sin", Call::Unknown),
        ] {
            assert_eq!(meaning(name), expected, "{name}");
        }
    }
}
