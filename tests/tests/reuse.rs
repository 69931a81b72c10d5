//! The reuse tool on real programs: against the Rust engine, against arithmetic, against DistGen.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use coplace_tests::{Home, app, helper, skipped, top};
use reuse::{Exact, Histogram, Rate, Report, Scope, Shards};
use serde_json::Value;

const FETCH: u64 = 1 << 63;

/// The folder of the tool, built once; `None`, loudly, where valgrind is missing.
fn tool(test: &str) -> Option<PathBuf> {
    static BUILT: OnceLock<bool> = OnceLock::new();
    let folder = top().join("build/reuse-tool");
    let built = *BUILT.get_or_init(|| {
        let make = Command::new("make")
            .args(["--quiet", "-C", "reuse-tool"])
            .arg(format!("OUT={}", folder.display()))
            .current_dir(top())
            .output()
            .expect("make runs");
        assert!(make.status.success(), "{}", String::from_utf8_lossy(&make.stderr));
        let there = fs::read_dir(&folder).is_ok_and(|mut entries| {
            entries.any(|entry| {
                entry.is_ok_and(|entry| entry.file_name().to_string_lossy().starts_with("reuse-"))
            })
        });
        there && Command::new("valgrind").arg("--version").output().is_ok()
    });
    if !built {
        skipped(test, "there is no valgrind with headers");
    }
    built.then_some(folder)
}

/// `coplace lab reuse`, with its JSON.
fn measured(home: &Home, tool: &Path, options: &[&str], program: &[&str]) -> (Value, Output) {
    let json = home.path().join("reuse.json");
    let _ = fs::remove_file(&json);
    let mut command = home.coplace();
    command.env("COPLACE_REUSE_TOOL", tool).env("OMP_NUM_THREADS", "1").args(["lab", "reuse", "--json"]);
    command.arg(&json).args(options).arg("--").args(program);
    let output = command.output().expect("coplace can be started");
    let text = fs::read(&json).unwrap_or_default();
    (serde_json::from_slice(&text).unwrap_or(Value::Null), output)
}

fn part<'v>(json: &'v Value, scope: &Value) -> &'v Value {
    let parts = json["programs"][0]["parts"].as_array().unwrap_or_else(|| panic!("no parts in {json}"));
    parts.iter().find(|part| part["scope"] == *scope).unwrap_or_else(|| panic!("no {scope}"))
}

/// Accesses with a depth in a range, of JSON rows.
fn between(part: &Value, from: f64, to: f64) -> f64 {
    let rows = part["rows"].as_array().expect("rows");
    let inside =
        |row: &&Value| row["from_lines"].as_f64().unwrap() >= from && row["to_lines"].as_f64().unwrap() <= to;
    rows.iter().filter(inside).map(|row| row["accesses"].as_f64().unwrap()).sum()
}

/// Runs the tool itself: its report and the trace, as (line, how often, thread, whether fetched).
fn traced(
    home: &Home,
    tool: &Path,
    options: &[&str],
    program: &[&str],
) -> (Report, Vec<(u64, u64, u32, bool)>) {
    let (prefix, trace) = (home.path().join("report"), home.path().join("trace"));
    let mut command = home.command("valgrind");
    command.env("VALGRIND_LIB", tool).env("OMP_WAIT_POLICY", "passive").args(["-q", "--tool=reuse"]);
    command.arg(format!("--out={}", prefix.display())).arg(format!("--trace={}", trace.display()));
    let output = command.args(options).args(program).output().expect("valgrind runs");
    assert!(output.status.success(), "{output:?}");
    let report = fs::read_dir(home.path()).unwrap().flatten().map(|entry| entry.path());
    let report =
        report.into_iter().find(|path| path.to_string_lossy().contains("/report.")).expect("a report");
    let text = fs::read_to_string(&report).unwrap();
    fs::remove_file(report).unwrap();
    let words = fs::read(&trace).unwrap();
    let entry = |word: &[u8]| {
        let word = u64::from_le_bytes(word.try_into().unwrap());
        (word & ((1 << 44) - 1), (word >> 44 & 0xff) + 1, (word >> 52 & 0x7ff) as u32, word & FETCH != 0)
    };
    (Report::parse(&text).unwrap(), words.chunks_exact(8).map(entry).collect())
}

