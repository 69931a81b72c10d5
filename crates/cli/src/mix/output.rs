//! What the programs of a mix print.
//!
//! What their user names goes to files. The rest is shown, line by line with its name, and thrown away, but for
//! the last line on stdout, which tells the verdict: it goes through pipes, so that no program can fill a
//! file system with what nobody wanted to keep. Whoever kills a mix does not kill its programs by SIGPIPE: see
//! `drain`.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use workload::{AppId, Program};

use super::drain::{self, Drain};
use crate::exit::Failure;

/// A line that never ends is cut here.
const MAX_LINE: usize = 64 << 10;
/// What is read at once from a program that prints without end.
const MOST_AT_ONCE: usize = 4 << 20;
/// What a program may print while nobody has a CPU to read it; what the kernel allows where that is less.
const PIPE_BYTES: usize = 1 << 20;

/// Where what a program prints is read.
enum Source {
    /// Behind its back, from here on.
    File(File, u64),
    Pipe(File),
    /// Nothing comes any more.
    Ended,
}

/// One stream of one program.
struct Tail {
    source: Source,
    partial: Vec<u8>,
    /// Last line that was not empty.
    last: String,
}

impl Tail {
    fn of(source: Source) -> Tail {
        Tail { source, partial: Vec::new(), last: String::new() }
    }

    fn open(path: &Path) -> std::io::Result<Tail> {
        Ok(Tail::of(Source::File(File::open(path)?, 0)))
    }

    /// What comes first of what was not read yet; 0: nothing is there.
    fn read(&mut self, chunk: &mut [u8]) -> usize {
        let count = match &mut self.source {
            Source::Ended => return 0,
            Source::File(file, offset) => {
                let count = file.seek(SeekFrom::Start(*offset)).and_then(|_| file.read(chunk)).unwrap_or(0);
                *offset += count as u64;
                return count;
            }
            Source::Pipe(pipe) => pipe.read(chunk),
        };
        match count {
            Ok(count @ 1..) => count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => 0,
            Ok(_) | Err(_) => {
                self.source = Source::Ended;
                0
            }
        }
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
        let mut read = 0;
        // Of a file the rest is all that was printed; a pipe may still be somebody's who was left behind.
        while read < MOST_AT_ONCE || rest && matches!(self.source, Source::File(..)) {
            let count = self.read(&mut chunk);
            if count == 0 {
                break;
            }
            read += count;
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
    /// Reads on when this is dropped.
    _drain: Option<Drain>,
}

/// The open files that a program is given.
pub struct Files {
    pub stdin: Option<File>,
    pub stdout: File,
    pub stderr: File,
}

/// Opens what the mix's file names, files in `directory` where one was asked for, and pipes for the rest. Of a
/// program that is repeated, later instances get files of their own (`cg.2.out`), lest they overwrite each other.
pub fn open(
    program: &Program,
    id: &AppId,
    directory: Option<&Path>,
    show: bool,
) -> Result<(Files, Output), Failure> {
    let own = |path: &PathBuf| match *id == program.name {
        true => path.clone(),
        false => path.with_file_name(match path.file_name().and_then(|name| name.to_str()) {
            Some(name) => format!("{id}.{name}"),
            None => id.to_string(),
        }),
    };
    let target = |named: &Option<PathBuf>, ending: &str| match named {
        Some(path) => Some(own(path)),
        None => directory.map(|directory| directory.join(format!("{id}.{ending}"))),
    };
    let stdin = match &program.stdin {
        None => None,
        Some(path) => Some(File::open(path).map_err(|error| {
            Failure::bad_input(format!("{id}: cannot read its stdin {}: {error}", path.display()))
        })?),
    };
    let (out, err) = (target(&program.stdout, "out"), target(&program.stderr, "err"));
    let (stdout, out) = stream(out.as_deref(), true)?;
    let (stderr, err) = stream(err.as_deref(), show)?;
    let pipes = (out.as_ref().and_then(Tail::pipe), err.as_ref().and_then(Tail::pipe));
    let drain = match pipes {
        (None, None) => None,
        (out, err) => drain::start(out, err).map_err(|error| {
            Failure::ours(format!("{id}: no process could take over its output: {error}"))
        })?,
    };
    let show = (show && program.stdout.is_none(), show && program.stderr.is_none());
    Ok((Files { stdin, stdout, stderr }, Output { stdout: out, stderr: err, show, _drain: drain }))
}

/// Where a program is to print one of its streams, and how that is read; `None`: it is not.
fn stream(path: Option<&Path>, wanted: bool) -> Result<(File, Option<Tail>), Failure> {
    let Some(path) = path else {
        if !wanted {
            let null = Path::new("/dev/null");
            let file = fs::OpenOptions::new().write(true).open(null);
            return Ok((file.map_err(|error| Failure::unwritable(null, error))?, None));
        }
        let pipe = || -> std::io::Result<(File, Tail)> {
            let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
            let _ = fcntl_setpipe_size(&ours, PIPE_BYTES);
            // Not the program's end: that one may wait.
            rustix::fs::fcntl_setfl(&ours, OFlags::NONBLOCK)?;
            Ok((theirs.into(), Tail::of(Source::Pipe(ours.into()))))
        };
        let (file, tail) = pipe().map_err(|error| Failure::ours(format!("cannot make a pipe: {error}")))?;
        return Ok((file, Some(tail)));
    };
    let file = File::create(path).map_err(|error| Failure::unwritable(path, error))?;
    // What was made a moment ago can be read, unless it is a pipe or a device: then nothing is shown.
    Ok((file, path.is_file().then(|| Tail::open(path).ok()).flatten()))
}

impl Tail {
    fn pipe(&self) -> Option<BorrowedFd<'_>> {
        match &self.source {
            Source::Pipe(pipe) => Some(pipe.as_fd()),
            _ => None,
        }
    }
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

    /// What can be waited for to be readable.
    pub fn pipes(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [&self.stdout, &self.stderr].into_iter().flatten().filter_map(Tail::pipe)
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
    pub fn create(path: PathBuf) -> Result<Scratch, Failure> {
        fs::create_dir_all(&path).map_err(|error| Failure::unwritable(&path, error))?;
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
    fn output_lines_appear_whole_once_and_the_last_is_the_verdict() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.out");
        let mut file = File::create(&path).unwrap();
        let mut output = Output {
            stdout: Some(Tail::open(&path).unwrap()),
            stderr: None,
            show: (true, true),
            _drain: None,
        };
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

    #[test]
    fn piped_output_is_shown_and_never_waited_for() {
        let (mut file, tail) = stream(None, true).unwrap();
        let mut output = Output { stdout: tail, stderr: None, show: (true, true), _drain: None };
        let mut lines = Vec::new();
        output.pump(false, |line| lines.push(line.to_owned()));
        file.write_all(b"one\nVERIFIED").unwrap();
        output.pump(false, |line| lines.push(line.to_owned()));
        assert_eq!((lines.len(), output.pipes().count()), (1, 1));
        drop(file);
        // A child that another test starts at this moment has the pipe until it executes.
        let began = std::time::Instant::now();
        while output.pipes().count() > 0 && began.elapsed().as_secs() < 5 {
            output.pump(true, |line| lines.push(line.to_owned()));
        }
        assert_eq!((lines, output.verified()), (vec!["one".into(), "VERIFIED".into()], Some(true)));
        // Whoever waits for more would wait in vain.
        assert_eq!(output.pipes().count(), 0);
        assert!(stream(None, false).unwrap().1.is_none());
    }
}
