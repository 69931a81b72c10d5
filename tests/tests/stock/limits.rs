//! What systemd and the kernel do to programs, and that it is the same for a program under coplace. What each case comes
//! to is what it comes to without coplace; `COPLACE_WITHOUT=1` plays it in that way, too.

use std::time::{Duration, Instant};

use coplace_tests::guest::{Guest, PATIENCE};

use crate::{Debian, on};

/// How a program is started.
#[derive(Clone, Copy)]
enum Start {
    /// In a login session, which lasts as long as the program.
    Session,
    /// From a login session that ends at once.
    LeftBehind,
    /// By a unit of the system with these properties.
    Unit(&'static str),
    /// By the user's systemd, in a scope with these properties.
    UserScope(&'static str),
}

struct Case {
    name: &'static str,
    start: Start,
    programs: &'static [&'static str],
    /// By root: before the programs start, and once they run.
    before: &'static str,
    act: &'static str,
    /// What to look at, and what it must come to.
    sample: &'static str,
    becomes: &'static str,
}

const BURN: &str = "/apps/static/burn --seconds 1000";
const RIGID: &str = "/apps/static/rigid --threads 4 --size X";
const DD: &str = "dd if=/dev/zero of=/dev/null bs=300M count=1";
/// Not the same arguments: a program that is known to need more than its limit leaves waits while others run.
const OTHER_DD: &str = "dd if=/dev/zero of=/dev/null bs=301M count=1";
const CASE: Case = Case {
    name: "",
    start: Start::Session,
    programs: &[BURN],
    before: "",
    act: "",
    sample: "alive burn",
    becomes: "1",
};

/// Limits of a slice that change, a slice that is frozen, and a machine that is suspended.
const LIMITS: [Case; 12] = [
    Case { name: "CPUs taken", act: "limit AllowedCPUs=2-3", sample: "cpus burn", becomes: "2-3", ..CASE },
    Case {
        name: "CPUs taken and given back",
        act: "limit AllowedCPUs=2-3; sleep 2; limit AllowedCPUs=0-3",
        sample: "cpus burn",
        becomes: "0-3",
        ..CASE
    },
    Case {
        name: "CPUs that were taken before",
        before: "limit AllowedCPUs=1",
        sample: "cpus burn",
        becomes: "1",
        ..CASE
    },
    Case {
        name: "CPUs taken from two programs",
        programs: &[RIGID, RIGID],
        act: "limit AllowedCPUs=0-1",
        sample: "cpus rigid",
        becomes: "0-1",
        ..CASE
    },
    Case {
        name: "a quota set",
        programs: &[RIGID],
        act: "limit CPUQuota=50%",
        sample: "rate rigid",
        becomes: "50",
        ..CASE
    },
    Case {
        name: "a quota set and lifted",
        programs: &[RIGID],
        act: "limit CPUQuota=50%; sleep 1; limit CPUQuota=",
        sample: "rate rigid",
        becomes: "400",
        ..CASE
    },
    Case {
        name: "a quota for two programs",
        programs: &[RIGID, RIGID],
        act: "limit CPUQuota=100%",
        sample: "rate rigid",
        becomes: "100",
        ..CASE
    },
    Case {
        name: "a frozen slice",
        act: "systemctl freeze $SLICE",
        sample: "rate burn",
        becomes: "0",
        ..CASE
    },
    Case {
        name: "a slice frozen and thawed",
        act: "systemctl freeze $SLICE; sleep 2; systemctl thaw $SLICE",
        sample: "rate burn",
        becomes: "100",
        ..CASE
    },
    Case {
        name: "a slice of two programs frozen and thawed",
        programs: &[RIGID, RIGID],
        act: "sleep 1; systemctl freeze $SLICE; sleep 2; systemctl thaw $SLICE",
        sample: "advancing rigid",
        becomes: "2",
        ..CASE
    },
    Case { name: "a machine suspended", act: "suspend", sample: "rate burn", becomes: "100", ..CASE },
    Case {
        name: "a machine of two programs suspended",
        programs: &[RIGID, RIGID],
        act: "sleep 1; suspend",
        sample: "advancing rigid",
        becomes: "2",
        ..CASE
    },
];

/// Ends of sessions and users, lack of memory, and units.
const ENDS: [Case; 15] = [
    Case {
        name: "a session's scope stopped",
        act: "systemctl stop session-$(session).scope",
        sample: "alive burn",
        becomes: "0",
        ..CASE
    },
    Case {
        name: "a session terminated",
        act: "loginctl terminate-session $(session)",
        sample: "alive burn",
        becomes: "0",
        ..CASE
    },
    Case {
        name: "a user terminated",
        act: "loginctl terminate-user user",
        sample: "alive burn",
        becomes: "0",
        ..CASE
    },
    Case {
        name: "a signal to all of a user",
        // systemd gives up (ENODEV) where a group vanishes that it is going through: those of the sessions of the case before
        // still do. What is looked at is whether the program has ended.
        act: "kill_user() { loginctl kill-user --signal=USR2 user; }; kill_user || { sleep 2; kill_user; } || true",
        sample: "alive burn",
        becomes: "0",
        ..CASE
    },
    Case {
        name: "a program left behind by its session",
        start: Start::LeftBehind,
        act: "sleep 3",
        sample: "alive burn; rate burn",
        becomes: "1 100",
        ..CASE
    },
    Case {
        name: "more memory than there may be",
        programs: &[DD],
        before: "limit MemoryMax=100M",
        sample: "status",
        becomes: "137",
        ..CASE
    },
    Case {
        name: "more memory than there may be, beside another program",
        programs: &[BURN, OTHER_DD],
        before: "limit MemoryMax=100M",
        sample: "alive burn; status",
        becomes: "1 137",
        ..CASE
    },
    Case {
        name: "more memory than is wanted",
        programs: &[DD],
        before: "limit MemoryHigh=100M",
        act: "sleep 3",
        sample: "alive dd; status 2> /dev/null",
        becomes: "1",
        ..CASE
    },
    Case {
        name: "a unit stopped",
        start: Start::Unit(""),
        act: "systemctl stop tried",
        sample: "alive burn; result",
        becomes: "0 VERIFIED",
        ..CASE
    },
    Case {
        name: "a unit stopped by a signal to its main process",
        start: Start::Unit("-p KillMode=mixed"),
        act: "systemctl stop tried",
        sample: "alive burn; result",
        becomes: "0 VERIFIED",
        ..CASE
    },
    Case {
        name: "a unit that may run for three seconds",
        start: Start::Unit("-p RuntimeMaxSec=3"),
        sample: "alive burn; systemctl show tried -p Result --value",
        becomes: "0 timeout",
        ..CASE
    },
    Case {
        name: "a unit with a quota",
        start: Start::Unit("-p CPUQuota=50%"),
        programs: &[RIGID],
        sample: "rate rigid",
        becomes: "50",
        ..CASE
    },
    Case {
        name: "a unit with CPUs",
        start: Start::Unit("-p AllowedCPUs=1"),
        sample: "cpus burn",
        becomes: "1",
        ..CASE
    },
    Case {
        name: "a unit with a limit of memory",
        start: Start::Unit("-p MemoryMax=100M"),
        programs: &[DD],
        sample: "systemctl show tried -p Result --value",
        becomes: "oom-kill",
        ..CASE
    },
    Case {
        name: "a scope of the user's with a quota",
        start: Start::UserScope("-p CPUQuota=50%"),
        programs: &[RIGID],
        sample: "rate rigid",
        becomes: "50",
        ..CASE
    },
];

/// What the scripts of the cases use, in a shell of root's.
const TOOLS: &str = r#"
SLICE=user-1000.slice
limit() { systemctl set-property --runtime $SLICE "$@"; }
session() { loginctl --no-legend list-sessions | awk '$3 == "user" { print $1 }' | tail -n 1; }
alive() { test -n "$(pgrep -x -u user $1)" && echo 1 || echo 0; }
# The CPUs of all threads together.
cpus() {
    for pid in $(pgrep -x -u user $1); do grep -h Cpus_allowed_list /proc/$pid/task/*/status; done | cut -f 2 | sort -u
}
ticks() { for pid in $(pgrep -x -u user $1); do sed 's/.*) //' /proc/$pid/stat; done | awk '{ sum += $12 + $13 } END { print sum + 0 }'; }
now() { sed 's/\.//; s/ .*//' /proc/uptime; }
# CPU time of all of that name per time, in percent, rounded to 50 and from 100 on to 100.
rate() {
    a=$(ticks $1) t=$(now); sleep 2; b=$(ticks $1) u=$(now)
    awk "BEGIN { r = 100 * ($b - $a) / ($u - $t); by = r < 90 ? 50 : 100; print by * int(r / by + 0.5) }"
}
each() {
    for pid in $(pgrep -x -u user $1); do sed "s/.*) /$pid /" /proc/$pid/stat; done | awk '{ print $1, $13 + $14 }' | sort
}
# How many of that name take at least a CPU each over two seconds. Programs that take turns are asked for this and not for
# their rate: in emulation a switch costs so much that two of them take 320 to 350% of four CPUs, whatever happened before.
advancing() {
    each $1 > /tmp/before; t=$(now); sleep 2
    each $1 | join /tmp/before - | awk "{ if (\$3 - \$2 >= $(now) - $t) n++ } END { print n + 0 }"
}
# All processes are frozen as for a suspension, and thawed again after five seconds: the devices, which could not be woken
# here, are left out.
suspend() { echo freezer > /sys/power/pm_test && echo freeze > /sys/power/state && echo none > /sys/power/pm_test; }
result() { tail -qn 1 /tmp/tried.out | tail -n 1; }
status() { cat /tmp/tried.status; }
"#;

fn sh(guest: &mut Guest, script: &str) -> String {
    guest.sh(&format!("{TOOLS}\n{script}"))
}

/// Plays a case, and returns what it came to: `becomes`, or something else after a minute.
fn play(guest: &mut Guest, case: &Case, coplace: &str) -> String {
    let mut script = format!("{}\nrm -f /tmp/tried.*\n", case.before);
    for (number, program) in case.programs.iter().enumerate() {
        let start = format!("/tmp/start{number}");
        script += &format!(
            "cat > {start} <<'END'\n{coplace}{program} > /tmp/tried.out 2>&1\necho $? > /tmp/tried.status\nEND\n"
        );
        // systemd's own view of a unit's main process is part of what is looked at.
        script += &match case.start {
            Start::Session => format!("su - user -c 'sh {start}' > /dev/null 2>&1 & sleep 0.3\n"),
            Start::LeftBehind => format!("su - user -c 'setsid -f sh {start} > /dev/null 2>&1'\n"),
            Start::Unit(properties) => format!(
                "systemd-run --quiet --unit=tried -p User=user -p StandardOutput=file:/tmp/tried.out {properties} {coplace}{program}\n"
            ),
            Start::UserScope(properties) => format!(
                "su - user -c 'systemd-run --quiet --user --scope {properties} {coplace}{program}' > /tmp/tried.out 2>&1 & sleep 0.3\n"
            ),
        };
    }
    let first = case.programs[0].split_whitespace().next().and_then(|path| path.rsplit('/').next()).unwrap();
    if first != "dd" {
        let count = case.programs.iter().filter(|program| program.contains(first)).count();
        script += &format!(
            "until test $(pgrep -x -u user {first} | wc -l) = {count}; do sleep 0.1; done; sleep 1\n"
        );
    }
    sh(guest, &format!("{script}{}", case.act));
    let since = Instant::now();
    loop {
        let (_, seen) = guest.try_sh(&format!("{TOOLS}\n{}", case.sample));
        let seen = seen.split_whitespace().collect::<Vec<_>>().join(" ");
        if seen == case.becomes || since.elapsed() > PATIENCE / 3 {
            return seen;
        }
        std::thread::sleep(Duration::from_millis(300));
    }
}

/// Only what a case has done is taken back: each call of systemctl takes long in emulation.
fn clear(guest: &mut Guest, case: &Case) {
    let mut script = String::new();
    if case.act.contains("freeze $SLICE") {
        script += "systemctl thaw $SLICE 2> /dev/null\n";
    }
    if matches!(case.start, Start::Unit(_)) {
        script += "systemctl stop tried 2> /dev/null; systemctl reset-failed 2> /dev/null\n";
    }
    if [case.before, case.act].iter().any(|step| step.contains("limit ")) {
        script += "limit AllowedCPUs= CPUQuota= MemoryMax= MemoryHigh=\n";
    }
    script += "pkill -TERM -u user -x burn; pkill -TERM -u user -x rigid; pkill -KILL -u user -x dd
        for i in $(seq 100); do pgrep -u user -x 'burn|rigid|dd|coplace' > /dev/null || break; sleep 0.1; done; true";
    sh(guest, &script);
}

fn play_all(debian: Debian, cases: &[Case]) {
    on(debian, |guest| {
        let mut wrong = Vec::new();
        for case in cases {
            let without = std::env::var_os("COPLACE_WITHOUT").map(|_| "");
            for coplace in without.into_iter().chain(["coplace run -q --unmanaged ignore -- "]) {
                let since = Instant::now();
                let seen = play(guest, case, coplace);
                clear(guest, case);
                println!("{}, {coplace:?}, {:.1} s: {seen}", case.name, since.elapsed().as_secs_f64());
                if seen != case.becomes {
                    wrong.push(format!("{}, {coplace:?}: {seen} instead of {}", case.name, case.becomes));
                }
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    });
}

#[test]
fn limits_that_change_hold_as_without_coplace() {
    play_all(Debian::Trixie, &LIMITS);
}

#[test]
fn programs_end_as_without_coplace() {
    play_all(Debian::Bookworm, &ENDS);
}