fn exact(lines: impl Iterator<Item = (u64, u64)>) -> Histogram {
    let (mut engine, mut histogram) = (Exact::new(), Histogram::new());
    for (line, times) in lines {
        (0..times).for_each(|_| histogram.record(engine.access(line), 1.0));
    }
    histogram
}

#[test]
fn the_tool_says_of_its_own_trace_what_the_rust_engine_says() {
    let Some(tool) = tool("the tool against the Rust engine") else { return };
    let home = Home::new();
    let program = [&*app("pthreads_spin"), "--size", "2000", "--iterations", "8", "--threads", "2"];
    let (report, trace) = traced(&home, &tool, &["--fetches=yes"], &program);
    let data = || trace.iter().filter(|entry| !entry.3);
    // All threads' accesses as they followed one another: the shared cache's histogram.
    assert_eq!(
        report.program_part().unwrap().histogram,
        exact(data().map(|e| (e.0, e.1))),
        "the whole program"
    );
    let fetched = trace.iter().filter(|entry| entry.3).map(|e| (e.0, e.1));
    assert_eq!(report.part(Scope::Instructions).unwrap().histogram, exact(fetched), "instructions");
    assert!(report.threads().count() >= 2, "it has two threads");
    for part in report.threads() {
        let Scope::Thread(number) = part.scope else { unreachable!() };
        let own = data().filter(|entry| entry.2 == number).map(|e| (e.0, e.1));
        assert_eq!(part.histogram, exact(own), "thread {number}");
    }
}

#[test]
fn a_sample_is_the_same_in_the_tool_and_in_rust() {
    let Some(tool) = tool("the tool's samples against the Rust engine") else { return };
    let home = Home::new();
    let program = [&*app("pthreads_spin"), "--size", "2000", "--iterations", "10", "--threads", "1"];
    let (_, trace) = traced(&home, &tool, &[], &program);
    let lines: Vec<u64> = trace.iter().map(|entry| entry.0).collect();
    for (option, rate) in [
        (format!("--sample-threshold={}", (0.25 * 2f64.powi(64)) as u64), Rate::Fixed(0.25)),
        ("--sample-size=200".into(), Rate::Size(200)),
    ] {
        let prefix = home.path().join("sampled");
        let mut command = home.command("valgrind");
        command.env("VALGRIND_LIB", &tool).env("OMP_WAIT_POLICY", "passive").args([
            "-q",
            "--tool=reuse",
            &option,
        ]);
        command.arg(format!("--out={}", prefix.display())).args(program);
        // Not traced: a trace has only what is in the sample. Addresses are the same in every run.
        let output = command.output().expect("valgrind runs");
        assert!(output.status.success(), "{output:?}");
        let path = fs::read_dir(home.path()).unwrap().flatten().map(|entry| entry.path());
        let path =
            path.into_iter().find(|path| path.to_string_lossy().contains("/sampled.")).expect("a report");
        let report = Report::parse(&fs::read_to_string(&path).unwrap()).unwrap();
        fs::remove_file(path).unwrap();
        let mut shards = Shards::new(rate);
        shards.access_all(&lines);
        let (theirs, ours) = (&report.program_part().unwrap().histogram, shards.estimate().histogram);
        // Timing calls differ a little between two runs.
        assert!((theirs.accesses() / ours.accesses() - 1.0).abs() < 0.01, "{rate:?}");
        let difference = theirs.mean_difference(&ours, 1, 1 << 14);
        assert!(difference < 0.005, "{rate:?}: {difference}");
    }
}

