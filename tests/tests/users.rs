//! Root's daemon and programs of other users.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use coplace_tests::{Home, app, coplace, processes, skipped};
use serde_json::Value;

/// Users whom nobody is.
const FIRST: u32 = 54_321;
const SECOND: u32 = 54_322;

/// The test's own words in a place where every user finds them, as the checkout may be root's alone.
fn for_all(home: &Home, from: &str, name: &str) -> String {
    let to = home.path().join(name);
    fs::copy(from, &to).expect("it can be copied");
    fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).expect("it is ours");
    to.to_str().expect("the path is text").to_owned()
}

/// Whether other users can be had, in a view of the file system where /run is nobody else's.
fn can_be_others() -> bool {
    let try_it = format!("mount -t tmpfs none /run && setpriv --reuid {FIRST} --clear-groups true");
    let tried = Command::new("unshare").args(["--mount", "sh", "-c", &try_it]).output();
    tried.is_ok_and(|output| output.status.success())
}

#[test]
fn roots_daemon_resizes_the_programs_of_two_users() {
    const NAME: &str = "roots_daemon_resizes_the_programs_of_two_users";
    if !rustix::process::geteuid().is_root() || !can_be_others() {
        return skipped(NAME, "it takes root, `unshare --mount` and `setpriv`");
    }
    // Groups of cgroups are named after the path: this test's daemon would take those of the machine's own.
    if Path::new("/run/coplace/socket").exists() {
        return skipped(NAME, "a daemon of root's runs on this machine");
    }
    if processes::cpu_count() < 2 {
        return skipped(NAME, "two programs side by side take two CPUs");
    }
    let home = Home::new();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
    let coplace = for_all(&home, coplace().to_str().expect("the path is text"), "coplace");
    let regions = for_all(&home, &app("regions"), "regions");
    for user in [FIRST, SECOND] {
        let directory = home.path().join(user.to_string());
        fs::create_dir(&directory).expect("the home can be written");
        std::os::unix::fs::chown(&directory, Some(user), Some(user)).expect("root may");
    }
    let script = format!(
        "mount -t tmpfs none /run
        for user in {FIRST} {SECOND}; do mkdir -p /run/user/$user && chown $user:$user /run/user/$user; done
        unset COPLACE_RUNTIME_DIR COPLACE_CONFIG XDG_CACHE_HOME
        as() {{
            user=$1; shift
            HOME=$PWD/$user XDG_RUNTIME_DIR=$PWD/$user setpriv --reuid $user --regid $user --clear-groups \"$@\"
        }}
        {coplace} daemon --policy TA --unmanaged ignore & daemon=$!
        until {coplace} status >/dev/null 2>&1; do sleep 0.05; done
        as {FIRST} {coplace} run --name long -- {regions} --size S --scale 40 >long.out 2>&1 & long=$!
        until {coplace} status --json | tr -d '\\n ' | grep -q '\"team\":[2-9]'; do sleep 0.05; done
        as {SECOND} {coplace} run --name short -- {regions} --size S --scale 5 >short.out 2>&1 & short=$!
        while kill -0 $long 2>/dev/null; do {coplace} status --json | tr -d '\\n'; echo; sleep 0.05; done
        wait $long && wait $short; ended=$?
        kill $daemon; wait $daemon
        exit $ended"
    );
    let mut all = home.start("all", home.command("unshare").args(["--mount", "sh", "-c", &script]));
    let status = all.ended_within(Duration::from_secs(240));
    let output_of = |name: &str| fs::read_to_string(home.path().join(name)).unwrap_or_default();
    assert!(
        status.success(),
        "{status}: {}{}{}",
        all.stderr(),
        output_of("long.out"),
        output_of("short.out")
    );
    assert!(output_of("long.out").contains("VERIFIED") && output_of("short.out").contains("VERIFIED"));

    let samples: Vec<Value> =
        all.stdout().lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let app = |sample: &Value, name: &str| -> Option<Value> {
        sample["apps"].as_array()?.iter().find(|app| app["id"] == name).cloned()
    };
    let alone = |sample: &Value| {
        app(sample, "long").is_some_and(|long| long["team"].as_u64() >= Some(2) && long["uid"] == FIRST)
            && app(sample, "short").is_none()
    };
    let beside = |sample: &Value| {
        ["long", "short"].iter().all(|name| {
            app(sample, name).is_some_and(|app| app["team"] == app["threads"] && app["rigid"].is_null())
        }) && app(sample, "long").map(|long| long["place"].clone())
            != app(sample, "short").map(|short| short["place"].clone())
    };
    let first = samples.iter().position(alone).expect("the first one has the machine to itself");
    let both = samples[first..].iter().position(beside).expect("then both have their part, and keep to it");
    assert!(samples[first + both..].iter().any(alone), "and the first one gets all of it back");
    home.is_left_clean();
}

