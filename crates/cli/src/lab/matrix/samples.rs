//! What was measured, kept line by line beside the matrix, so that an interrupted run goes on.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use interference::Matrix;
use serde::{Deserialize, Serialize};

use crate::exit::Failure;

/// A program in one round: its seconds alone and beside another, both in that round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    pub program: String,
    pub beside: String,
    pub alone_s: f64,
    pub together_s: f64,
}

pub struct Samples {
    file: File,
    path: PathBuf,
    all: Vec<Sample>,
}

/// A pair's slowdown and the half width of its 95% interval, relative.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settled {
    pub slowdown: f64,
    pub half_width: f64,
    pub count: usize,
}

impl Samples {
    /// Those of a file that is there already, to be added to. A last line that was cut off is dropped.
    pub fn open(path: &Path) -> Result<Samples, Failure> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(Failure::bad_input(format!("cannot read {}: {error}", path.display()))),
        };
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        let mut all = Vec::new();
        for (at, line) in whole.lines().enumerate() {
            let sample: Sample = serde_json::from_str(line).map_err(|error| {
                let position = format!("{}:{}:{}", path.display(), at + 1, error.column());
                Failure::bad_input(format!(
                    "{position}: this is not a sample of `coplace lab matrix`: {error}"
                ))
            })?;
            all.push(sample);
        }
        if whole.len() < text.len() {
            std::fs::write(path, whole).map_err(|error| Failure::unwritable(path, error))?;
        }
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.map_err(|error| Failure::unwritable(path, error))?;
        Ok(Samples { file, path: path.to_owned(), all })
    }

    pub fn add(&mut self, sample: Sample) -> Result<(), Failure> {
        let line = serde_json::to_string(&sample).expect("names and numbers are JSON") + "\n";
        let written = self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(|error| Failure::unwritable(&self.path, error))?;
        self.all.push(sample);
        Ok(())
    }

    /// The rounds in which a program was beside another.
    pub fn of(&self, program: &str, beside: &str) -> Vec<f64> {
        let pair = self.all.iter().filter(|one| one.program == program && one.beside == beside);
        pair.map(|one| one.together_s / one.alone_s).collect()
    }

    pub fn settled(&self, program: &str, beside: &str) -> Option<Settled> {
        settled(&self.of(program, beside))
    }

    /// The matrix of these programs.
    pub fn matrix(&self, names: &[String]) -> Matrix {
        let mut matrix = Matrix::unknown(names.to_vec());
        for (a, program) in names.iter().enumerate() {
            for (b, beside) in names.iter().enumerate() {
                matrix.set(a, b, self.settled(program, beside).map(|settled| settled.slowdown));
            }
        }
        matrix
    }
}

/// Student's t for 95%, by degrees of freedom from 1 on.
const T95: [f64; 14] = [12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14];

fn settled(ratios: &[f64]) -> Option<Settled> {
    let count = ratios.len();
    if count == 0 {
        return None;
    }
    let mean = ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / count as f64;
    let square: f64 = ratios.iter().map(|ratio| (ratio.ln() - mean) * (ratio.ln() - mean)).sum();
    let half_width = match count {
        1 => f64::INFINITY,
        _ => T95.get(count - 2).unwrap_or(&2.1) * (square / (count - 1) as f64 / count as f64).sqrt(),
    };
    Some(Settled { slowdown: mean.exp(), half_width, count })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(together_s: f64) -> Sample {
        Sample { program: "a".into(), beside: "b".into(), alone_s: 1.0, together_s }
    }

    #[test]
    fn samples_survive_and_a_line_cut_off_is_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s.jsonl");
        let mut samples = Samples::open(&path).unwrap();
        samples.add(sample(1.5)).unwrap();
        samples.add(sample(1.6)).unwrap();
        drop(samples);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, &text[..text.len() - 5]).unwrap();
        let mut samples = Samples::open(&path).unwrap();
        assert_eq!(samples.of("a", "b"), [1.5]);
        samples.add(sample(1.7)).unwrap();
        assert_eq!(Samples::open(&path).unwrap().of("a", "b"), [1.5, 1.7]);
        std::fs::write(&path, "{}\n").unwrap();
        assert!(Samples::open(&path).err().unwrap().message.contains("s.jsonl:1:2"));
    }

    #[test]
    fn the_interval_shrinks_with_rounds_that_agree() {
        assert_eq!(settled(&[]), None);
        assert_eq!(settled(&[1.5]).unwrap().half_width, f64::INFINITY);
        let few = settled(&[1.5, 1.52, 1.48]).unwrap();
        let many = settled(&[1.5, 1.52, 1.48, 1.5, 1.52, 1.48]).unwrap();
        assert!(
            (few.slowdown - 1.5).abs() < 0.01 && many.half_width < few.half_width / 2.0,
            "{few:?} {many:?}"
        );
    }
}
