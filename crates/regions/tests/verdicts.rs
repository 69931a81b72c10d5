//! What is found in code that a compiler has just made.

use std::fs;
use std::path::Path;
use std::process::Command;

use coplace_regions::{Cause, Verdict, analyse, uses_openmp};

const HEAD: &str =
    "#include <omp.h>\n#include <math.h>\nlong n; double *a, *b; long *c, count, chunk; int flag;\n";

/// `None`: the compiler is not there.
fn built(compiler: &str, flags: &[&str], code: &str, directory: &Path) -> Option<Vec<u8>> {
    let (source, program) = (directory.join("x.c"), directory.join("x"));
    fs::write(&source, format!("{HEAD}{code}\nint main(void) {{ f(); return 0; }}\n")).unwrap();
    let mut command = Command::new(compiler);
    command.args(["-O2", "-fopenmp", "-I"]).arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../include"));
    let output = command.args(flags).arg("-o").arg(&program).arg(&source).arg("-lm").output().ok()?;
    assert!(output.status.success(), "{compiler}: {}", String::from_utf8_lossy(&output.stderr));
    assert!(uses_openmp(&fs::File::open(&program).unwrap()));
    Some(fs::read(program).unwrap())
}

fn found(compiler: &str, flags: &[&str], code: &str) -> Option<Verdict> {
    let directory = tempfile::tempdir().unwrap();
    built(compiler, flags, code, directory.path()).map(|bytes| analyse(&bytes))
}

fn skips() -> bool {
    let skips = !cfg!(target_arch = "x86_64");
    if skips {
        coplace_skipped::skipped_here("code of this processor is not analysed");
    }
    skips
}

const INDEPENDENT: [&str; 10] = [
    "void f(void) {\n#pragma omp parallel for\nfor (long i = 0; i < n; i++) a[i] = b[i] * 2 + 1; }",
    "void f(void) {\n#pragma omp parallel for num_threads(4)\nfor (long i = 0; i < n; i++) a[i] = sin(b[i]); }",
    "void f(void) {\n#pragma omp parallel for schedule(dynamic, 4)\nfor (long i = 0; i < n; i++) a[i] = b[i] / 3; }",
    "void f(void) {\n#pragma omp parallel for schedule(guided)\nfor (long i = 0; i < n; i++) c[i] += i % 7; }",
    // Rows, each summed by one thread.
    "void f(void) {\n#pragma omp parallel for\nfor (long i = 0; i < n; i++) { double s = 0; for (long j = 0; j < n; j++) s += a[i * n + j]; b[i] = s; } }",
    "void f(void) {\n#pragma omp parallel\nfor (int t = 0; t < 9; t++) {\n#pragma omp for\nfor (long i = 0; i < n; i++) a[i] = b[i];\n#pragma omp for\nfor (long i = 0; i < n; i++) b[i] = a[i] + 1; } }",
    // Cut by the team that it has.
    "void f(void) {\n#pragma omp parallel\n{ long t = omp_get_thread_num(), k = omp_get_num_threads(); for (long i = t * n / k; i < (t + 1) * n / k; i++) a[i] = b[i] + 1; } }",
    "void f(void) {\n#pragma omp parallel\n{\n#pragma omp for\nfor (long i = 0; i < n; i++) a[i] = b[i];\n#pragma omp single\nflag = 1;\n} }",
    // Asked outside of regions.
    "#include <errno.h>\nvoid f(void) {\n#pragma omp parallel for\nfor (long i = 0; i < n; i++) a[i] = b[i];\nflag = errno; }",
    "void f(void) { n = omp_get_max_threads();\n#pragma omp parallel for\nfor (long i = 0; i < n; i++) c[i] = 1; }",
];

