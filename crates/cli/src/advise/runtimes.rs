//! What in a program runs threads, told from outside: by the libraries that it has mapped and by its file.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::Serialize;

/// Libraries by the beginning of their file names, and what they are called. Python wheels bring
/// them under names with a suffix of their own.
const OPENMP: &[(&str, &str)] =
    &[("libgomp", "libgomp"), ("libomp.", "libomp"), ("libomp-", "libomp"), ("libiomp5", "libiomp5")];
const RUNTIMES: &[(&str, Runtime)] = &[
    ("libopen-pal", Runtime::OpenMpi),
    ("libmpich", Runtime::Mpich),
    ("libmpi.so.12", Runtime::Mpich),
    ("libmpi", Runtime::Mpi),
    // Numba's layers of threads; it may have OpenBLAS mapped beside them, by NumPy.
    ("omppool.", Runtime::Numba),
    ("tbbpool.", Runtime::Numba),
    ("workqueue.", Runtime::Numba),
    ("libmkl_", Runtime::Mkl),
    ("libopenblas", Runtime::OpenBlas),
    ("libscipy_openblas", Runtime::OpenBlas),
    ("libtbb", Runtime::Tbb),
    ("libjvm", Runtime::Java),
];

/// What runs threads or ranks that wait for one another, other than OpenMP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "&'static str")]
pub enum Runtime {
    OpenMpi,
    Mpich,
    /// A library of another maker.
    Mpi,
    Numba,
    Mkl,
    OpenBlas,
    Tbb,
    Java,
    Go,
    Rayon,
}

impl From<Runtime> for &'static str {
    fn from(runtime: Runtime) -> &'static str {
        match runtime {
            Runtime::OpenMpi => "Open MPI",
            Runtime::Mpich => "MPICH (MPI)",
            Runtime::Mpi => "MPI",
            Runtime::Numba => "Numba",
            Runtime::Mkl => "MKL",
            Runtime::OpenBlas => "OpenBLAS",
            Runtime::Tbb => "TBB",
            Runtime::Java => "Java",
            Runtime::Go => "Go",
            Runtime::Rayon => "Rayon",
        }
    }
}

impl Runtime {
    /// Whether its threads are ranks, which spin for messages.
    pub fn is_mpi(self) -> bool {
        matches!(self, Runtime::OpenMpi | Runtime::Mpich | Runtime::Mpi)
    }

    /// The variable by which it is told how many threads to have, up to their number.
    fn threads_variable(self) -> Option<&'static str> {
        match self {
            Runtime::Numba => Some("NUMBA_NUM_THREADS="),
            Runtime::Mkl => Some("MKL_NUM_THREADS="),
            Runtime::OpenBlas => Some("OPENBLAS_NUM_THREADS="),
            Runtime::Go => Some("GOMAXPROCS="),
            Runtime::Rayon => Some("RAYON_NUM_THREADS="),
            Runtime::Java | Runtime::Tbb | Runtime::OpenMpi | Runtime::Mpich | Runtime::Mpi => None,
        }
    }
}

/// The note by which Go's linker marks its programs stands at their beginning.
const GO_NOTE_WITHIN: u64 = 8 << 10;
/// How far into a program that is known by nothing else is looked for Rayon's traces.
const RAYON_WITHIN: u64 = 64 << 20;

pub fn openmp(maps: &str) -> Option<String> {
    library(maps, OPENMP).map(str::to_owned)
}

pub fn other_runtime(maps: &str) -> Option<Runtime> {
    library(maps, RUNTIMES)
}

/// The setting for so many threads, as it stands before a command.
pub fn setting(openmp: bool, runtime: Option<Runtime>, threads: usize) -> Option<String> {
    let own = runtime.and_then(Runtime::threads_variable);
    let java = (runtime == Some(Runtime::Java)).then_some("JAVA_TOOL_OPTIONS=-XX:ActiveProcessorCount=");
    let variable = own.or(openmp.then_some("OMP_NUM_THREADS=")).or(java)?;
    Some(format!("{variable}{threads}"))
}

/// The first of these libraries that is mapped.
fn library<T: Copy>(maps: &str, known: &[(&str, T)]) -> Option<T> {
    let files: Vec<&str> =
        maps.lines().filter_map(|line| line.rsplit_once('/')).map(|(_, file)| file).collect();
    let found = known.iter().find(|(name, _)| files.iter().any(|file| file.starts_with(name)));
    found.map(|(_, runtime)| *runtime)
}

