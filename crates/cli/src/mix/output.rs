//! What the programs of a mix print.
//!
//! It goes to files, never through pipes: whoever kills a mix must not kill its programs by
//! SIGPIPE. What the files of a program get is shown, line by line with its name, as it comes.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use workload::{AppId, Program};

use crate::exit::Failure;

/// A line that never ends is cut here.
const MAX_LINE: usize = 64 << 10;

/// One stream of one program, read behind the program's back.
struct Tail {
    file: File,
    offset: u64,
    partial: Vec<u8>,
    /// Last line that was not empty.
    last: String,
}

impl Tail {
    fn open(path: &Path) -> std::io::Result<Tail> {
        Ok(Tail { file: File::open(path)?, offset: 0, partial: Vec::new(), last: String::new() })
    }

    /// Hands out the lines that came since the last call; with `rest` also the unfinished one.
    fn pump(&mut self, rest: bool, mut line: impl FnMut(&str)) {
        let mut chunk = vec![0; 64 << 10];
        let mut take = |text: &[u8], last: &mut String| {
            let text = String::from_utf8_lossy(text);
            let text = text.trim_end_matches(['\r', '\n']);
            if !text.trim().is_empty() {
                *last = text.trim().to_owned();
            }
            line(text);
        };
        // A file that can no longer be read has nothing more to show.
        while self.file.seek(SeekFrom::Start(self.offset)).is_ok() {
            let Ok(count @ 1..) = self.file.read(&mut chunk) else { break };
            self.offset += count as u64;
            self.partial.extend_from_slice(&chunk[..count]);
            let mut from = 0;
            while let Some(length) = self.partial[from..].iter().position(|&byte| byte == b'\n') {
                take(&self.partial[from..from + length], &mut self.last);
                from += length + 1;
            }
            self.partial.drain(..from);
            if self.partial.len() > MAX_LINE {
                take(&self.partial, &mut self.last);
                self.partial.clear();
            }
        }
        if rest && !self.partial.is_empty() {
            take(&self.partial, &mut self.last);
            self.partial.clear();
        }
    }
}

/// Where one instance's output goes and how far it was shown.
pub struct Output {
    stdout: Option<Tail>,
    stderr: Option<Tail>,
    show: (bool, bool),
}

/// The open files that a program is given.
pub struct Files {
    pub stdin: Option<File>,
    pub stdout: File,
    pub stderr: File,
}

/// Opens what the mix's file names, and files in `directory` for the rest. Of a program that is
/// repeated, later instances get files of their own (`cg.2.out`), lest they overwrite each other.
pub fn open(program: &Program, id: &AppId, directory: &Path, show: bool) -> Result<(Files, Output), Failure> {
    let own = |path: &PathBuf| match *id == program.name {
        true => path.clone(),
        false => path.with_file_name(match path.file_name().and_then(|name| name.to_str()) {
            Some(name) => format!("{id}.{name}"),
            None => id.to_string(),
        }),
    };
    let create = |path: &Path| File::create(path).map_err(|error| Failure::writing(path, error));
    let target = |named: &Option<PathBuf>, ending: &str| match named {
        Some(path) => own(path),
        None => directory.join(format!("{id}.{ending}")),
    };
    let (out, err) = (target(&program.stdout, "out"), target(&program.stderr, "err"));
    let stdin = match &program.stdin {
        None => None,
        Some(path) => Some(File::open(path).map_err(|error| {
            Failure::bad_input(format!("{id}: cannot read its stdin {}: {error}", path.display()))
        })?),
    };
    let files = Files { stdin, stdout: create(&out)?, stderr: create(&err)? };
    let show = (show && program.stdout.is_none(), show && program.stderr.is_none());
    // What was made a moment ago can be read, unless it is a pipe or a device: then nothing is shown.
    let tail = |path: &Path| path.is_file().then(|| Tail::open(path).ok()).flatten();
    Ok((files, Output { stdout: tail(&out), stderr: tail(&err), show }))
}

impl Output {
    /// Shows what came since the last call.
    pub fn pump(&mut self, ended: bool, mut print: impl FnMut(&str)) {
        let (show_out, show_err) = self.show;
        if let Some(tail) = &mut self.stdout {
            tail.pump(ended, |line| {
                if show_out {
                    print(line)
                }
            });
        }
        if let Some(tail) = self.stderr.as_mut().filter(|_| show_err) {
            tail.pump(ended, &mut print);
        }
    }

    /// What its last line on stdout says of its result.
    pub fn verified(&self) -> Option<bool> {
        let last = &self.stdout.as_ref()?.last;
        match () {
            () if last == "VERIFIED" => Some(true),
            () if last.starts_with("FAILED") => Some(false),
            () => None,
        }
    }
}

/// A directory that goes when its owner does.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn make(path: PathBuf) -> Result<Scratch, Failure> {
        fs::create_dir_all(&path).map_err(|error| Failure::writing(&path, error))?;
        Ok(Scratch(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A guard that is just ending may write while we remove. What cannot be removed at all is
        // removed by whoever sweeps after us.
        for _ in 0..20 {
            if fs::remove_dir_all(&self.0).is_ok() || !self.0.exists() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn lines_are_shown_once_and_whole_and_the_last_one_tells_the_verdict() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.out");
        let mut file = File::create(&path).unwrap();
        let mut output =
            Output { stdout: Some(Tail::open(&path).unwrap()), stderr: None, show: (true, true) };
        let mut lines = Vec::new();
        file.write_all(b"one\ntw").unwrap();
        output.pump(false, |line| lines.push(line.to_owned()));
        assert_eq!(lines, ["one"]);
        file.write_all(b"o\n\nVERI").unwrap();
        output.pump(false, |line| lines.push(line.to_owned()));
        assert_eq!(output.verified(), None);
        file.write_all(b"FIED").unwrap();
        output.pump(true, |line| lines.push(line.to_owned()));
        assert_eq!(lines, ["one", "two", "", "VERIFIED"]);
        assert_eq!(output.verified(), Some(true));
        file.write_all(b"\nFAILED: off by one\n\n").unwrap();
        output.pump(true, |_| {});
        assert_eq!(output.verified(), Some(false));
    }

    #[test]
    fn a_line_without_end_does_not_fill_the_memory() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.out");
        fs::write(&path, vec![b'x'; 3 * MAX_LINE]).unwrap();
        let mut tail = Tail::open(&path).unwrap();
        let mut longest = 0;
        tail.pump(false, |line| longest = longest.max(line.len()));
        assert!(tail.partial.len() <= MAX_LINE && longest <= 2 * MAX_LINE);
    }
}