/// Each with what must stand in the way.
const DEPENDENT: [(&str, Cause); 23] = [
    ("void f(void) {\n#pragma omp parallel\n{\n#pragma omp atomic\ncount++;\n} }", Cause::EachThread),
    ("void f(void) {\n#pragma omp parallel\nflag = 1; }", Cause::EachThread),
    ("void f(void) {\n#pragma omp parallel\na[omp_get_thread_num()] = 1; }", Cause::ThreadNumber),
    (
        "void f(void) {\n#pragma omp parallel\nif (omp_get_num_threads() != flag) __builtin_trap(); }",
        Cause::ThreadNumber,
    ),
    // By a chunk of a former team.
    (
        "void f(void) {\n#pragma omp parallel\n{ long t = omp_get_thread_num(); for (long i = t * chunk; i < (t + 1) * chunk; i++) a[i] = i; } }",
        Cause::ThreadNumber,
    ),
    // The remainder is left.
    (
        "void f(void) {\n#pragma omp parallel\n{ long t = omp_get_thread_num(), q = n / omp_get_num_threads(); for (long i = t * q; i < t * q + q; i++) a[i] = i; } }",
        Cause::ThreadNumber,
    ),
    // Half a bound, as an index of its own.
    (
        "void f(void) {\n#pragma omp parallel\n{ long t = omp_get_thread_num(), k = omp_get_num_threads(), o = t * n / k / 2; for (long i = t * n / k; i < (t + 1) * n / k; i += 2) b[o++] = a[i]; } }",
        Cause::Carried,
    ),
    (
        "void f(void) {\n#pragma omp parallel\n{ long k = 0;\n#pragma omp for\nfor (long i = 0; i < n; i++) c[i] = k++;\n} }",
        Cause::Carried,
    ),
    (
        "void f(void) {\n#pragma omp parallel\n{ double x = 1;\n#pragma omp for\nfor (long i = 0; i < n; i++) { x *= a[i]; b[i] = x; }\n} }",
        Cause::Carried,
    ),
    (
        "long f2(void) { return omp_get_thread_num(); } void f(void) {\n#pragma omp parallel for\nfor (long i = 0; i < n; i++) a[i] = i; flag = f2(); }",
        Cause::AskedElsewhere,
    ),
    (
        "static __thread long t; void f(void) {\n#pragma omp parallel for\nfor (long i = 0; i < n; i++) { t += i; a[i] = t; } }",
        Cause::ThreadLocal,
    ),
    (
        "#include <pthread.h>\nvoid f(void) {\n#pragma omp parallel for\nfor (long i = 0; i < n; i++) c[i] = (long)pthread_self(); }",
        Cause::ThreadIdentity,
    ),
    (
        "void f(void) {\n#pragma omp parallel\n#pragma omp single\n{\n#pragma omp task\nflag = 1;\n} }",
        Cause::Construct,
    ),
    // Counted in 32 bits, added in 64.
    (
        "void f(void) {\n#pragma omp parallel\n{ unsigned s = 0;\n#pragma omp for nowait\nfor (long i = 0; i < n; i++) s += c[i];\n#pragma omp atomic\ncount += s;\n} }",
        Cause::Reduction,
    ),
    (
        "void f(void) {\n#pragma omp parallel\n{ short s = 0;\n#pragma omp for nowait\nfor (long i = 0; i < n; i++) s += c[i];\n#pragma omp atomic\ncount += s;\n} }",
        Cause::Reduction,
    ),
    // One more by each thread.
    (
        "void f(void) {\n#pragma omp parallel\n{ long s = 0;\n#pragma omp for nowait\nfor (long i = 0; i < n; i++) s += c[i];\ns++;\n#pragma omp atomic\ncount += s;\n} }",
        Cause::Reduction,
    ),
    // What a share has come to so far, again and again.
    (
        "void f(void) {\n#pragma omp parallel\n{ long s = 0;\n#pragma omp for nowait\nfor (long i = 0; i < n; i++) { s += c[i];\n#pragma omp atomic\ncount += s;\n} } }",
        Cause::Reduction,
    ),
    (
        "#include <fenv.h>\nvoid f(void) { fesetround(FE_UPWARD);\n#pragma omp parallel for\nfor (long i = 0; i < n; i++) a[i] = b[i] / 3; }",
        Cause::FloatingPointState,
    ),
    (
        "#include <xmmintrin.h>\nvoid f(void) { _mm_setcsr(_mm_getcsr() | 0x8040);\n#pragma omp parallel for\nfor (long i = 0; i < n; i++) a[i] = b[i] / 3; }",
        Cause::FloatingPointState,
    ),
    (
        "#include <errno.h>\n#include <stdlib.h>\nchar *t[9]; static __attribute__((noinline)) int bad(void) { return errno; }\nvoid f(void) {\n#pragma omp parallel for\nfor (long i = 0; i < n; i++) { a[i] = strtod(t[i % 9], 0); c[i] = bad(); } }",
        Cause::LibraryState,
    ),
    (
        "#include <unistd.h>\n#include <sys/syscall.h>\nvoid f(void) {\n#pragma omp parallel for\nfor (long i = 0; i < n; i++) c[i] = syscall(SYS_gettid); }",
        Cause::LibraryState,
    ),
    (
        "#define _GNU_SOURCE\n#include <dlfcn.h>\nvoid f(void) { int (*me)(void) = (int (*)(void))dlsym(0, \"omp_get_thread_num\");\n#pragma omp parallel for\nfor (long i = 0; i < n; i++) c[i] = me(); }",
        Cause::ThreadIdentity,
    ),
    // Thread zero is chosen, the others do something, too.
    (
        "void f(void) {\n#pragma omp parallel\nif (omp_get_thread_num() == 0) flag = 1; else count = 2; }",
        Cause::EachThread,
    ),
];

