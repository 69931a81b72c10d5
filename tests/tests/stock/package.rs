//! The Debian package: it was installed when the machines booted.

use crate::{Debian, User, on};

/// Makes the package of a later version in the guest, as `/tmp/later.deb`.
const MAKE_LATER: &str = "set -e; rm -rf /tmp/later; dpkg-deb -R /tests/coplace.deb /tmp/later
    sed -i '/^Version:/s/$/+later/' /tmp/later/DEBIAN/control; dpkg-deb -Znone -b /tmp/later /tmp/later.deb";
const INSTALL: &str = "dpkg --install /tests/coplace.deb";

#[test]
fn an_upgrade_keeps_programs_running_and_managed() {
    on(Debian::Bookworm, |guest| {
        guest.sh(MAKE_LATER);
        guest.sh("systemctl start coplace");
        let mut user = User::first(guest);
        user.start("long", "", "/apps/breathe 10 1");
        user.until("it runs under the system's daemon", |user| {
            let status = user.status();
            (status["role"] == "daemon" && status["apps"][0]["state"] == "running").then_some(())
        });
        let before = user.guest.sh("systemctl show coplace -p MainPID");
        user.guest.sh("dpkg --install /tmp/later.deb");
        assert_ne!(user.guest.sh("systemctl show coplace -p MainPID"), before, "the daemon is the new one");
        user.until("the new daemon has it", |user| {
            let status = user.status();
            (status["role"] == "daemon" && status["apps"][0]["id"] == "long").then_some(())
        });
        user.end();
        assert_eq!(user.sh("tail -n 1 long.out").trim(), "VERIFIED");
        guest.sh("systemctl stop coplace");
        guest.sh(INSTALL);
    });
}

#[test]
fn a_program_survives_the_removal_of_the_package() {
    on(Debian::Trixie, |guest| {
        guest.sh("systemctl start coplace");
        let mut user = User::first(guest);
        for name in ["a", "b"] {
            user.start(name, "--rigid", "/apps/static/rigid --threads 4 --size X");
        }
        user.until("they take turns under the system's daemon", |user| {
            let status = user.status();
            (status["apps"][1]["account"]["turns"].as_u64() > Some(0)).then_some(())
        });
        user.guest.sh("dpkg --remove coplace");
        // From now on one of their runs leads, and they take turns by its means.
        let used = |user: &mut User<'_>| -> Vec<u64> {
            let times =
                user.guest.sh("for pid in $(pgrep -x rigid); do cut -d ' ' -f 14 /proc/$pid/stat; done");
            times.lines().map(|ticks| ticks.parse().unwrap()).collect()
        };
        let before = used(&mut user);
        user.until("both go on", |user| {
            let now = used(user);
            (now.len() == 2 && now.iter().zip(&before).all(|(now, before)| now > before)).then_some(())
        });
        user.end();
        guest.sh(INSTALL);
    });
}

#[test]
fn a_purge_leaves_nothing() {
    on(Debian::Bookworm, |guest| {
        guest.sh("systemctl enable --now coplace && systemctl stop coplace && dpkg --purge coplace");
        let left = guest.sh(
            "find / -xdev \\( -path /proc -o -path /sys -o -path /tests -o -path /home -o -path /root \\) -prune \
             -o -name '*coplace*' -print | grep -v -e ^/tmp/ -e ^/run/user/ -e /journal/ || true
             test ! -e /run/coplace || ls -la /run/coplace; systemctl list-unit-files 'coplace*' --no-legend || true",
        );
        assert_eq!(left, "");
        guest.sh(INSTALL);
    });
}
