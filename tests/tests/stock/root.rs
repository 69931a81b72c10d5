//! The system's daemon, below its own unit, and two users who share the machine by it.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use coplace_tests::guest::Guest;

use crate::{Debian, User, on};

const RIGID: &str = "/apps/static/rigid --threads 4 --size X";

/// With the daemon started, and stopped again afterwards, however the test ends: later ones do without it.
fn with_daemon(debian: Debian, test: impl Fn(&mut Guest)) {
    with_daemon_configured(debian, "", test);
}

/// The same with another line in its configuration.
fn with_daemon_configured(debian: Debian, line: &str, test: impl Fn(&mut Guest)) {
    on(debian, |guest| {
        guest.sh(&format!(
            "cp /etc/coplace/config.toml /tmp/config.toml
             printf '%s\n' 'unmanaged = \"ignore\"' '{line}' > /etc/coplace/config.toml && systemctl start coplace"
        ));
        let ended = catch_unwind(AssertUnwindSafe(|| test(guest)));
        guest.sh("systemctl stop coplace && cp /tmp/config.toml /etc/coplace/config.toml");
        ended.unwrap_or_else(|panic| resume_unwind(panic));
    });
}

/// Starts a program of each of two users, and waits until both take turns.
fn start_two(guest: &mut Guest, program: &str) {
    for name in ["user", "other"] {
        User { guest, name }.start(&format!("of-{name}"), "--rigid", program);
    }
    User { guest, name: "user" }.until("two users' programs take turns", |user| {
        let (_, output) = user.guest.try_sh("coplace status --json");
        let status: serde_json::Value = serde_json::from_str(&output).ok()?;
        let turns = |at: usize| status["apps"][at]["account"]["turns"].as_u64() > Some(0);
        (turns(0) && turns(1)).then_some(())
    });
}

fn end_two(guest: &mut Guest) {
    for name in ["user", "other"] {
        User { guest, name }.end();
    }
}

#[test]
fn the_unit_starts_under_its_restrictions() {
    with_daemon(Debian::Trixie, |guest| {
        let shown = guest.sh("systemctl show coplace -p ActiveState,NRestarts,NoNewPrivileges,ProtectSystem");
        for is in ["ActiveState=active", "NRestarts=0", "NoNewPrivileges=yes", "ProtectSystem=strict"] {
            assert!(shown.contains(is), "{shown}");
        }
        // What a root daemon can do it does there as well: nothing of it is lost to the restrictions.
        let status = guest.sh("coplace status");
        assert!(status.contains("freezing (cgroup v2); filling: cpu.idle (cgroup v2)"), "{status}");
    });
}

#[test]
fn two_users_programs_stay_in_their_slices_and_keep_quotas() {
    with_daemon(Debian::Bookworm, |guest| {
        guest.sh("systemctl set-property --runtime user-1000.slice CPUQuota=100%
             systemctl set-property --runtime user-1001.slice CPUQuota=50%");
        start_two(guest, RIGID);
        let slices = guest.sh("for pid in $(pgrep -x rigid); do cut -d / -f 2-3 /proc/$pid/cgroup; done");
        let expected = BTreeSet::from(["user.slice/user-1000.slice", "user.slice/user-1001.slice"]);
        assert_eq!(slices.lines().collect::<BTreeSet<_>>(), expected);
        // CPU time of each slice, and how long that took, in microseconds.
        let used =
            guest.sh("used() { sed -n 's/usage_usec //p' /sys/fs/cgroup/user.slice/user-$1.slice/cpu.stat; }
             now() { sed 's/\\.//; s/ .*/0000/' /proc/uptime; }
             a=$(used 1000) b=$(used 1001) t=$(now); sleep 8
             echo $(($(used 1000) - a)) $(($(used 1001) - b)) $(($(now) - t))");
        let used: Vec<f64> = used.split_whitespace().map(|number| number.parse().unwrap()).collect();
        assert!(used[0] <= 1.05 * used[2] && used[1] <= 1.05 * 0.5 * used[2], "{used:?}");
        assert!(used[0] > 0.0 && used[1] > 0.0, "{used:?}");
        guest.sh("systemctl revert user-1000.slice user-1001.slice");
        end_two(guest);
    });
}

#[test]
fn no_user_can_touch_or_see_what_is_anothers() {
    const SECRET: &str = "secret-argument";
    with_daemon(Debian::Trixie, |guest| {
        // The second argument is the shell's name, which says nothing to anybody.
        start_two(guest, &format!("sh -c \"{RIGID}; true\" {SECRET}"));
        let pid = guest.sh("pgrep -u user -x rigid").trim().to_owned();
        let group = guest.sh(&format!("cut -d : -f 3 /proc/{pid}/cgroup")).trim().to_owned();
        let mut other = User { guest, name: "other" };
        for refused in [
            "coplace release of-user".to_owned(),
            format!("coplace attach {pid}"),
            "coplace policy set BP".to_owned(),
            "coplace record /tmp/record.jsonl".to_owned(),
            format!("echo 1 > /sys/fs/cgroup{group}/cgroup.freeze"),
            format!("echo $$ > /sys/fs/cgroup{group}/cgroup.procs"),
            format!("kill -STOP {pid}"),
            "cat /run/coplace/apps/of-user.json".to_owned(),
            "ls /run/coplace/pages".to_owned(),
        ] {
            let (status, output) = other.try_sh(&refused);
            assert_ne!(status, 0, "{refused}\n{output}");
        }
        for command in ["coplace status --json", "coplace explain", "coplace explain of-user"] {
            let shown = other.sh(command);
            assert!(shown.contains("of-user"), "{command}\n{shown}");
            // Its own program has the same argument.
            let times = usize::from(!command.ends_with("of-user"));
            assert_eq!(shown.matches(SECRET).count(), times, "{command}\n{shown}");
        }
        assert_eq!(guest.sh("coplace explain").matches(SECRET).count(), 2, "root sees all");
        end_two(guest);
    });
}

#[test]
fn a_group_limits_use_of_the_systems_daemon() {
    with_daemon_configured(Debian::Bookworm, "group = \"coplace\"", |guest| {
        guest.sh("usermod -aG coplace user");
        let roles = ["user", "other"].map(|name| {
            let mut user = User { guest, name };
            user.start("alone", "", "/apps/static/rigid --threads 1 --size X");
            let role = user.until("a scheduler has its program", |user| {
                let status = user.status();
                let runs = status["apps"].as_array()?.iter().any(|app| app["id"] == "alone");
                runs.then(|| status["role"].clone())
            });
            user.end();
            role
        });
        assert_eq!(roles, ["daemon", "leader"]);
        let shown = User { guest, name: "other" }.sh("coplace doctor");
        assert!(shown.contains("root's daemon is for members of group coplace"), "{shown}");
        guest.sh("gpasswd --delete user coplace");
    });
}
