//! The scheduler's sign of life: a small file that it writes with each beat and guards read.
//!
//! Who schedules is settled by the lock; the lease tells whether the holder still acts. A lock
//! cannot tell that: a scheduler that is stopped or starved holds it for ever.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use linux::clock::now_ns;
use linux::host::{self, OpenFile};
use protocol::ProcessId;

use crate::home::Home;
use crate::identity;

/// A beat older than this counts as lost. Four times the interval in which a scheduler beats.
pub const FRESH_NS: u64 = 400_000_000;
/// How often a scheduler beats at least.
pub const BEAT_NS: u64 = 100_000_000;

/// Seven words: magic, version, pid, start time, epoch, beat, 0. All but the beat are constant for
/// the life of the file, which is replaced as a whole when the holder changes. All are written with each beat, so that
/// what somebody else writes there, or cuts off, lasts until the next. (Mapped, a file that is cut off kills.)
const WORDS: usize = 7;
const BYTES: usize = WORDS * 8;
const MAGIC: u64 = u64::from_le_bytes(*b"cplease1");
const EPOCH_WORD: usize = 4;
const BEAT_WORD: usize = 5;

/// The lease's file could not be written, opened or put in its place.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the lease {path}: {error}")]
pub struct LeaseError {
    path: PathBuf,
    error: io::Error,
}

/// Held by the scheduler. Dropping it says that it stopped in order.
#[derive(Debug)]
pub struct Lease {
    file: Box<dyn OpenFile>,
    path: PathBuf,
    /// All that is written but for the beat.
    words: [u64; WORDS],
    /// The latest beat, in CLOCK_MONOTONIC nanoseconds.
    beat_ns: AtomicU64,
    late: AtomicBool,
}

impl Lease {
    /// Takes the lease after the lock, with one beat. Its epoch is one more than that of a lease that is still there,
    /// 1 where there is none, as after an orderly end: a holder tells its own lease from its successor's by it.
    pub fn acquire(home: &Home) -> Result<Lease, LeaseError> {
        let path = home.lease();
        let epoch = epoch_at(&path).map_or(1, |epoch| epoch.wrapping_add(1));
        let lease_error = |error| LeaseError { path: path.clone(), error };
        let own = identity::own();
        let new = path.with_extension(format!("new-{}", own.pid));
        let (version, began_ns) = (u64::from(protocol::VERSION), now_ns());
        let words = [MAGIC, version, u64::from(own.pid), own.start_time_ticks, epoch, began_ns, 0];
        let locked = host::with(|host| {
            host.create(&new, &bytes_of(words), 0o600)?;
            let file = host.open(&new, true)?;
            host.rename(&new, &path)?;
            let beat_ns = AtomicU64::new(began_ns);
            Ok(Lease { file, path: path.clone(), words, beat_ns, late: AtomicBool::new(false) })
        });
        if locked.is_err() {
            let _ = host::with(|host| host.remove_file(&new));
        }
        locked.map_err(lease_error)
    }

    /// Says that the scheduler acts.
    pub fn beat(&self) {
        self.beat_at(now_ns(), now_ns);
    }

    /// `after_ns` is asked once the beat stands: whoever found the one before too old did so earlier.
    fn beat_at(&self, now_ns: u64, after_ns: impl FnOnce() -> u64) {
        let before_ns = self.beat_ns.swap(now_ns, Ordering::AcqRel);
        // Where that fails (a full disk, on which somebody has cut the file off) the guard acts, and is noticed.
        let mut words = self.words;
        words[BEAT_WORD] = now_ns;
        let _ = self.file.write(&bytes_of(words));
        if !is_recent(before_ns, after_ns()) {
            self.late.store(true, Ordering::Release);
        }
    }

    /// Whether a beat since the last call of this came so late that a guard may have acted.
    pub fn was_late(&self) -> bool {
        self.late.swap(false, Ordering::AcqRel)
    }

    /// Who holds the lease, if anybody.
    pub fn read(home: &Home) -> Option<LeaseView> {
        Some(Lease::open(home)?.view)
    }

    /// Whether somebody lives and acts as the scheduler here. `false` is certain to be noticed by one that comes
    /// back: [`Lease::was_late`].
    pub fn is_fresh(home: &Home) -> bool {
        // Asked first: a beat that comes between the two must not look old.
        let now_ns = now_ns();
        Lease::read(home).is_some_and(|lease| lease.is_fresh(now_ns))
    }

    /// The same, to be looked at again and again.
    pub fn open(home: &Home) -> Option<OpenLease> {
        let file = host::with(|host| host.open(&home.lease(), false)).ok()?;
        let words = read_words(&*file)?;
        let view = LeaseView {
            holder: ProcessId { pid: words[2].try_into().ok()?, start_time_ticks: words[3] },
            beat_ns: words[BEAT_WORD],
        };
        Some(OpenLease { file, view })
    }
}

/// A lease as a guard keeps it open. A successor's lease is another file: this one ceases to beat.
#[derive(Debug)]
pub struct OpenLease {
    file: Box<dyn OpenFile>,
    view: LeaseView,
}

impl OpenLease {
    /// As it was when it was opened.
    pub fn view(&self) -> LeaseView {
        self.view
    }

    /// Whether its holder still acts; that it lives is not asked.
    pub fn beats(&self, now_ns: u64) -> bool {
        read_words(&*self.file).is_some_and(|words| is_recent(words[BEAT_WORD], now_ns))
    }
}

