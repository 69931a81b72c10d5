//! What programs turned out to be, for their next start: a small file in the scheduler's home.
//!
//! Whether teams can be resized is remembered by executed file and main argument (a script, a
//! tool); how much memory was needed, and how the speed grew with the threads, by file and all
//! arguments. A program that was changed is
//! another one. What is remembered is where a program begins; what it shows goes before it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use plan::Speedup;
use protocol::ProgramKey;
use serde::{Deserialize, Serialize};

use crate::registry::{RegistryError, read_whole, write_whole};

/// Beyond these the longest unused are forgotten.
const MOST: usize = 1_000;
/// Of a file this much is read at its beginning and at its end; with its length that tells
/// programs apart without reading gigabytes.
const PART_BYTES: u64 = 1 << 20;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Notes {
    /// Counts the learnings; the greatest `at` is the latest.
    learned: u64,
    natures: BTreeMap<String, Nature>,
    peaks: BTreeMap<String, Peak>,
    speeds: BTreeMap<String, Speed>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Nature {
    /// Width of a program that cannot be resized; `None`: it can.
    rigid: Option<u32>,
    at: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Peak {
    bytes: u64,
    at: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Speed {
    speedup: Speedup,
    at: u64,
}

/// What is known of a program before it has shown anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recalled {
    /// Threads of a program that could not be resized; `None`: it could, or that is not known.
    pub rigid: Option<u32>,
    /// Most memory that it had when it last ran with these arguments, in bytes.
    pub peak_bytes: Option<u64>,
    /// How its speed grew with its threads when it last showed that with these arguments.
    pub speedup: Option<Speedup>,
}

/// What a program turned out to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Learned {
    /// `Some(None)`: it could be resized, `Some(Some(width))`: it could not, `None`: it never showed.
    pub rigid: Option<Option<u32>>,
    /// Most memory that it was seen to have; 0: none was seen.
    pub peak_bytes: u64,
    /// How its speed grew with its threads; `None`: it never showed.
    pub speedup: Option<Speedup>,
}

/// The file of what is remembered of programs; it is read anew each time.
pub struct Remembered {
    path: PathBuf,
}

impl Remembered {
    /// What is remembered in this file, which need not be there yet.
    pub fn at(path: PathBuf) -> Remembered {
        Remembered { path }
    }

    fn notes(&self) -> Notes {
        // What cannot be read is not remembered; the next learning replaces it.
        read_whole(&self.path).unwrap_or_default()
    }

    /// What was last learned of a program; nothing if the key is empty or the file cannot be read.
    pub fn recall(&self, key: &ProgramKey) -> Recalled {
        if key.binary.is_empty() {
            return Recalled::default();
        }
        let notes = self.notes();
        Recalled {
            rigid: notes.natures.get(&nature_key(key)).and_then(|nature| nature.rigid),
            peak_bytes: notes.peaks.get(&run_key(key)).map(|peak| peak.bytes),
            speedup: notes.speeds.get(&run_key(key)).map(|speed| speed.speedup.clone()),
        }
    }

    /// Keeps what a program showed, for its next start; nothing if the key is empty.
    /// Fails where the file cannot be written.
    pub fn learn(&self, key: &ProgramKey, learned: Learned) -> Result<(), RegistryError> {
        if key.binary.is_empty() {
            return Ok(());
        }
        let mut notes = self.notes();
        notes.learned += 1;
        let at = notes.learned;
        if let Some(rigid) = learned.rigid {
            notes.natures.insert(nature_key(key), Nature { rigid, at });
        }
        if learned.peak_bytes > 0 {
            notes.peaks.insert(run_key(key), Peak { bytes: learned.peak_bytes, at });
        }
        if let Some(speedup) = learned.speedup {
            notes.speeds.insert(run_key(key), Speed { speedup, at });
        }
        forget(&mut notes.natures, |nature| nature.at);
        forget(&mut notes.peaks, |peak| peak.at);
        forget(&mut notes.speeds, |speed| speed.at);
        write_whole(&self.path, &notes)
    }
}

fn forget<T>(notes: &mut BTreeMap<String, T>, at: impl Fn(&T) -> u64) {
    while notes.len() > MOST {
        let oldest = notes.iter().min_by_key(|(_, note)| at(note)).map(|(key, _)| key.clone());
        oldest.map(|key| notes.remove(&key));
    }
}

fn nature_key(key: &ProgramKey) -> String {
    format!("{} {}", key.binary, key.main_argument)
}

fn run_key(key: &ProgramKey) -> String {
    format!("{} {}", key.binary, key.arguments)
}

/// The key of a program by the file that will be executed; an empty one where it cannot be read.
pub fn key_of(file: &Path, command: &[OsString]) -> ProgramKey {
    let Ok(binary) = hash_file(file) else { return ProgramKey::default() };
    let arguments = command.get(1..).unwrap_or_default();
    let main = arguments.iter().find(|word| !word.as_bytes().starts_with(b"-"));
    let all = arguments.iter().fold(Fnv::default(), |mut hash, word| {
        hash.add(word.as_bytes());
        hash.add(&[0]);
        hash
    });
    ProgramKey {
        binary,
        main_argument: main.map(|word| word.to_string_lossy().into_owned()).unwrap_or_default(),
        arguments: all.text(),
    }
}

fn hash_file(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut hash = Fnv::default();
    hash.add(&length.to_le_bytes());
    let mut part = Vec::new();
    file.by_ref().take(PART_BYTES).read_to_end(&mut part)?;
    hash.add(&part);
    if length > 2 * PART_BYTES {
        part.clear();
        file.seek(SeekFrom::End(-(PART_BYTES as i64)))?;
        file.take(PART_BYTES).read_to_end(&mut part)?;
        hash.add(&part);
    }
    Ok(hash.text())
}

/// FNV-1a, two of them with different beginnings: it tells programs apart, it guards nothing.
struct Fnv(u64, u64);

impl Default for Fnv {
    fn default() -> Self {
        Fnv(0xcbf2_9ce4_8422_2325, 0x6c62_272e_07bb_0142)
    }
}

impl Fnv {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
            self.1 = (self.1 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(5);
        }
    }

    fn text(&self) -> String {
        format!("{:016x}{:016x}", self.0, self.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command_line(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn a_program_is_recognised_by_file_and_arguments_if_unchanged() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("prog");
        std::fs::write(&file, vec![7; 3 << 20]).unwrap();
        let key = key_of(&file, &command_line("prog -v train.py --size 3"));
        assert_eq!(key.main_argument, "train.py");
        assert_eq!(key, key_of(&file, &command_line("other -v train.py --size 3")));
        let other = key_of(&file, &command_line("prog -v train.py --size 4"));
        assert!(other.arguments != key.arguments && other.binary == key.binary);
        let mut bytes = vec![7; 3 << 20];
        *bytes.last_mut().unwrap() = 8;
        std::fs::write(&file, bytes).unwrap();
        assert_ne!(key_of(&file, &command_line("prog")).binary, key.binary);
        assert_eq!(key_of(Path::new("/nowhere"), &command_line("x")), ProgramKey::default());
    }

    #[test]
    fn the_last_lesson_is_recalled() {
        let directory = tempfile::tempdir().unwrap();
        let remembered = Remembered::at(directory.path().join("remembered.json"));
        let key = |arguments: &str| ProgramKey {
            binary: "b".into(),
            main_argument: "m".into(),
            arguments: arguments.into(),
        };
        assert_eq!(remembered.recall(&key("1")), Recalled::default());
        let speedup: Option<Speedup> = Some("2:1800".parse().unwrap());
        let learned = |rigid, peak_bytes, speedup| Learned { rigid: Some(rigid), peak_bytes, speedup };
        let known = |rigid, peak_bytes, speedup| Recalled { rigid, peak_bytes, speedup };
        remembered.learn(&key("1"), learned(Some(4), 100, speedup.clone())).unwrap();
        assert_eq!(remembered.recall(&key("1")), known(Some(4), Some(100), speedup.clone()));
        // Of other arguments the nature is known, and neither the memory nor the speed.
        assert_eq!(remembered.recall(&key("2")), known(Some(4), None, None));
        remembered.learn(&key("2"), learned(None, 50, None)).unwrap();
        // A start that tells nothing of its speed takes nothing back.
        remembered.learn(&key("1"), learned(None, 0, None)).unwrap();
        assert_eq!(remembered.recall(&key("1")), known(None, Some(100), speedup));
        remembered.learn(&ProgramKey::default(), learned(Some(1), 1, None)).unwrap();
        assert_eq!(remembered.recall(&ProgramKey::default()), Recalled::default());
        std::fs::write(directory.path().join("remembered.json"), "{\"learned\": ").unwrap();
        assert_eq!(remembered.recall(&key("1")), Recalled::default());
    }
}
