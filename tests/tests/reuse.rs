//! The reuse tool on real programs: against the Rust engine, against arithmetic, against DistGen.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::Duration;

use coplace_tests::{Home, app, helper, skipped, skipped_part, top};
use reuse::{Exact, Histogram, Rate, Report, Scope, Shards};
use serde_json::Value;
use topology::CpuSet;

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
    let arguments = fs::read(&trace).unwrap();
    let entry = |word: &[u8]| {
        let word = u64::from_le_bytes(word.try_into().unwrap());
        (word & ((1 << 44) - 1), (word >> 44 & 0xff) + 1, (word >> 52 & 0x7ff) as u32, word & FETCH != 0)
    };
    (Report::parse(&text).unwrap(), arguments.chunks_exact(8).map(entry).collect())
}

fn exact(lines: impl Iterator<Item = (u64, u64)>) -> Histogram {
    let (mut engine, mut histogram) = (Exact::new(), Histogram::new());
    for (line, times) in lines {
        (0..times).for_each(|_| histogram.record(engine.access(line), 1.0));
    }
    histogram
}

#[test]
fn the_tool_agrees_with_the_rust_engine_on_its_trace() {
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
    let mut wrong: Vec<String> = Vec::new();
    for (number, (mixture, threads)) in MIXTURES.into_iter().enumerate() {
        let shares = shares(mixture);
        let order = ["stream", "random", "linked"][number % 3];
        let (accesses, threads) = (enough(&shares, order).to_string(), threads.to_string());
        let mut program = vec![coplace, "lab", "distgen", mixture, "--order", order, "--threads", &threads];
        program.extend(["--accesses", &accesses, "--interval", "1min"]);
        let (json, output) = measured(&home, &tool, &["--without-native"], &program);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(json["programs"][0]["ended"], serde_json::json!({ "exit": 0 }), "{output:?}");
        // The first thread only waits for those that read.
        for thread in 2..2 + threads.parse::<u32>().unwrap() {
            let part = part(&json, &serde_json::json!({ "thread": thread }));
            let all = part["accesses"].as_f64().unwrap();
            let what = format!("{mixture} {order}, thread {thread} of {threads}");
            let longest = shares.last().expect("there is a distance").0;
            // As one sees it from outside, of all accesses, those of DistGen's own among them.
            for &(lines, share) in &shares {
                let found = between(part, lines * 0.98 - 3.0, lines * 1.02 + 3.0) / all;
                if (found - share).abs() >= 0.02 {
                    wrong.push(format!("{what}: {found} of {share} at {lines} lines"));
                }
            }
            // By DistGen's own account. What it touches between two passes, some twenty lines, makes the first
            // repetition of the next one so much deeper; and the first pass over its block cannot have a distance.
            let account: Vec<f64> = shares
                .iter()
                .map(|&(lines, _)| {
                    let first_pass = if lines == longest { lines } else { 0.0 };
                    between(part, lines * 0.98 - 3.0, lines * 1.02 + OWN_LINES) + first_pass
                })
                .collect();
            let sum: f64 = account.iter().sum();
            for (&(lines, share), found) in shares.iter().zip(&account) {
                let ratio = found / sum / share;
                if (ratio - 1.0).abs() >= 0.02 {
                    wrong.push(format!("{what}: {ratio} times the share of {share} at {lines} lines"));
                }
            }
            if sum / all < 0.98 {
                wrong.push(format!("{what}: {sum} of {all} accesses lie at distances that were asked for"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// With the number of threads.
const MIXTURES: [(&str, u32); 20] = [
    ("2K", 1),
    ("6M", 1),
    ("1M", 2),
    ("1K:1,4K:1", 1),
    ("4K:3,24K:1", 1),
    ("2K:1,600K:1", 1),
    ("8K:2,1500K:1", 1),
    ("40K:1,150K:1", 1),
    ("150K:3,3M:1", 1),
    ("600K:1,2500K:1", 1),
    ("12K:1,5M:1", 1),
    ("1K:1,4K:1,12K:1", 1),
    ("2K:1,40K:2,600K:1", 1),
    ("4K:1,12K:2,150K:1", 1),
    ("12K:2,300K:1,2M:1", 1),
    ("8K:1,150K:1,1M:2", 1),
    ("1K:1,12K:1,150K:1,600K:1", 1),
    ("4K:1,40K:1,300K:2,1500K:1", 1),
    ("12K:1,600K:1", 2),
    ("4K:2,150K:1,1M:1", 2),
];
/// What DistGen touches of its own between two passes, and a bin of the histogram.
const OWN_LINES: f64 = 26.0;

/// Distances in lines with their shares, of a mixture by rising distance.
fn shares(mixture: &str) -> Vec<(f64, f64)> {
    let share = |part: &str| {
        let (distance, weight) = part.split_once(':').unwrap_or((part, "1"));
        (workload::parse_bytes(distance).unwrap() as f64 / 64.0, weight.parse::<f64>().unwrap())
    };
    let weights: Vec<(f64, f64)> = mixture.split(',').map(share).collect();
    let sum: f64 = weights.iter().map(|weight| weight.1).sum();
    weights.into_iter().map(|(lines, weight)| (lines, weight / sum)).collect()
}

/// So many accesses that a distance's turn more or less is a hundredth of what the rarest one has, and that what is
/// done to the block beforehand stays below two hundredths: two or three times a line, as the compiler has it, and some
/// twelve times where pointers are put into the lines.
fn enough(shares: &[(f64, f64)], order: &str) -> u64 {
    let rarest = shares.iter().map(|share| share.1).fold(1.0, f64::min);
    let turn = |lines: f64| f64::max(16_384.0, if lines <= 1_024.0 { 64.0 * lines } else { lines });
    let longest_turn = shares.iter().map(|share| turn(share.0)).fold(0.0, f64::max);
    let block = shares.iter().map(|share| share.0).fold(0.0, f64::max);
    f64::max(longest_turn * 100.0 / rarest, block * if order == "linked" { 1_200.0 } else { 300.0 }) as u64
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

#[test]
fn distgen_keeps_to_its_cpu_and_its_rate() {
    let home = Home::new();
    let allowed = allowed_cpus("/proc/self/status").expect("/proc says on which CPUs this may run");
    let cpu = allowed.highest().expect("this runs on a CPU").to_string();
    let mut command = home.coplace();
    command.args(["lab", "distgen", "32K:3,1M:1", "--threads", "1", "--cpus", &cpu, "--rate", "50M"]);
    command.args(["--interval", "500ms", "--duration", "3s", "--json"]);
    let mut distgen = home.start("distgen", &mut command);
    let tasks = format!("/proc/{}/task", distgen.pid());
    home.until("DistGen reads on the CPU that it was given", || {
        let tasks = fs::read_dir(&tasks).into_iter().flatten().flatten().map(|task| task.path());
        tasks.into_iter().any(|task| {
            let named = fs::read_to_string(task.join("comm")).is_ok_and(|name| name.starts_with("distgen"));
            let cpus = allowed_cpus(task.join("status"));
            named && cpus.is_some_and(|cpus| cpus.to_string() == cpu)
        })
    });
    assert!(distgen.ended_within(Duration::from_secs(60)).success(), "{}", distgen.stderr());
    let lines: Vec<Value> =
        distgen.stdout().lines().map(|line| serde_json::from_str(line).expect("lines of JSON")).collect();
    assert!(lines.len() >= 3, "an interval of half a second in three: {lines:?}");
    let sum = |key: &str| lines.iter().map(|line| line[key].as_f64().expect("a number")).sum::<f64>();
    // A hundredth of what the slowest machines can do.
    let wanted = workload::parse_bytes("50M").unwrap() as f64;
    let rate = sum("accesses") * 64.0 / sum("seconds");
    assert!((0.95..1.03).contains(&(rate / wanted)), "{rate} bytes/s of {wanted}: {lines:?}");
    for line in &lines {
        let number = |key: &str| line[key].as_f64().unwrap();
        let ratio = number("bytes_per_s") * number("seconds") / 64.0 / number("accesses");
        assert!((ratio - 1.0).abs() < 1e-6, "{line}");
    }
}

fn allowed_cpus(status: impl AsRef<Path>) -> Option<CpuSet> {
    let text = fs::read_to_string(status).ok()?;
    text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?.trim().parse().ok()
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
fn fused_multiplications_under_the_tool_match_native_bits() {
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

/// Of a program that asks for a handler of faults the tool leaves loops as they are.
#[test]
fn loops_have_their_accesses_and_registers_round_by_round() {
    const TEST: &str = "loops under the reuse tool";
    let Some(built) = built(TEST, "tests/programs/loops.c", true, &[]) else { return };
    same_natively_and_measured(&built, "loops ");
    let (tool, home, program) = &built;
    let [other, fault] = [rustix::process::Signal::USR1, rustix::process::Signal::SEGV].map(|signal| {
        let arguments = [program.as_str(), &signal.as_raw().to_string()];
        let (json, output) = measured(home, tool, &["--without-native"], &arguments);
        assert!(output.status.success(), "{output:?}");
        part(&json, &"program".into()).clone()
    });
    let accesses = other["accesses"].as_f64().unwrap();
    assert!(accesses > 100_000.0, "{other}");
    assert_eq!(other["accesses"], fault["accesses"]);
    // From run to run a few accesses of the dynamic linker come by another line.
    let moved: f64 = (0..1000)
        .map(|lines| {
            let [one, two] = [&other, &fault].map(|part| between(part, lines.into(), lines.into()));
            (one - two).abs()
        })
        .sum();
    assert!(moved < accesses / 1000.0, "{moved} of {accesses} at other distances: {other} {fault}");
}

#[test]
fn every_way_of_taking_a_sample_keeps_the_same_lines() {
    const TEST: &str = "the reuse tool's ways of taking a sample";
    let valgrinds = "-DVGA_amd64=1 -DVGO_linux=1 -DVGP_amd64_linux=1 -DVGPV_amd64_linux_vanilla=1 -isystem /usr/include/valgrind";
    let flags: Vec<&str> = valgrinds.split(' ').collect();
    let there = cfg!(target_arch = "x86_64");
    let Some((_tool, _home, program)) = built(TEST, "tests/programs/samples.c", there, &flags) else {
        return;
    };
    let output = Command::new(program).output().expect("the program runs");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && printed.contains("plain agrees"), "{printed}");
    for way in printed.split(", ").filter(|part| part.contains("is not there")) {
        skipped_part(&format!("{TEST}, {}", way.trim()), "not on this processor");
    }
}

#[test]
fn a_program_that_goes_on_after_a_fault_goes_on_where_it_was() {
    const TEST: &str = "faults under the reuse tool";
    let Some(program) = built(TEST, "tests/programs/faults.c", true, &[]) else { return };
    same_natively_and_measured(&program, "faults 64 writes 128");
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
fn programs_that_end_badly_or_never_are_reported_in_part() {
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
        let arguments: Vec<&str> = endless.iter().map(String::as_str).collect();
        let (json, error, code) = run(&["--without-native", "--limit", "1s"], &arguments);
        assert_eq!(code, Some(0), "{error}");
        assert!(
            part(&json, &Value::from("program"))["accesses"].as_f64().unwrap() > 1e4,
            "{arguments:?}: {json}"
        );
    }
    // Children count if that is asked for, and what they become, too.
    let script = ["sh", "-c", "/bin/true; /bin/true; exit 0"];
    assert_eq!(run(&["--without-native"], &script).0["programs"].as_array().unwrap().len(), 1);
    let followed = run(&["--without-native", "--children"], &script).0;
    assert!(followed["programs"].as_array().unwrap().len() >= 3, "{followed}");
    for (program, printed) in [("/nowhere/at/all", "No such file"), ("no-such-program", "not found")] {
        let (_, error, code) = run(&[], &[program]);
        assert_eq!(code, Some(2), "{error}");
        assert!(error.contains(program) && error.to_lowercase().contains(&printed.to_lowercase()), "{error}");
    }
    let missing =
        home.coplace().env("COPLACE_REUSE_TOOL", "/nowhere").args(["lab", "reuse", "--", "true"]).output();
    let missing = missing.unwrap();
    assert_eq!(missing.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("make -C reuse-tool"));
}

#[test]
fn without_valgrind_in_path_the_package_is_named() {
    let home = Home::new();
    let mut command = home.coplace();
    command.env("PATH", home.path()).args(["lab", "reuse", "--", "/bin/true"]);
    let output = command.output().expect("coplace can be started");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("no valgrind in PATH") && error.contains("apt-get install valgrind"), "{error}");
}

#[test]
fn without_the_stack_only_data_counts_by_any_access() {
    const TEST: &str = "the reuse tool without the stack";
    const ROUNDS: f64 = 200.0;
    for flags in [
        &["-pthread", "-fomit-frame-pointer"][..],
        &["-pthread", "-fno-omit-frame-pointer"],
        &["-pthread", "-O0"],
    ] {
        let Some((tool, home, binary)) = built(TEST, "tests/programs/stack.c", true, flags) else { return };
        let program = [&*binary, "500", "1000", "200"];
        for (options, at_heap, at_both) in [
            (&["--without-native"][..], 0.0, 1_500.0 * ROUNDS),
            (&["--without-native", "--without-stack"], 1_000.0 * ROUNDS, 0.0),
        ] {
            let (json, output) = measured(&home, &tool, options, &program);
            assert!(output.status.success(), "{output:?}");
            assert_eq!(json["programs"][0]["stack"], at_heap == 0.0);
            for thread in [1, 2] {
                let part = part(&json, &serde_json::json!({ "thread": thread }));
                // All lines of the heap and nothing else, or those of both.
                for (lines, wanted) in [(1_000.0, at_heap), (1_500.0, at_both)] {
                    let found = between(part, lines * 0.98, lines * 1.02 + 3.0);
                    let ratio = format!("{flags:?} {options:?}, thread {thread}: {found} at {lines} lines");
                    assert!((found - wanted).abs() < 0.02 * 1_500.0 * ROUNDS, "{ratio}, not {wanted}");
                }
            }
        }
    }
}

#[test]
fn tables_and_pictures_have_all_programs_and_their_units() {
    let Some(tool) = tool("CSV and SVG of the reuse tool") else { return };
    let home = Home::new();
    let walks = helper("walks", &home);
    let (csv, svg) = (home.path().join("reuse.csv"), home.path().join("reuse.svg"));
    let script = format!("{walks} 3000 40; {walks} 200 100; exit 0");
    let mut options = vec!["--children", "--csv", csv.to_str().unwrap(), "--svg", svg.to_str().unwrap()];
    options.extend(["--machine", "pack:1 l3:1(size=8MiB) core:2"]);
    let (json, output) = measured(&home, &tool, &options, &["sh", "-c", &script]);
    assert!(output.status.success(), "{output:?}");
    let programs = json["programs"].as_array().expect("programs");
    let (csv, picture) = (fs::read_to_string(&csv).unwrap(), fs::read_to_string(&svg).unwrap());
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some("pid,scope,from_lines,to_lines,accesses"));
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
    let mut plots = 0;
    for program in programs {
        let pid = program["pid"].to_string();
        let name = program["program"].as_str().expect("a name");
        let whole =
            program["parts"].as_array().unwrap().iter().find(|part| part["scope"] == "program").unwrap();
        let own = rows.iter().filter(|row| row[0] == pid && row[1] == "program");
        let (first, distances): (Vec<&Vec<&str>>, Vec<_>) = own.partition(|row| row[2].is_empty());
        let sum = |rows: &[&Vec<&str>]| rows.iter().map(|row| row[4].parse::<f64>().unwrap()).sum::<f64>();
        // What a process was before it executed another program stands under the same number.
        let same = programs.iter().filter(|other| other["pid"] == program["pid"]).count();
        if same == 1 {
            assert_eq!(sum(&first), whole["first_touches"].as_f64().unwrap(), "{name}");
            let all = sum(&first) + sum(&distances);
            assert_eq!(all, whole["accesses"].as_f64().unwrap(), "{name}");
        }
        plots += program["parts"].as_array().unwrap().iter().filter(|part| part["accesses"] != 0.0).count();
    }
    for name in [format!("{walks} 3000 40"), format!("{walks} 200 100")] {
        assert!(picture.contains(&format!("{name}: program")), "{name}: {picture}");
    }
    assert!(plots >= 3, "the shell and both programs: {json}");
    assert_eq!(picture.matches("<polyline").count(), plots, "a curve for each histogram");
    assert_eq!(picture.matches(">L3 8").count(), plots, "and the cache marked in each");
    assert!(picture.contains("/s</text>") && picture.contains("accesses a second of the native run"));
    // Without a native run nothing is said a second.
    let (json, _) =
        measured(&home, &tool, &["--without-native", "--svg", svg.to_str().unwrap()], &[&walks, "9", "9"]);
    assert_eq!(json["programs"][0]["parts"][0]["accesses_per_s"], Value::Null);
    let picture = fs::read_to_string(&svg).unwrap();
    assert!(!picture.contains("/s</text>") && !picture.contains("native"), "{picture}");
}

#[test]
fn a_machine_without_known_caches_still_has_distances() {
    let Some(tool) = tool("the reuse tool without caches") else { return };
    let home = Home::new();
    let walks = helper("walks", &home);
    let (json, output) = measured(&home, &tool, &["--machine", "pack:1 core:2"], &[&walks, "1000", "50"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(json["caches"], serde_json::json!([]));
    assert_eq!(json["programs"][0]["class"], Value::Null);
    assert!(between(part(&json, &Value::from("program")), 985.0, 1_015.0) >= 49_000.0);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("does not tell the sizes of its caches") && text.contains("accesses/s"), "{text}");
}

#[test]
fn a_run_that_was_cut_off_has_no_accesses_a_second() {
    let Some(tool) = tool("a cut-off program's accesses a second") else { return };
    let home = Home::new();
    let walks = helper("walks", &home);
    // Natively it ends at once, under the tool never, however fast the machine is.
    let stays_in_valgrind = r#"case "$LD_PRELOAD" in *vgpreload*) while :; do :; done;; esac"#;
    let (json, output) = measured(&home, &tool, &["--limit", "1s"], &["sh", "-c", stays_in_valgrind]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(json["programs"][0]["ended"], "time_limit");
    assert!(json["native_seconds"].as_f64().is_some_and(|seconds| seconds > 0.0), "{json}");
    assert_eq!(part(&json, &Value::from("program"))["accesses_per_s"], Value::Null);
    assert_eq!(json["programs"][0]["flows_bytes_per_s"], Value::Null);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("– accesses/s") && text.contains("cut off by the time limit"), "{text}");
    // To the end, there are.
    let (json, _) = measured(&home, &tool, &[], &[&walks, "1000", "50"]);
    let whole = part(&json, &Value::from("program"));
    let per_s = whole["accesses"].as_f64().unwrap() / json["native_seconds"].as_f64().unwrap();
    assert!((whole["accesses_per_s"].as_f64().unwrap() / per_s - 1.0).abs() < 1e-9, "{whole}");
    // One that a signal ends natively has no native time either.
    let (json, output) = measured(&home, &tool, &[], &["sh", "-c", "kill -SEGV $$"]);
    assert_eq!(json["native_seconds"], Value::Null);
    assert!(String::from_utf8_lossy(&output.stderr).contains("did not end by itself"), "{output:?}");
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