#[test]
fn distgen_has_the_distances_that_it_was_asked_for() {
    let Some(tool) = tool("DistGen under the reuse tool") else { return };
    let home = Home::new();
    let coplace = coplace_tests::coplace();
    let coplace = coplace.to_str().unwrap();
    let distances = ["1K", "4K", "12K", "40K", "150K", "600K"];
    let mut wrong: Vec<String> = Vec::new();
    // Twenty mixtures of one to four distances, of all orders.
    for number in 0..20usize {
        let count = 1 + number % 4;
        let mixture: Vec<(usize, u32)> = (0..count)
            .map(|i| {
                ((number * 5 + i * (1 + number / 7)) % distances.len(), 1 + (number * 3 + i * 2) as u32 % 5)
            })
            .collect();
        let mut shares: Vec<(f64, f64)> = Vec::new();
        let mut text = Vec::new();
        for (distance, weight) in mixture {
            let word = distances[distance];
            let lines = word.trim_end_matches('K').parse::<f64>().unwrap() * 16.0;
            if shares.iter().all(|share| share.0 != lines) {
                shares.push((lines, f64::from(weight)));
                text.push(format!("{word}:{weight}"));
            }
        }
        let sum: f64 = shares.iter().map(|share| share.1).sum();
        let order = ["stream", "random", "linked"][number % 3];
        let program = [
            coplace,
            "lab",
            "distgen",
            &text.join(","),
            "--order",
            order,
            "--accesses",
            "4000000",
            "--interval",
            "1min",
        ];
        let (json, output) = measured(&home, &tool, &["--without-native"], &program);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(json["programs"][0]["ended"], serde_json::json!({ "exit": 0 }), "{output:?}");
        // The thread that reads is the second.
        let thread = part(&json, &serde_json::json!({ "thread": 2 }));
        let accesses = thread["accesses"].as_f64().unwrap();
        for (lines, weight) in shares {
            let found = between(thread, lines * 0.98 - 3.0, lines * 1.02 + 3.0) / accesses;
            let wanted = weight / sum;
            if (found - wanted).abs() >= 0.02 {
                wrong.push(format!("{} {order}: {found} of {wanted} at {lines} lines", text.join(",")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn kernels_have_the_distances_of_their_arithmetic() {
    let Some(tool) = tool("kernels under the reuse tool") else { return };
    let home = Home::new();
    // Triad: three arrays of n doubles, each line of them read or written again after all of them.
    for n in [20_000u32, 40_000] {
        let program = [&*app("triad"), "--size", &n.to_string(), "--iterations", "30"];
        let (json, output) = measured(&home, &tool, &["--without-native", "--without-stack"], &program);
        assert!(output.status.success(), "{output:?}");
        let lines = f64::from(n) * 24.0 / 64.0;
        let all = part(&json, &Value::from("program"));
        // Thirty passes; what fills the arrays before and verifies them afterwards is as deep.
        let passes = between(all, lines * 0.97, lines * 1.03) / lines;
        assert!((29.5..32.5).contains(&passes), "n {n}: {passes} passes over {lines} lines");
    }
    // CG with n rows, ten solves of forty steps: the matrix, the vectors and the gathers move with n. Depths in
    // lines, as multiples of n; accesses, of which those that stay on a line count nothing, as multiples of n a step.
    for n in [4_000u32, 8_000] {
        let program = [&*app("cg"), "--size", &n.to_string(), "--iterations", "10"];
        let (json, output) = measured(&home, &tool, &["--without-native"], &program);
        assert!(output.status.success(), "{output:?}");
        let all = part(&json, &Value::from("program"));
        let n = f64::from(n);
        for (what, from, to, wanted) in [
            // Read once a step, between one step and the next: 204 bytes of matrix a row, 244 with everything.
            ("matrix", 190.0 / 64.0, 260.0 / 64.0, 204.0 / 64.0),
            // A vector has n/8 lines. The last loop comes back to r and p from afar by a half (at its beginning) to a
            // quarter (at its end), the loop before it to p from 0.09 to 0.52 after the gathers: evenly.
            ("vectors", 0.3, 0.5, 0.2 / 0.25 * 2.0 / 8.0 + 0.2 / 0.43 / 8.0),
            // 17 gathers a row out of n/8 lines: each line comes again after u n/136 rows, u by the exponential law,
            // and so many rows touch 0.0243 u n lines of the matrix and (1 - exp(-u)) n/8 of the vector: between
            // u = 0.143 and 3.27 here.
            ("gathers", 0.02, 0.2, 17.0 * (f64::exp(-0.143) - f64::exp(-3.27))),
        ] {
            let share = between(all, from * n, to * n) / (wanted * n * 400.0);
            assert!((0.85..1.25).contains(&share), "cg {n}: {share} of the {what}' accesses");
        }
    }
}

/// The tool, and a program of a source, where this processor has what it needs.
fn built(test: &str, source: &str, there: bool, flags: &[&str]) -> Option<(PathBuf, Home, String)> {
    let tool = tool(test)?;
    if !there {
        skipped(test, "not on this processor");
        return None;
    }
    let home = Home::new();
    let binary = home.path().join("program");
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-std=gnu11"]).args(flags).arg("-o").arg(&binary).arg(top().join(source)).arg("-lm");
    let built = cc.output().expect("there is a C compiler");
    assert!(built.status.success(), "{built:?}");
    let binary = binary.to_str().expect("a path in UTF-8").to_owned();
    Some((tool, home, binary))
}

/// For programs with vectors and fused multiplications.
const FUSED_FLAGS: [&str; 2] = ["-mavx2", "-mfma"];

fn has_fused() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}

/// Runs a program that prints a hash of what it computed, natively and under the tool, exact and with a sample.
fn same_natively_and_measured((tool, home, program): &(PathBuf, Home, String), name: &str) {
    let native = Command::new(program).output().expect("the program runs").stdout;
    let native = String::from_utf8(native).expect("text");
    assert!(native.starts_with(name), "{native}");
    for options in [&["--without-native"][..], &["--without-native", "--sample", "0.01"]] {
        let (_, output) = measured(home, tool, options, &[program]);
        assert!(output.status.success(), "{output:?}");
        let measured = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(measured.contains(native.trim()), "{native} natively, {output:?}");
    }
}

#[test]
fn fused_multiplications_under_the_tool_have_the_bits_of_native_ones() {
    const TEST: &str = "fused multiplications under the reuse tool";
    let Some(program) = built(TEST, "tests/programs/fused.c", has_fused(), &FUSED_FLAGS) else { return };
    same_natively_and_measured(&program, "fused ");
}

#[test]
fn vector_registers_under_the_tool_hold_what_they_hold_natively() {
    const TEST: &str = "vector registers under the reuse tool";
    let there = cfg!(target_arch = "x86_64");
    let Some(program) = built(TEST, "tests/programs/registers.c", there, &[]) else { return };
    same_natively_and_measured(&program, "registers ");
}

#[test]
fn a_matrix_product_reuses_its_block_or_its_whole_matrix() {
    const TEST: &str = "a matrix product under the reuse tool";
    let program = built(TEST, "experiments/reuse/matmul.c", has_fused(), &FUSED_FLAGS);
    let Some((tool, home, binary)) = program else { return };
    let product = |way: &str, n: u32| {
        let (json, output) =
            measured(&home, &tool, &["--without-native"], &[&binary, way, &n.to_string(), "1"]);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(json["programs"][0]["ended"], serde_json::json!({ "exit": 0 }), "{output:?}");
        json
    };
    let near = |json: &Value, from: f64, to: f64, wanted: f64| {
        let found = between(part(json, &Value::from("program")), from, to);
        assert!((0.9..1.15).contains(&(found / wanted)), "{found} accesses of {wanted}");
    };
    for n in [128u32, 192] {
        // A block of 64 by 64 is 512 lines; between two walks over it lie rows of the other matrices. Each
        // block is walked once for every four rows, the first time from afar.
        let blocks = f64::from(n / 64).powi(2);
        near(&product("blocks", n), 500.0, 680.0, blocks * (f64::from(n) / 4.0 - 1.0) * 512.0);
        // Row by row, each line of the second matrix is met once for every row of the first, and in between all
        // others of it with a row of the first and one of the result.
        let row = f64::from(n) / 8.0;
        let matrix = row * f64::from(n);
        near(&product("rows", n), matrix, matrix * 1.1, (f64::from(n) - 1.0) * matrix);
    }
}

#[test]
fn programs_that_end_badly_or_never_are_reported_with_what_was_seen() {
    let Some(tool) = tool("the reuse tool's bad input") else { return };
    let home = Home::new();
    let run = |options: &[&str], program: &[&str]| {
        let (json, output) = measured(&home, &tool, options, program);
        (json, String::from_utf8_lossy(&output.stderr).into_owned(), output.status.code())
    };
    let (json, error, code) = run(&["--without-native"], &["sh", "-c", "kill -SEGV $$"]);
    assert_eq!(
        (code, &json["programs"][0]["ended"]),
        (Some(0), &serde_json::json!({ "signal": 11 })),
        "{error}"
    );
    assert!(error.contains("signal 11"), "{error}");
    let (json, error, _) = run(&["--without-native"], &["sh", "-c", "exit 3"]);
    assert_eq!(json["programs"][0]["ended"], serde_json::json!({ "exit": 3 }), "{error}");
    for endless in [vec![app("burn"), "--seconds".into(), "600".into()], vec!["sleep".into(), "600".into()]] {
        let words: Vec<&str> = endless.iter().map(String::as_str).collect();
        let (json, error, code) = run(&["--without-native", "--limit", "1s"], &words);
        assert_eq!(code, Some(0), "{error}");
        assert!(
            part(&json, &Value::from("program"))["accesses"].as_f64().unwrap() > 1e4,
            "{words:?}: {json}"
        );
    }
    // Children count if that is asked for, and what they become, too.
    let script = ["sh", "-c", "/bin/true; /bin/true; exit 0"];
    assert_eq!(run(&["--without-native"], &script).0["programs"].as_array().unwrap().len(), 1);
    let followed = run(&["--without-native", "--children"], &script).0;
    assert!(followed["programs"].as_array().unwrap().len() >= 3, "{followed}");
    for (program, said) in [("/nowhere/at/all", "No such file"), ("no-such-program", "not found")] {
        let (_, error, code) = run(&[], &[program]);
        assert_eq!(code, Some(2), "{error}");
        assert!(error.contains(program) && error.to_lowercase().contains(&said.to_lowercase()), "{error}");
    }
    let missing =
        home.coplace().env("COPLACE_REUSE_TOOL", "/nowhere").args(["lab", "reuse", "--", "true"]).output();
    let missing = missing.unwrap();
    assert_eq!(missing.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("make -C reuse-tool"));
}

#[test]
fn a_static_program_is_measured_like_any_other() {
    let Some(tool) = tool("a static program under the reuse tool") else { return };
    let home = Home::new();
    let dynamic = helper("walks", &home);
    let fixed = home.path().join("walks-static");
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-static", "-o"]).arg(&fixed).arg(top().join("tests/programs/walks.c"));
    if !cc.output().is_ok_and(|output| output.status.success()) {
        return skipped("a static program under the reuse tool", "cc cannot link statically");
    }
    for program in [dynamic.as_str(), fixed.to_str().unwrap()] {
        let (json, output) = measured(&home, &tool, &["--without-native"], &[program, "1000", "50"]);
        assert!(output.status.success(), "{output:?}");
        let found = between(part(&json, &Value::from("program")), 985.0, 1_015.0);
        assert!((49_000.0 * 0.99..49_000.0 * 1.02).contains(&found), "{program}: {found}");
    }
}
