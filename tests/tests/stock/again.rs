//! The tests of sharing, faults and attaching once more, as this checkout has them: by an ordinary user of the guest, with
//! what the package has installed. Each time only a few; with `COPLACE_STOCK=all` all of them, in both guests, with 100
//! kills.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use coplace_tests::guest::Guest;
use coplace_tests::{app, compiled, skipped_here, skipped_part, top};

use crate::{Debian, all_guests, on};

/// The test programs that run there.
pub const TESTS: [&str; 3] = ["sharing", "faults", "attach"];
/// So many times slower than here programs run on emulated CPUs, of which there are twice as many as there are real ones.
const SLOWER: u32 = 16;
/// All of the longest of them, and a few.
const LIMITS: [Duration; 2] = [Duration::from_secs(3 * 3600), Duration::from_secs(300)];

/// The programs that they start.
pub fn programs() -> Vec<PathBuf> {
    let directory = top().join("build/guest");
    std::fs::create_dir_all(&directory).expect("build/ can be written");
    let apps = ["burn", "cg", "ep", "pthreads_spin", "regions", "rigid"].map(app);
    let helpers = [("misbehave", "-pthread"), ("spins", "-pthread"), ("stays", "-fopenmp")];
    let helpers = helpers.map(|(name, threads)| compiled(name, threads, &directory));
    apps.into_iter().chain(helpers).map(PathBuf::from).collect()
}

/// Runs a test program by the guest's user: the tests of these names or, if all is asked for, every one.
fn run(guest: &mut Guest, program: &str, names: &str) {
    let (names, limit) = if all_guests() { ("", LIMITS[0]) } else { (names, LIMITS[1]) };
    guest.sh(&format!(
        "rm -f /tmp/again.status; : > /tmp/again; chmod 755 /tests
         (su - user -c 'COPLACE_TEST_PROGRAMS=/tests COPLACE_BINARY=/usr/bin/coplace COPLACE_SLOWER={SLOWER} COPLACE_FAULTS=100 \
             /tests/{program} --nocapture --test-threads 1 {names}' > /tmp/again 2>&1; echo $? > /tmp/again.status) &"
    ));
    let began = Instant::now();
    let mut output = String::new();
    let status = loop {
        let (there, status) = guest.try_sh("cat /tmp/again.status");
        // As it comes: all of them take minutes, and it matters which one it is that does not end.
        let so_far = guest.sh("cat /tmp/again");
        print!("{}", so_far.strip_prefix(output.as_str()).unwrap_or(&so_far));
        output = so_far;
        if there == 0 {
            break status;
        }
        assert!(began.elapsed() < limit, "{program} has not ended after {limit:?}");
        std::thread::sleep(Duration::from_secs(2));
    };
    println!("{program}, {:.0} s", began.elapsed().as_secs_f64());
    assert_eq!(status.trim(), "0", "{program}\n{output}");
    let passed =
        output.split_once("test result: ok. ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
    assert!(passed > Some(0_u32), "{program} ran nothing: {output}");
    for line in output.lines().filter(|line| line.starts_with("SKIPPED")) {
        skipped_part(&format!("{program} by a guest's user"), line);
    }
}

#[test]
fn a_users_programs_share_in_the_guest_as_here() {
    on(Debian::Bookworm, |guest| {
        run(guest, "sharing", "two_resizable rigid_programs_take_turns");
    });
}

#[test]
fn kills_harm_no_program_of_a_user_in_the_guest() {
    if !all_guests() {
        return skipped_here("COPLACE_STOCK=all does it, in twenty minutes");
    }
    on(Debian::Trixie, |guest| run(guest, "faults", ""));
}

#[test]
fn attached_programs_of_a_user_come_back_as_they_were() {
    if !all_guests() {
        return skipped_here("COPLACE_STOCK=all does it, in ten minutes");
    }
    on(Debian::Bookworm, |guest| run(guest, "attach", ""));
}