/// What is linked into the program itself.
pub fn linked_in(program: &Path) -> Option<Runtime> {
    let mut head = Vec::new();
    File::open(program).ok()?.take(RAYON_WITHIN).read_to_end(&mut head).ok()?;
    known_by_bytes(&head)
}

fn known_by_bytes(program: &[u8]) -> Option<Runtime> {
    // An ELF note: length of its name, length of what it says, kind 4 (the build's number), name.
    let go = |note: &[u8]| {
        note[..4] == 4_u32.to_ne_bytes() && note[8..12] == 4_u32.to_ne_bytes() && note[12..] == *b"Go\0\0"
    };
    let beginning = &program[..program.len().min(GO_NOTE_WITHIN as usize)];
    if beginning.windows(16).any(go) {
        return Some(Runtime::Go);
    }
    // The path of its sources, in the messages of its panics, which stay when symbols are stripped.
    let name = b"rayon-core-";
    memmem(program, name).then_some(Runtime::Rayon)
}

fn memmem(text: &[u8], wanted: &[u8]) -> bool {
    let first = wanted[0];
    let mut rest = text;
    while let Some(at) = rest.iter().position(|byte| *byte == first) {
        if rest[at..].starts_with(wanted) {
            return true;
        }
        rest = &rest[at + 1..];
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtime_libraries_are_known_by_file_also_in_wheels() {
        let maps = "1-2 r-xp 0 08:01 5 /usr/lib/libc.so.6\n\
                    2-3 r-xp 0 08:01 6 /venv/numpy.libs/libscipy_openblas64_-ff.so\n\
                    3-4 r-xp 0 08:01 7 /venv/lightgbm.libs/libgomp-24e2ab19.so.1.0.0\n";
        assert_eq!(openmp(maps).as_deref(), Some("libgomp"));
        assert_eq!(other_runtime(maps), Some(Runtime::OpenBlas));
        assert_eq!(openmp(""), None);
        assert_eq!(other_runtime("1-2 r-xp 0 08:01 5 /usr/lib/libmpi.so.40\n"), Some(Runtime::Mpi));
        let numba = format!("{maps}4-5 r-xp 0 08:01 8 /venv/numba/np/ufunc/workqueue.cpython-311.so\n");
        assert_eq!(other_runtime(&numba), Some(Runtime::Numba));
    }

    #[test]
    fn go_and_rayon_are_recognised_by_their_programs_bytes() {
        let note = |name: &[u8; 4]| {
            let words = [4_u32, 83, 4].map(u32::to_ne_bytes).concat();
            [&[0x7f; 100][..], &words, name, b"build"].concat()
        };
        assert_eq!(known_by_bytes(&note(b"Go\0\0")), Some(Runtime::Go));
        assert_eq!(known_by_bytes(&note(b"GNU\0")), None);
        assert_eq!(known_by_bytes(b"..r/rayon-core-1.12.1/src/registry.rs"), Some(Runtime::Rayon));
        assert_eq!(known_by_bytes(b"rayon-cor"), None);
        assert_eq!(linked_in(Path::new("/bin/sh")), None);
        assert_eq!(linked_in(Path::new("/nowhere")), None);
    }

    #[test]
    fn every_runtime_is_set_by_its_own_variable() {
        let setting_for = |openmp, runtime| setting(openmp, runtime, 3).unwrap_or_default();
        assert_eq!(setting_for(true, None), "OMP_NUM_THREADS=3");
        assert_eq!(setting_for(true, Some(Runtime::OpenMpi)), "OMP_NUM_THREADS=3");
        assert_eq!(setting_for(true, Some(Runtime::OpenBlas)), "OPENBLAS_NUM_THREADS=3");
        assert_eq!(setting_for(false, Some(Runtime::Go)), "GOMAXPROCS=3");
        assert_eq!(setting_for(false, Some(Runtime::Rayon)), "RAYON_NUM_THREADS=3");
        assert_eq!(setting_for(false, Some(Runtime::Java)), "JAVA_TOOL_OPTIONS=-XX:ActiveProcessorCount=3");
        assert_eq!(setting_for(false, Some(Runtime::Tbb)), "");
    }
}
