//! The file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, Row, params};
use thiserror::Error;

use crate::sample::{Kind, Program, Sample};

/// Of the tables below; a file of a later version is not touched.
const VERSION: i64 = 1;
/// How long to wait for another writer.
const PATIENCE: Duration = Duration::from_secs(10);

const TABLES: &str = "
CREATE TABLE program (
    id INTEGER PRIMARY KEY,
    binary TEXT NOT NULL,
    main_argument TEXT NOT NULL,
    arguments TEXT NOT NULL,
    name TEXT NOT NULL,
    UNIQUE (binary, main_argument, arguments)
);
CREATE TABLE sample (
    id INTEGER PRIMARY KEY,
    program INTEGER NOT NULL REFERENCES program ON DELETE CASCADE,
    threads INTEGER NOT NULL,
    machine TEXT NOT NULL,
    kind TEXT NOT NULL,
    at_ns INTEGER NOT NULL,
    value TEXT NOT NULL,
    UNIQUE (program, threads, machine, kind, at_ns)
);
";

const SELECT: &str = "SELECT binary, main_argument, arguments, name, threads, machine, kind, at_ns, value
    FROM sample JOIN program ON program.id = sample.program";

/// Why the store cannot be used.
#[derive(Debug, Error)]
pub enum StoreError {
    /// It cannot be opened or made.
    #[error("cannot use the evidence store {path}: {why}; set COPLACE_EVIDENCE to another file", path = path.display())]
    Open {
        /// The store's file.
        path: PathBuf,
        /// What the file system or SQLite said.
        why: String,
    },
    /// A later coplace wrote it.
    #[error("the evidence store {path} is of version {version}, this coplace knows up to {VERSION}: use a newer coplace, or set COPLACE_EVIDENCE to another file", path = path.display())]
    Newer {
        /// The store's file.
        path: PathBuf,
        /// The version of its tables.
        version: i64,
    },
    /// Reading or writing failed.
    #[error("the evidence store {path}: {why}", path = path.display())]
    Failed {
        /// The store's file.
        path: PathBuf,
        /// What SQLite said.
        why: rusqlite::Error,
    },
}

/// A program with what is known of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// The program.
    pub program: Program,
    /// Threads that it ran with.
    pub threads: u32,
    /// The machine in words.
    pub machine: String,
    /// Kinds with the number of their samples.
    pub kinds: Vec<(Kind, u64)>,
    /// When the newest sample was taken, in nanoseconds since 1970.
    pub latest_ns: i64,
}

/// The samples of one user, in an SQLite file that several processes may use at once.
pub struct Store {
    path: PathBuf,
    connection: Connection,
}

impl Store {
    /// Opens the file, and makes it if there is none.
    pub fn open(path: &Path) -> Result<Store, StoreError> {
        let failed = |why: String| StoreError::Open { path: path.to_owned(), why };
        if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
            std::fs::create_dir_all(directory).map_err(|error| failed(error.to_string()))?;
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let mut connection =
            Connection::open_with_flags(path, flags).map_err(|error| failed(error.to_string()))?;
        let prepare = |connection: &mut Connection| -> rusqlite::Result<i64> {
            connection.busy_timeout(PATIENCE)?;
            // Readers see the last whole state while somebody writes; what is committed is on the disk.
            connection.pragma_update(None, "journal_mode", "WAL")?;
            connection.pragma_update(None, "synchronous", "FULL")?;
            connection.pragma_update(None, "foreign_keys", "ON")?;
            // Two that open a new file at once must not both make the tables.
            let transaction =
                connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
            let version = transaction.query_row("PRAGMA user_version", [], |row| row.get(0))?;
            if version == 0 {
                transaction.execute_batch(TABLES)?;
                transaction.pragma_update(None, "user_version", VERSION)?;
            }
            transaction.commit()?;
            Ok(version)
        };
        match prepare(&mut connection) {
            Ok(version) if version > VERSION => Err(StoreError::Newer { path: path.to_owned(), version }),
            Ok(_) => Ok(Store { path: path.to_owned(), connection }),
            Err(error) => Err(failed(error.to_string())),
        }
    }

    fn failed(&self) -> impl Fn(rusqlite::Error) -> StoreError + use<> {
        let path = self.path.clone();
        move |why| StoreError::Failed { path: path.clone(), why }
    }

    /// Adds a sample; once this returns it is stored. One that is there already is not added again.
    pub fn add(&mut self, sample: &Sample) -> Result<(), StoreError> {
        self.add_all(std::slice::from_ref(sample)).map(drop)
    }

    /// Adds all of them or none; how many were new.
    pub fn add_all(&mut self, samples: &[Sample]) -> Result<usize, StoreError> {
        let failed = self.failed();
        let mut write = || -> rusqlite::Result<usize> {
            let transaction =
                self.connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
            let mut new = 0;
            for sample in samples {
                let Program { binary, main_argument, arguments, name } = &sample.program;
                transaction.execute(
                    "INSERT INTO program (binary, main_argument, arguments, name) VALUES (?1, ?2, ?3, ?4)
                     ON CONFLICT DO NOTHING",
                    params![binary, main_argument, arguments, name],
                )?;
                new += transaction.execute(
                    "INSERT INTO sample (program, threads, machine, kind, at_ns, value)
                     SELECT id, ?4, ?5, ?6, ?7, ?8 FROM program
                     WHERE binary = ?1 AND main_argument = ?2 AND arguments = ?3
                     ON CONFLICT DO NOTHING",
                    params![
                        binary,
                        main_argument,
                        arguments,
                        sample.threads,
                        sample.machine,
                        sample.kind.name(),
                        sample.at_ns,
                        sample.value.to_string()
                    ],
                )?;
            }
            transaction.commit()?;
            Ok(new)
        };
        write().map_err(failed)
    }