#[test]
fn plain_worksharing_is_independent() {
    if skips() {
        return;
    }
    for compiler in ["gcc", "clang"] {
        for code in INDEPENDENT {
            let Some(verdict) = found(compiler, &[], code) else { return };
            assert!(
                matches!(verdict, Verdict::Independent { regions: 1.. }),
                "{compiler}: {verdict:?}\n{code}"
            );
        }
    }
}

#[test]
fn dependence_on_the_team_is_found_with_its_reason() {
    if skips() {
        return;
    }
    for (code, cause) in DEPENDENT {
        let Some(Verdict::Dependent(reason)) = found("gcc", &[], code) else {
            panic!("independent:\n{code}")
        };
        assert_eq!(reason.cause, cause, "{code}");
        for (compiler, flags) in [("gcc", "-O0"), ("gcc", "-O3"), ("clang", "-O2"), ("clang", "-O0")] {
            let Some(verdict) = found(compiler, &[flags], code) else { continue };
            assert!(matches!(verdict, Verdict::Dependent(_)), "{compiler} {flags}: {verdict:?}\n{code}");
        }
    }
}

#[test]
fn sums_of_integers_are_independent_and_of_doubles_not() {
    if skips() {
        return;
    }
    let sum = |kind: &str, by: &str| {
        format!(
            "void f(void) {{ {kind} s = 0;\n#pragma omp parallel for reduction({by}:s)\nfor (long i = 0; i < n; i++) s = s {by} c[i]; a[0] = s; }}"
        )
    };
    assert!(matches!(found("gcc", &[], &sum("long", "+")), Some(Verdict::Independent { .. })));
    for (kind, by) in [("double", "+"), ("float", "+"), ("double", "*"), ("long double", "+")] {
        let verdict = found("gcc", &[], &sum(kind, by));
        assert!(matches!(verdict, Some(Verdict::Dependent(_))), "{kind} {by}: {verdict:?}");
    }
    // One more for each thread.
    let ones = "void f(void) { long s = 0;\n#pragma omp parallel reduction(+:s)\ns = 1; count = s; }";
    assert!(matches!(found("gcc", &[], ones), Some(Verdict::Dependent(_))));
}

#[test]
fn stripped_objects_are_dependent_unless_their_author_speaks() {
    if skips() {
        return;
    }
    let plain = INDEPENDENT[0];
    let Some(Verdict::Dependent(reason)) = found("gcc", &["-s"], plain) else { panic!("it has no symbols") };
    assert_eq!(reason.cause, Cause::Stripped);
    let declared = format!("#include <coplace/resizable.h>\nCOPLACE_RESIZABLE;\n{plain}");
    assert_eq!(found("gcc", &["-s"], &declared), Some(Verdict::Declared));
}

#[test]
fn damaged_files_are_dependent_or_have_no_regions() {
    if skips() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let Some(bytes) = built("gcc", &[], INDEPENDENT[5], directory.path()) else { return };
    let mut seed = 7_u32;
    for _ in 0..300 {
        let mut damaged = bytes.clone();
        for _ in 0..20 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let at = seed as usize % damaged.len();
            damaged[at] ^= (seed >> 24) as u8;
        }
        damaged.truncate(damaged.len() - seed as usize % 4096);
        // Whatever it says, it says it in time and without a panic.
        analyse(&damaged);
    }
    assert_eq!(analyse(b"no program").to_owned(), analyse(b""));
}
