//! An ordinary user, who has logged in, without root and without any configuration.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{Debian, User, on};

/// What runs in an emulated machine beside its programs comes and goes: a `run` that leads is to plan as if that were not
/// there.
const LEADS: &str = "--unmanaged ignore";
const SCOPE: &str = "/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/app.slice/coplace.scope";

const RIGID: &str = "/apps/static/rigid --threads 4 --size X";

impl User<'_> {
    /// Starts two of a program, as `a` and `b`.
    fn start_both(&mut self, options: &str, program: &str) {
        for name in ["a", "b"] {
            self.start(name, options, program);
        }
    }

    /// Ends every program, and waits until nothing of coplace is left, the scope included.
    fn end_all(&mut self) {
        self.end();
        self.until("the scope is gone", |user| {
            (user.guest.try_sh(&format!("test -e {SCOPE}")).0 != 0).then_some(())
        });
    }

    /// What each of these programs' files (`cgroup.freeze`, `cpu.idle`) has shown, until each has shown both values.
    fn until_both_values(&mut self, names: &[&str], file: &str) {
        let mut seen: BTreeSet<(usize, String)> = BTreeSet::new();
        self.until(&format!("{file} of each changes"), |user| {
            for (at, name) in names.iter().enumerate() {
                let script =
                    format!("for i in $(seq 20); do cat {SCOPE}/coplace/*/{name}/{file}; sleep 0.02; done");
                let (_, output) = user.guest.try_sh(&script);
                seen.extend(output.lines().map(|line| (at, line.to_owned())));
            }
            (0..names.len())
                .all(|at| ["0", "1"].map(|value| (at, value.to_owned())).iter().all(|is| seen.contains(is)))
                .then_some(())
        });
    }
}

fn until_two_programs(user: &mut User<'_>) -> Value {
    user.until("two programs take turns", |user| {
        let status = user.status();
        let apps = status["apps"].as_array()?;
        let turns = |app: &Value| app["account"]["turns"].as_u64() > Some(0);
        (apps.len() == 2 && apps.iter().all(turns)).then_some(status)
    })
}

#[test]
fn a_users_spinning_programs_take_turns_by_the_freezer() {
    on(Debian::Bookworm, |guest| {
        let mut user = User::first(guest);
        user.start_both(&format!("{LEADS} --rigid"), RIGID);
        let status = until_two_programs(&mut user);
        assert_eq!(status["turns"], "freezing (cgroup v2); filling: cpu.idle (cgroup v2)", "{status:#}");
        user.until_both_values(&["a", "b"], "cgroup.freeze");
        user.end_all();
    });
}

#[test]
fn a_users_programs_fill_each_others_turns_by_cpu_idle() {
    on(Debian::Trixie, |guest| {
        let mut user = User::first(guest);
        user.start_both(&format!("{LEADS} --rigid --turns idle"), RIGID);
        until_two_programs(&mut user);
        user.until_both_values(&["a", "b"], "cpu.idle");
        user.end_all();
    });
}

#[test]
fn a_users_resized_programs_have_packages_of_their_own() {
    on(Debian::Bookworm, |guest| {
        let mut user = User::first(guest);
        user.start_both(LEADS, "/apps/breathe 10 1");
        user.until("each has a package and a team of its width", |user| {
            let status = user.status();
            let apps = status["apps"].as_array()?;
            let places: BTreeSet<&str> = apps.iter().filter_map(|app| app["place"].as_str()).collect();
            let teams = apps.iter().all(|app| app["team"] == 2);
            (places == ["0-1", "2-3"].into() && teams).then_some(())
        });
        user.end_all();
    });
}

/// What `coplace doctor` says in a session of its own that is limited before.
#[test]
fn a_session_with_a_limit_is_not_left() {
    on(Debian::Trixie, |guest| {
        let shown = guest.sh("su - user -c 'sleep 2; coplace doctor' > /tmp/shown 2>&1 & sleep 1
         session=$(loginctl --no-legend list-sessions | awk '$3 == \"user\" { print $1 }' | tail -n 1)
         systemctl set-property --runtime session-$session.scope CPUQuota=50%
         wait; cat /tmp/shown");
        assert!(shown.contains("has a limit of its own (cpu.max)"), "{shown}");
        assert!(shown.contains("turns       SIGSTOP"), "{shown}");
    });
}

#[test]
fn a_process_without_a_login_session_stays_where_it_is() {
    on(Debian::Bookworm, |guest| {
        let shown = guest.sh("setpriv --reuid=user --regid=user --clear-groups env HOME=/tmp coplace doctor");
        assert!(shown.contains("turns       SIGSTOP"), "{shown}");
    });
}

#[test]
fn an_administrator_hands_cpusets_down_by_the_line_of_doctor() {
    on(Debian::Trixie, |guest| {
        let mut user = User::first(guest);
        let shown = user.sh("coplace doctor");
        let (_, rest) = shown.split_once("to get it: as root: mkdir").unwrap_or_else(|| panic!("{shown}"));
        let (line, _) = rest.split_once("; then log in anew").expect("the whole of it is there");
        user.guest.sh(&format!("mkdir{line}"));
        user.until("the user's systemd has ended", |user| {
            user.guest.try_sh("loginctl terminate-user user");
            (user.guest.try_sh("pgrep -u user").0 != 0).then_some(())
        });
        user.start_both(&format!("{LEADS} --placement cpuset"), "/apps/breathe 10 1");
        user.until("each has a cpuset of one package", |user| {
            let (_, cpusets) = user.guest.try_sh(&format!("cat {SCOPE}/coplace/*/?/cpuset.cpus"));
            let places: BTreeSet<&str> = cpusets.lines().collect();
            (places == ["0-1", "2-3"].into()).then_some(())
        });
        user.end_all();
        user.guest.sh("rm -r /etc/systemd/system/user@.service.d && systemctl daemon-reload");
    });
}
