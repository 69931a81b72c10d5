//! What the programs of a mix print: it can neither fail nor wait because of the mix.

use std::fs;
use std::os::unix::process::CommandExt;
use std::time::Duration;

use coplace_tests::Home;
use serde_json::Value;

/// The text of a mix of one program, a shell script.
fn script(home: &Home, text: &str) -> String {
    let path = home.path().join("script.sh");
    fs::write(&path, text).unwrap();
    format!("[[program]]\nname = 'chatty'\ncommand = ['sh', '{}']\n", path.display())
}

#[test]
fn a_program_that_prints_a_lot_fills_no_file_and_is_judged() {
    let home = Home::new();
    let file = home.path().join("mix.toml");
    let text = "head -c 67108864 /dev/zero | tr '\\0' 'x' | fold -w 100\necho\n\
                head -c 16777216 /dev/zero >&2\necho VERIFIED\n";
    fs::write(&file, script(&home, text)).unwrap();
    for quiet in [true, false] {
        let json = home.path().join("mix.json");
        let mut command = home.coplace();
        command.arg("mix").arg(&file).arg("--json").arg(&json);
        if quiet {
            command.arg("--quiet");
        }
        // Nobody in it may write a file of more than 1 MiB.
        // SAFETY: the limit is a plain value, and the call only limits the child.
        unsafe {
            command.pre_exec(|| {
                let limit = libc::rlimit { rlim_cur: 1 << 20, rlim_max: 1 << 20 };
                libc::setrlimit(libc::RLIMIT_FSIZE, &limit);
                Ok(())
            })
        };
        let output = command.output().unwrap();
        let result: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
        assert_eq!(result["programs"][0]["verified"], true, "{result}");
        assert!(output.status.success(), "{output:?}");
        // Shown with its name, or not at all.
        let shown = String::from_utf8_lossy(&output.stderr).matches("chatty │ xxxxx").count();
        assert_eq!(shown > 600_000, !quiet, "{shown} lines");
    }
    home.is_left_clean();
}

#[test]
fn a_program_that_prints_on_survives_a_killed_mix() {
    let home = Home::new();
    let file = home.path().join("mix.toml");
    let (begun, done) = (home.path().join("begun"), home.path().join("done"));
    // More than any pipe holds comes after the mix is gone.
    let text = format!(
        "echo one\necho > {}\nsleep 1\nhead -c 8388608 /dev/zero || exit\necho > {}\n",
        begun.display(),
        done.display()
    );
    fs::write(&file, script(&home, &text)).unwrap();
    let mut mix = home.start("mix", home.coplace().arg("mix").arg(&file));
    home.until("the program prints", || begun.exists());
    mix.signal(libc::SIGKILL);
    mix.ended_within(Duration::from_secs(10));
    home.until("the program has come to its end", || done.exists());
    home.until("nobody is left", || home.processes().is_empty());
}

#[test]
fn descendants_of_an_ended_program_may_print_on() {
    let home = Home::new();
    let done = home.path().join("done");
    let text =
        format!("(sleep 0.5; head -c 8388608 /dev/zero && echo > {}) &\necho VERIFIED\n", done.display());
    let file = home.path().join("mix.toml");
    fs::write(&file, script(&home, &text)).unwrap();
    let mut mix = home.start("mix", home.coplace().arg("mix").arg("--quiet").arg(&file));
    assert!(mix.ended_within(Duration::from_secs(60)).success(), "{}", mix.stderr());
    home.until("it has printed all", || done.exists());
    home.is_left_clean();
}