#[test]
fn cron_and_a_login_of_one_user_have_one_scheduler() {
    const NAME: &str = "cron_and_a_login_of_one_user_have_one_scheduler";
    // Nobody's, and no other test's: its directory in /tmp is the machine's.
    const USER: u32 = 54_323;
    if !rustix::process::geteuid().is_root() || !can_be_others() {
        return skipped(NAME, "it takes root, `unshare --mount` and `setpriv`");
    }
    let home = Home::new();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o777)).expect("it is ours");
    let coplace = for_all(&home, coplace().to_str().expect("the path is text"), "coplace");
    let cache = home.path().join("cache");
    fs::create_dir(&cache).expect("the home can be written");
    fs::set_permissions(&cache, fs::Permissions::from_mode(0o777)).expect("it is ours");
    let script = format!(
        "mount -t tmpfs none /run; umask 022
        unset COPLACE_RUNTIME_DIR COPLACE_CONFIG; export HOME=/nonexistent
        as='setpriv --reuid {USER} --regid {USER} --clear-groups env'
        cron='-u XDG_RUNTIME_DIR'; login=XDG_RUNTIME_DIR=/run/user/{USER}; su=XDG_RUNTIME_DIR=/run/user/0
        sees() {{ until $as $1 {coplace} status --json 2>/dev/null | grep -q '\"'$2'\"'; do sleep 0.05; done; }}
        $as $cron {coplace} run --quiet --name cron -- sleep 600 & one=$!
        sees \"$cron\" cron
        mkdir -p /run/user/{USER} && chown {USER}:{USER} /run/user/{USER}
        $as $login {coplace} run --quiet --name login -- sleep 600 & two=$!
        $as $su {coplace} run --quiet --name su -- sleep 600 & three=$!
        sees \"$cron\" login; sees \"$cron\" su; sees $login su
        $as $login {coplace} status --json | tr -d '\\n'; echo
        ls -d /run/user/{USER}/coplace 2>/dev/null
        kill -TERM $one $two $three; wait
        $as $cron {coplace} run --quiet --name later -- sleep 0.2
        ls -d /run/user/{USER}/coplace
        rm -r /tmp/coplace-{USER}"
    );
    let mut all = home.start("all", home.command("unshare").args(["--mount", "sh", "-c", &script]));
    let status = all.ended_within(Duration::from_secs(120));
    assert!(status.success(), "{status}: {}", all.stderr());
    let printed = all.stdout();
    let mut lines = printed.lines();
    let sample: Value = serde_json::from_str(lines.next().expect("it was looked")).expect("it is JSON");
    let mut names: Vec<_> =
        sample["apps"].as_array().expect("it is there").iter().map(|app| &app["id"]).collect();
    names.sort_by_key(|name| name.to_string());
    assert_eq!(names, ["cron", "login", "su"]);
    // Nobody went to the login's place while somebody lived in the other, and everybody does afterwards.
    let places: Vec<&str> = lines.collect();
    assert_eq!(places, [format!("/run/user/{USER}/coplace")]);
    home.is_left_clean();
}