    /// All samples, or those of one program, in the order in which they were taken.
    pub fn samples(&self, program: Option<&Program>) -> Result<Vec<Sample>, StoreError> {
        let read = || -> rusqlite::Result<Vec<Sample>> {
            let all = format!("{SELECT} ORDER BY at_ns, sample.id");
            let one = format!(
                "{SELECT} WHERE binary = ?1 AND main_argument = ?2 AND arguments = ?3 ORDER BY at_ns, sample.id"
            );
            match program {
                None => self.connection.prepare(&all)?.query_map([], sample)?.collect(),
                Some(Program { binary, main_argument, arguments, .. }) => self
                    .connection
                    .prepare(&one)?
                    .query_map(params![binary, main_argument, arguments], sample)?
                    .collect(),
            }
        };
        read().map_err(self.failed())
    }

    /// What there is, by program, threads and machine.
    pub fn known(&self) -> Result<Vec<Known>, StoreError> {
        let mut known: Vec<Known> = Vec::new();
        for sample in self.samples(None)? {
            let same = |known: &&mut Known| {
                known.program == sample.program
                    && known.threads == sample.threads
                    && known.machine == sample.machine
            };
            let entry = match known.iter_mut().find(same) {
                Some(entry) => entry,
                None => {
                    known.push(Known {
                        program: sample.program,
                        threads: sample.threads,
                        machine: sample.machine,
                        kinds: Vec::new(),
                        latest_ns: sample.at_ns,
                    });
                    known.last_mut().expect("just pushed")
                }
            };
            entry.latest_ns = entry.latest_ns.max(sample.at_ns);
            match entry.kinds.iter_mut().find(|(kind, _)| *kind == sample.kind) {
                Some((_, count)) => *count += 1,
                None => entry.kinds.push((sample.kind, 1)),
            }
        }
        Ok(known)
    }

    /// Forgets a program with all its samples; whether it was known.
    pub fn forget(&mut self, program: &Program) -> Result<bool, StoreError> {
        let Program { binary, main_argument, arguments, .. } = program;
        self.connection
            .execute(
                "DELETE FROM program WHERE binary = ?1 AND main_argument = ?2 AND arguments = ?3",
                params![binary, main_argument, arguments],
            )
            .map(|gone| gone > 0)
            .map_err(self.failed())
    }
}

fn sample(row: &Row<'_>) -> rusqlite::Result<Sample> {
    fn wrong<E: std::error::Error + Send + Sync + 'static>(column: usize) -> impl Fn(E) -> rusqlite::Error {
        move |error| {
            rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, Box::new(error))
        }
    }
    let kind: String = row.get(6)?;
    let value: String = row.get(8)?;
    Ok(Sample {
        program: Program {
            binary: row.get(0)?,
            main_argument: row.get(1)?,
            arguments: row.get(2)?,
            name: row.get(3)?,
        },
        threads: row.get(4)?,
        machine: row.get(5)?,
        kind: kind.parse().map_err(|why: String| wrong(6)(std::io::Error::other(why)))?,
        at_ns: row.get(7)?,
        value: serde_json::from_str(&value).map_err(wrong(8))?,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sample(program: &str, kind: Kind, at_ns: i64) -> Sample {
        let program = Program {
            binary: format!("hash of {program}"),
            main_argument: String::new(),
            arguments: "none".into(),
            name: program.into(),
        };
        Sample { program, threads: 2, machine: "m".into(), kind, at_ns, value: json!({ "seconds": 1.5 }) }
    }

    #[test]
    fn added_samples_are_there_after_opening_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deep/evidence.sqlite");
        let samples = [sample("a", Kind::Alone, 1), sample("a", Kind::Reuse, 2), sample("b", Kind::Alone, 3)];
        let mut store = Store::open(&path).unwrap();
        assert_eq!(store.add_all(&samples).unwrap(), 3);
        assert_eq!(store.add_all(&samples).unwrap(), 0, "the same sample is one sample");
        // Somebody reads while it is open here.
        let mut reader = Store::open(&path).unwrap();
        assert_eq!(reader.samples(None).unwrap(), samples);
        assert_eq!(reader.samples(Some(&samples[0].program)).unwrap(), samples[..2]);
        let known = reader.known().unwrap();
        assert_eq!((known.len(), known[0].latest_ns), (2, 2));
        assert_eq!(known[0].kinds, [(Kind::Alone, 1), (Kind::Reuse, 1)]);
        assert!(reader.forget(&samples[0].program).unwrap());
        assert!(!reader.forget(&samples[0].program).unwrap());
        assert_eq!(store.samples(None).unwrap(), samples[2..]);
    }

    #[test]
    fn a_later_version_and_a_file_that_is_no_store_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("evidence.sqlite");
        drop(Store::open(&path).unwrap());
        Connection::open(&path).unwrap().pragma_update(None, "user_version", 9).unwrap();
        assert!(matches!(Store::open(&path), Err(StoreError::Newer { version: 9, .. })));
        let other = directory.path().join("other");
        std::fs::write(&other, "this is a text and nothing else, long enough to be looked at".repeat(20))
            .unwrap();
        assert!(matches!(Store::open(&other), Err(StoreError::Open { .. })));
        assert_eq!(std::fs::read(&other).unwrap().len(), 1200, "it is left as it was");
    }
}
