//! coplace on a stock Debian 12 and 13 (systemd, nothing but cgroup v2), installed from its package, in emulation. Times
//! mean nothing there.

mod again;
mod limits;
mod package;
mod root;
mod user;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use coplace_tests::guest::{Guest, PATIENCE};
use serde_json::Value;

/// A release of Debian, and with it a machine of `tests/guest/boot`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Debian {
    Bookworm,
    Trixie,
}

impl Debian {
    const ALL: [Debian; 2] = [Debian::Bookworm, Debian::Trixie];

    fn machine(self) -> &'static str {
        match self {
            Debian::Bookworm => "stock-bookworm",
            Debian::Trixie => "stock-trixie",
        }
    }
}

/// Whether each test runs on every machine, and nothing is left out.
fn all_guests() -> bool {
    std::env::var("COPLACE_STOCK").is_ok_and(|which| which == "all")
}

/// Runs a test on this machine, which all tests share, and if `COPLACE_STOCK` is `all` on every other one, too. Where one
/// cannot be booted, its part counts as skipped. Only one machine works at a time: two that spin on the same CPUs are ten
/// times slower.
fn on(debian: Debian, test: impl Fn(&mut Guest)) {
    static GUESTS: [OnceLock<Mutex<Result<Guest, String>>>; 2] = [const { OnceLock::new() }; 2];
    static AT_WORK: Mutex<()> = Mutex::new(());
    for (each, guest) in
        Debian::ALL.into_iter().zip(&GUESTS).filter(|(each, _)| all_guests() || *each == debian)
    {
        // A test that failed elsewhere leaves nothing behind here.
        let _turn = AT_WORK.lock().unwrap_or_else(PoisonError::into_inner);
        let boot = || Guest::boot(each.machine(), &again::TESTS, &again::programs());
        let Some(mut guest) = Guest::shared(guest, boot) else { continue };
        println!("on {}", each.machine());
        let guest = guest.as_mut().expect("one that is shared has booted");
        let Err(panic) = catch_unwind(AssertUnwindSafe(|| test(guest))) else { continue };
        if !guest.is_lost_to_emulation() {
            resume_unwind(panic);
        }
        println!("its kernel died by a fault of QEMU's, so that it is booted again for the whole test");
        *guest = boot().expect("it booted before");
        test(guest);
    }
}

/// An ordinary user who logs in.
struct User<'a> {
    guest: &'a mut Guest,
    name: &'static str,
}

impl User<'_> {
    fn first(guest: &mut Guest) -> User<'_> {
        User { guest, name: "user" }
    }

    /// Runs a script in a login session of its own.
    fn try_sh(&mut self, script: &str) -> (i64, String) {
        assert!(!script.contains('\''), "{script}");
        self.guest.try_sh(&format!("su - {} -c '{script}'", self.name))
    }

    fn sh(&mut self, script: &str) -> String {
        let (status, output) = self.try_sh(script);
        assert_eq!(status, 0, "{script}\n{output}");
        output
    }

    /// Starts a program under coplace, in a login session of its own.
    fn start(&mut self, name: &str, options: &str, program: &str) {
        self.sh(&format!(
            "coplace run {options} --name {name} -- {program} > {name}.out 2> {name}.err & sleep 0.2"
        ));
    }

    /// By the user, but without a login, which would take most of the time of a test that looks often.
    fn status(&mut self) -> Value {
        let name = self.name;
        let (_, output) = self.guest.try_sh(&format!(
            "setpriv --reuid={name} --regid={name} --init-groups env HOME=/home/{name} coplace status --json"
        ));
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
                let script = "tail -n 5 /home/*/*.err; systemd-cgls --no-pager; journalctl -n 20";
                let more = self.guest.try_sh(script).1;
                panic!("not within {PATIENCE:?}: {what}\n{status:#}\n{more}");
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Ends every program, and waits until nothing of coplace runs.
    fn end(&mut self) {
        let name = self.name;
        self.guest.try_sh(&format!("pkill -TERM -u {name} -x rigid; pkill -TERM -u {name} -x breathe"));
        self.until("no program is left", |user| {
            (user.guest.try_sh(&format!("pgrep -u {name} coplace")).0 != 0).then_some(())
        });
    }
}