fn bytes_of(words: [u64; WORDS]) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    bytes.chunks_exact_mut(8).zip(words).for_each(|(bytes, word)| bytes.copy_from_slice(&word.to_ne_bytes()));
    bytes
}

fn is_recent(beat_ns: u64, now_ns: u64) -> bool {
    now_ns.saturating_sub(beat_ns) < FRESH_NS
}

impl Drop for Lease {
    fn drop(&mut self) {
        // Only a file that is still this lease: a successor may have replaced it.
        if epoch_at(&self.path) == Some(self.words[EPOCH_WORD]) {
            let _ = host::with(|host| host.remove_file(&self.path));
        }
    }
}

/// What a lease's file said when it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseView {
    /// The scheduler's process; it may have ended since.
    pub holder: ProcessId,
    /// CLOCK_MONOTONIC.
    pub beat_ns: u64,
}

impl LeaseView {
    /// Whether the holder lives and acts.
    pub fn is_fresh(&self, now_ns: u64) -> bool {
        is_recent(self.beat_ns, now_ns) && identity::is_alive(self.holder)
    }
}

fn epoch_at(path: &Path) -> Option<u64> {
    Some(read_words(&*host::with(|host| host.open(path, false)).ok()?)?[EPOCH_WORD])
}

fn read_words(file: &dyn OpenFile) -> Option<[u64; WORDS]> {
    let mut bytes = [0; BYTES];
    file.read_at(&mut bytes, 0).ok()?;
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_ne_bytes(bytes.try_into().ok()?);
    }
    (words[0] == MAGIC && words[1] == u64::from(protocol::VERSION)).then_some(words)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_lease_is_fresh_while_it_beats_and_its_holder_lives() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path()).unwrap();
        assert_eq!(Lease::read(&home), None);
        let lease = Lease::acquire(&home).unwrap();
        let late = |at_ns: u64, after_ns: u64| {
            lease.beat_at(at_ns, || after_ns);
            lease.was_late()
        };
        late(5_000_000_000, 5_000_000_000);
        assert!(!late(5_000_000_000 + FRESH_NS - 1, 5_000_000_000 + FRESH_NS - 1));
        assert!(late(5_000_000_000 + 2 * FRESH_NS, 5_000_000_000 + 2 * FRESH_NS));
        // In time by its own clock, and kept from running before it could say so.
        late(5_000_000_000, 5_000_000_000);
        assert!(late(5_000_000_000 + FRESH_NS - 1, 5_000_000_000 + FRESH_NS));
        assert!(!lease.was_late(), "it counts once");
        late(5_000_000_000, 5_000_000_000);
        let view = Lease::read(&home).unwrap();
        assert_eq!((view.holder, view.beat_ns), (identity::own(), 5_000_000_000));
        assert!(view.is_fresh(5_000_000_000 + FRESH_NS - 1));
        assert!(!view.is_fresh(5_000_000_000 + FRESH_NS));
        let dead = ProcessId { start_time_ticks: 1, ..view.holder };
        assert!(!LeaseView { holder: dead, ..view }.is_fresh(5_000_000_000));
        drop(lease);
        assert_eq!(Lease::read(&home), None);
    }

    #[test]
    fn a_successor_raises_the_epoch_and_keeps_its_lease() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path()).unwrap();
        let first = Lease::acquire(&home).unwrap();
        let second = Lease::acquire(&home).unwrap();
        let epoch = |lease: &Lease| lease.words[EPOCH_WORD];
        assert_eq!(epoch(&second), epoch(&first) + 1);
        second.beat_at(77, || 77);
        drop(first);
        assert_eq!(Lease::read(&home).unwrap().beat_ns, 77);
    }

    #[test]
    fn a_lease_that_is_kept_open_beats_with_its_holder_alone() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path()).unwrap();
        let first = Lease::acquire(&home).unwrap();
        let open = Lease::open(&home).unwrap();
        first.beat_at(5_000_000_000, || 5_000_000_000);
        assert!(open.beats(5_000_000_000 + FRESH_NS - 1) && !open.beats(5_000_000_000 + FRESH_NS));
        let second = Lease::acquire(&home).unwrap();
        second.beat_at(9_000_000_000, || 9_000_000_000);
        assert!(!open.beats(9_000_000_000), "the predecessor's lease does not beat any more");
        assert!(Lease::open(&home).unwrap().beats(9_000_000_000));
    }

    #[test]
    fn a_file_that_is_no_lease_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path()).unwrap();
        for text in [&b""[..], b"short", &[7; 200]] {
            fs::write(home.lease(), text).unwrap();
            assert_eq!(Lease::read(&home), None);
        }
        assert_eq!(Lease::acquire(&home).unwrap().words[EPOCH_WORD], 1);
    }

    #[test]
    fn a_damaged_or_truncated_lease_is_whole_with_the_next_beat() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path()).unwrap();
        let lease = Lease::acquire(&home).unwrap();
        for damage in [&b""[..], b"short", &[7; 200]] {
            // As by dd and truncate: the file itself stays.
            fs::write(home.lease(), damage).unwrap();
            assert_eq!(Lease::read(&home), None);
            lease.beat_at(77, || 77);
            assert_eq!(Lease::read(&home).unwrap().beat_ns, 77);
        }
    }
}
