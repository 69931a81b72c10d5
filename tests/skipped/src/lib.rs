//! How a test reports that it, or a part of it, cannot be done on this machine. `scripts/test` lists these lines
//! at its end and counts them.

use std::fmt::Display;
use std::io::Write;

/// The test `test` is not done here, and why. It returns at once and counts as skipped, not as passed.
pub fn skipped(test: &str, why: impl Display) {
    report("SKIPPED", test, &why);
}

/// The test that runs in this thread is not done here, and why.
pub fn skipped_here(why: impl Display) {
    skipped(&this_test(), why);
}

/// A part of a test is not done here, and why; the rest of it is, and counts.
pub fn skipped_part(part: &str, why: impl Display) {
    report("SKIPPED IN PART", part, &why);
}

/// The test harness names each thread after the test that it runs there; with one thread only it runs them in its own.
fn this_test() -> String {
    std::thread::current().name().filter(|name| *name != "main").unwrap_or("a test").to_owned()
}

fn report(kind: &str, subject: &str, why: &dyn Display) {
    let why = why.to_string();
    let line = format!("\n{kind} {subject}: {}\n", why.trim().replace('\n', "; "));
    // Not by eprintln!: the harness keeps what that prints to itself as long as the test passes.
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}
