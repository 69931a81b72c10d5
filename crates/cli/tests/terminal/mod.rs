//! A shell with job control on a terminal of its own, to be typed at.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub struct Terminal {
    shell: Child,
    keyboard: File,
    screen: Arc<Mutex<String>>,
    /// How much of the screen was looked at.
    position: usize,
}

impl Terminal {
    /// Bash, with `coplace` meeting others in `home` only.
    pub fn open(home: &Path) -> Terminal {
        // Closed on exec from the beginning: other tests start programs meanwhile.
        let how = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
        // SAFETY: no pointers; each descriptor is used while it is open.
        let (master, slave) = unsafe {
            let master = libc::posix_openpt(how);
            assert!(master >= 0 && libc::unlockpt(master) == 0, "no pseudo-terminal");
            (master, libc::ioctl(master, libc::TIOCGPTPEER, how))
        };
        assert!(slave >= 0, "no pseudo-terminal");
        // SAFETY: both were just opened and belong to nobody else.
        let (master, slave) = unsafe { (OwnedFd::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) };
        let stdio = || Stdio::from(slave.try_clone().unwrap());
        let mut command = Command::new("bash");
        command.args(["--norc", "--noprofile", "--noediting", "-i"]);
        command.stdin(stdio()).stdout(stdio()).stderr(stdio());
        command
            .env("COPLACE_RUNTIME_DIR", home)
            .env("PS1", "\\$ ")
            .env("COPLACE", env!("CARGO_BIN_EXE_coplace"));
        command.env_remove("HISTFILE").env("PATH", std::env::var_os("PATH").unwrap());
        // SAFETY: two system calls without pointers.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
                Ok(())
            });
        }
        let shell = command.spawn().unwrap();
        drop((command, slave));
        let screen = Arc::new(Mutex::new(String::new()));
        let keyboard = File::from(master);
        let mut from = keyboard.try_clone().unwrap();
        let to = Arc::clone(&screen);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                to.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        let mut terminal = Terminal { shell, keyboard, screen, position: 0 };
        // What is typed is not shown, so that what is expected is what programs wrote.
        terminal.type_line("stty -echo; PS1=; echo ready$((1))");
        terminal.expect("ready1");
        terminal
    }

    pub fn type_line(&mut self, line: &str) {
        self.keyboard.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// `C`, `Z`, `\\`: with the control key held.
    pub fn type_control(&mut self, key: u8) {
        self.keyboard.write_all(&[key & 0x1f]).unwrap();
    }

    /// Waits until the shell has put the job of this program in front, where keys reach it; it says so
    /// a moment earlier.
    #[track_caller]
    pub fn puts_in_front(&mut self, program: i32) {
        let began = Instant::now();
        // SAFETY: no pointers; the descriptor is the terminal's.
        while unsafe { libc::tcgetpgrp(self.keyboard.as_raw_fd()) != libc::getpgid(program) } {
            assert!(began.elapsed() < Duration::from_secs(60), "program {program} does not come in front");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until this text has appeared behind what was expected before.
    #[track_caller]
    pub fn expect(&mut self, text: &str) {
        let began = Instant::now();
        loop {
            let screen = self.screen.lock().unwrap().clone();
            if let Some(at) = screen[self.position..].find(text) {
                self.position += at + text.len();
                return;
            }
            assert!(
                began.elapsed() < Duration::from_secs(60),
                "'{text}' did not appear; the screen since shows: {}",
                &screen[self.position..]
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The terminal's hangup ends the jobs; stopped ones are continued first by the kernel.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}
