//! coplace for an ordinary user of a stock Debian 12 (systemd, nothing but cgroup v2), in emulation. Times mean nothing
//! there.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use coplace_tests::guest::{Guest, PATIENCE};
use serde_json::Value;

const SCOPE: &str = "/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/app.slice/coplace.scope";

/// The one guest that all tests share; where it cannot be booted, the test counts as skipped.
fn stock() -> Option<MutexGuard<'static, Result<Guest, String>>> {
    static GUEST: OnceLock<Mutex<Result<Guest, String>>> = OnceLock::new();
    Guest::shared(&GUEST, || Guest::boot("stock-bookworm", &[], &[]))
}

/// An ordinary user who has logged in, for one test.
struct User<'a>(&'a mut Guest);

impl User<'_> {
    /// Runs a script in a login session of its own.
    fn try_sh(&mut self, script: &str) -> (i64, String) {
        assert!(!script.contains('\''), "{script}");
        self.0.try_sh(&format!("su - user -c '{script}'"))
    }

    fn sh(&mut self, script: &str) -> String {
        let (status, output) = self.try_sh(script);
        assert_eq!(status, 0, "{script}\n{output}");
        output
    }

    /// Starts a program under coplace, in a login session of its own.
    fn start(&mut self, name: &str, options: &str, program: &str) {
        self.sh(&format!(
            "coplace run {options} --unmanaged ignore --name {name} -- {program} > {name}.out 2> {name}.err & sleep 0.2"
        ));
    }

    fn status(&mut self) -> Value {
        let (_, output) = self.try_sh("coplace status --json");
        serde_json::from_str(&output).unwrap_or_default()
    }

    fn until<T>(&mut self, what: &str, mut found: impl FnMut(&mut Self) -> Option<T>) -> T {
        let since = Instant::now();
        loop {
            if let Some(found) = found(self) {
                return found;
            }
            if since.elapsed() > PATIENCE {
                let status = self.status();
                let more =
                    self.0.try_sh("tail -n 5 /home/user/*.err; systemd-cgls --no-pager; journalctl -n 20").1;
                panic!("not within {PATIENCE:?}: {what}\n{status:#}\n{more}");
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Ends every program, and waits until nothing of coplace is left, the scope included.
    fn end(&mut self) {
        self.0.try_sh("pkill -TERM -u user -x rigid; pkill -TERM -u user -x breathe");
        self.until("the scope is gone", |user| {
            let (status, _) = user.0.try_sh(&format!("pgrep -u user coplace || test -e {SCOPE}"));
            (status != 0).then_some(())
        });
    }

    /// What each of these programs' files (`cgroup.freeze`, `cpu.idle`) has shown, until each has shown both values.
    fn until_both_values(&mut self, names: &[&str], file: &str) {
        let mut seen: BTreeSet<(usize, String)> = BTreeSet::new();
        self.until(&format!("{file} of each changes"), |user| {
            for (at, name) in names.iter().enumerate() {
                let script =
                    format!("for i in $(seq 20); do cat {SCOPE}/coplace/*/{name}/{file}; sleep 0.02; done");
                let (_, output) = user.0.try_sh(&script);
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
    let Some(mut guest) = stock() else { return };
    let mut user = User(guest.as_mut().unwrap());
    for name in ["a", "b"] {
        user.start(name, "--rigid", "/apps/static/rigid --threads 4 --size X");
    }
    let status = until_two_programs(&mut user);
    assert_eq!(status["turns"], "freezing (cgroup v2); filling: cpu.idle (cgroup v2)", "{status:#}");
    user.until_both_values(&["a", "b"], "cgroup.freeze");
    user.end();
}

#[test]
fn a_users_programs_fill_each_others_turns_by_cpu_idle() {
    let Some(mut guest) = stock() else { return };
    let mut user = User(guest.as_mut().unwrap());
    for name in ["a", "b"] {
        user.start(name, "--rigid --turns idle", "/apps/static/rigid --threads 4 --size X");
    }
    until_two_programs(&mut user);
    user.until_both_values(&["a", "b"], "cpu.idle");
    user.end();
}

#[test]
fn a_users_resized_programs_have_packages_of_their_own() {
    let Some(mut guest) = stock() else { return };
    let mut user = User(guest.as_mut().unwrap());
    for name in ["a", "b"] {
        user.start(name, "", "/apps/breathe 10 1");
    }
    user.until("each has a package and a team of its width", |user| {
        let status = user.status();
        let apps = status["apps"].as_array()?;
        let places: BTreeSet<&str> = apps.iter().filter_map(|app| app["place"].as_str()).collect();
        let teams = apps.iter().all(|app| app["team"] == 2);
        (places == ["0-1", "2-3"].into() && teams).then_some(())
    });
    user.end();
}

/// What `coplace doctor` says in a session of its own that is limited before.
#[test]
fn a_session_with_a_limit_is_not_left() {
    let Some(mut guest) = stock() else { return };
    let guest = guest.as_mut().unwrap();
    let shown = guest.sh("su - user -c 'sleep 2; coplace doctor' > /tmp/shown 2>&1 & sleep 1
         session=$(loginctl --no-legend list-sessions | awk '$3 == \"user\" { print $1 }' | tail -n 1)
         systemctl set-property --runtime session-$session.scope CPUQuota=50%
         wait; cat /tmp/shown");
    assert!(shown.contains("has a limit of its own (cpu.max)"), "{shown}");
    assert!(shown.contains("turns       SIGSTOP"), "{shown}");
}

#[test]
fn a_process_without_a_login_session_stays_where_it_is() {
    let Some(mut guest) = stock() else { return };
    let guest = guest.as_mut().unwrap();
    let shown = guest.sh("setpriv --reuid=user --regid=user --clear-groups env HOME=/tmp coplace doctor");
    assert!(shown.contains("turns       SIGSTOP"), "{shown}");
}

#[test]
fn an_administrator_hands_cpusets_down_by_the_line_of_doctor() {
    let Some(mut guest) = stock() else { return };
    let mut user = User(guest.as_mut().unwrap());
    let shown = user.sh("coplace doctor");
    let (_, rest) = shown.split_once("to get it: as root: mkdir").unwrap_or_else(|| panic!("{shown}"));
    let (line, _) = rest.split_once("; then log in anew").expect("the whole of it is there");
    user.0.sh(&format!("mkdir{line}"));
    user.until("the user's systemd has ended", |user| {
        user.0.try_sh("loginctl terminate-user user");
        (user.0.try_sh("pgrep -u user").0 != 0).then_some(())
    });
    for name in ["a", "b"] {
        user.start(name, "--placement cpuset", "/apps/breathe 10 1");
    }
    user.until("each has a cpuset of one package", |user| {
        let (_, cpusets) = user.0.try_sh(&format!("cat {SCOPE}/coplace/*/?/cpuset.cpus"));
        let places: BTreeSet<&str> = cpusets.lines().collect();
        (places == ["0-1", "2-3"].into()).then_some(())
    });
    user.end();
    user.0.sh("rm -r /etc/systemd/system/user@.service.d && systemctl daemon-reload");
}
