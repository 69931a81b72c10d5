//! Runs the real binary in a world of its own.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A coplace in the background; a test that fails leaves none.
pub struct Started(Child);

impl From<Command> for Started {
    fn from(mut command: Command) -> Started {
        Started(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Started {
    pub fn signal(&self, number: i32) {
        // SAFETY: the process is a child that was not waited for.
        unsafe { libc::kill(self.0.id() as i32, number) };
    }

    pub fn status(&mut self) -> Option<i32> {
        self.0.wait().unwrap().code()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if self.0.try_wait().is_ok_and(|status| status.is_none()) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

pub struct World {
    directory: tempfile::TempDir,
}

impl World {
    pub fn new() -> World {
        let world = World { directory: tempfile::tempdir().unwrap() };
        std::fs::create_dir(world.path("home")).unwrap();
        world
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn runtime(&self) -> PathBuf {
        self.path("run")
    }

    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.within(env!("CARGO_BIN_EXE_coplace"));
        command.args(arguments);
        command
    }

    /// A line as somebody types it; its `coplace` is the one that is tested.
    pub fn shell(&self, line: &str) -> Output {
        let directory = Path::new(env!("CARGO_BIN_EXE_coplace")).parent().unwrap().display();
        let path = format!("{directory}:{}", std::env::var("PATH").unwrap_or_default());
        self.within("sh").args(["-c", line]).env("PATH", path).output().unwrap()
    }

    /// A program in this world.
    fn within(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.directory.path());
        command.env("COPLACE_RUNTIME_DIR", self.runtime()).env("HOME", self.path("home"));
        command.env_remove("XDG_CONFIG_HOME").env_remove("COPLACE_CONFIG").env_remove("XDG_CACHE_HOME");
        command.stdin(Stdio::null());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    pub fn spawn(&self, arguments: &[&str]) -> Started {
        Started::from(self.command(arguments))
    }

    /// Exit status and the one line that tells why.
    pub fn fails(&self, arguments: &[&str], status: i32, wanted: &[&str]) {
        let output = self.run(arguments);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {error}");
        for part in wanted {
            assert!(error.contains(part), "{arguments:?}: '{part}' is not in: {error}");
        }
        self.is_clean();
    }

    /// No process, no group and no file of ours is left (the lock and empty directories may be).
    pub fn is_clean(&self) {
        until("every process to end", || self.processes().is_empty());
        let left = self.files(&self.runtime());
        let empty = |path: &PathBuf| std::fs::metadata(path).is_ok_and(|meta| meta.len() == 0);
        // What programs turned out to be is meant to stay.
        let meant = |path: &PathBuf| {
            ["lease", "remembered.json", "regions.json"].iter().any(|name| path.ends_with(name))
        };
        let left: Vec<_> = left.into_iter().filter(|path| !empty(path) && !meant(path)).collect();
        assert!(left.is_empty(), "left behind: {left:?}");
    }

    fn files(&self, directory: &Path) -> Vec<PathBuf> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            match entry.path() {
                path if path.is_dir() => {
                    assert!(
                        !path.file_name().unwrap().to_string_lossy().starts_with("mix."),
                        "{path:?} is left"
                    );
                    files.extend(self.files(&path));
                }
                path => files.push(path),
            }
        }
        files
    }

    /// Processes that carry this world's directory in their environment.
    pub fn processes(&self) -> Vec<u32> {
        let mark = format!("COPLACE_RUNTIME_DIR={}\0", self.runtime().display()).into_bytes();
        let carries = |pid: &u32| {
            std::fs::read(format!("/proc/{pid}/environ"))
                .is_ok_and(|text| text.windows(mark.len()).any(|window| window == mark))
        };
        let pids = std::fs::read_dir("/proc").unwrap().flatten();
        pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(carries).collect()
    }
}

/// Waits for what happens by itself soon; a loaded machine may take its time.
pub fn until(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(60), "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
