//! What neighbours cost programs, as their region rates told while they ran: lines that `coplace lab predict
//! --observed` and `coplace lab pair --observed` take.

use std::io;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use interference::learn::ObservedPair;
use linux::host;
use workload::AppId;

use crate::rates::Pair;
use crate::registry::write_text;

/// Beyond these the oldest lines are forgotten.
const MOST: usize = 5_000;

pub struct Observed {
    path: PathBuf,
}

impl Observed {
    pub fn at(path: PathBuf) -> Observed {
        Observed { path }
    }

    /// Adds what a program has shown, as of now.
    pub fn add(&self, program: &AppId, pairs: Vec<Pair>) -> io::Result<()> {
        if pairs.is_empty() {
            return Ok(());
        }
        let at_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let line = |pair: Pair| {
            serde_json::to_string(&ObservedPair {
                program: program.to_string(),
                beside: pair.beside.to_string(),
                at_s,
                alone_per_s: pair.alone_per_s,
                together_per_s: pair.together_per_s,
            })
        };
        let new: Vec<String> = pairs.into_iter().map(line).collect::<Result<_, _>>()?;
        let old = match host::with(|host| host.read(&self.path)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            old => {
                String::from_utf8(old?).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?
            }
        };
        let lines: Vec<&str> = old.lines().chain(new.iter().map(String::as_str)).collect();
        let kept = &lines[lines.len().saturating_sub(MOST)..];
        write_text(&self.path, (kept.join("\n") + "\n").as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use interference::learn::Notebook;

    use super::*;

    #[test]
    fn observations_reach_the_notebook_and_the_oldest_is_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("observed.jsonl");
        let observed = Observed::at(path.clone());
        let [a, b] = ["a", "b"].map(|name| AppId::new(name).unwrap());
        let pair = |together_per_s| Pair { beside: b.clone(), alone_per_s: 1000.0, together_per_s };
        observed.add(&a, Vec::new()).unwrap();
        assert!(!path.exists());
        let many = (0..MOST).map(|_| pair(800.0)).collect();
        observed.add(&a, many).unwrap();
        observed.add(&a, vec![pair(500.0)]).unwrap();
        let (notebook, now_s) = Notebook::read(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let slowdowns: Vec<f64> = notebook.of("a", "b").iter().map(|one| one.slowdown).collect();
        assert_eq!((slowdowns.len(), slowdowns[0], slowdowns[MOST - 1]), (MOST, 1.25, 2.0));
        assert!(notebook.slowdown("a", "b", now_s).unwrap().0 > 1.2);
    }
}
