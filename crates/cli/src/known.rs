//! What is known of programs beside each other: a matrix, matrices of other machines, profiles.

use std::path::{Path, PathBuf};

use interference::learn::Notebook;
use interference::profile::Profiles;
use interference::{Grid, Knowledge, Matrix, Predictor, by_name, predictors};

use crate::exit::Failure;
use crate::position::line_and_column;

#[derive(clap::Args)]
pub struct Sources {
    /// Measured slowdowns: CSV with names in the first row and column; each cell has the slowdown of the
    /// row's program beside the column's, and empty cells are unknown
    #[arg(long, value_name = "FILE.csv")]
    pub matrix: Option<PathBuf>,
    /// A matrix of another machine, for the predictors that use it; repeatable
    #[arg(long, value_name = "FILE.csv")]
    elsewhere: Vec<PathBuf>,
    /// What was observed of live programs, for pairs that the matrix lacks: lines of JSON with the rates of
    /// their regions alone and together; newer lines count more
    #[arg(long, value_name = "FILE.jsonl")]
    pub observed: Option<PathBuf>,
    /// What is known of single programs: class, bandwidth, curves
    #[arg(long, value_name = "FILE.toml")]
    profiles: Option<PathBuf>,
    /// Which predictor supplies what was not measured; `list` names all
    #[arg(long, value_name = "NAME", default_value = "combined")]
    predictor: String,
}

impl Sources {
    /// All that is known of the matrix's programs and of these.
    pub fn knowledge(&self, programs: &[String]) -> Result<Knowledge, Failure> {
        let read = |path: &PathBuf| Matrix::read(path).map_err(Failure::bad_input);
        let mut matrix = match &self.matrix {
            Some(path) => read(path)?,
            None => Matrix::unknown(Vec::new()),
        };
        let observed = self.observed.as_deref().map(read_observed).transpose()?;
        let observed_matrix = observed.as_ref().map(|(notebook, now_s)| notebook.matrix(*now_s));
        let observed_names = observed_matrix.as_ref().map_or(&[][..], Matrix::names);
        matrix = extend_names(&extend_names(&matrix, observed_names), programs);
        let mut knowledge = Knowledge::of(matrix);
        if let Some((notebook, now_s)) = &observed {
            add_observed(&mut knowledge, notebook, *now_s);
        }
        knowledge.elsewhere = self.elsewhere.iter().map(read).collect::<Result<_, _>>()?;
        if let Some(path) = &self.profiles {
            let profiles = read_profiles(path)?;
            knowledge.profiles = profiles.of(&knowledge.matrix);
            knowledge.machine = profiles.machine;
        }
        Ok(knowledge)
    }

    pub fn predictor(&self) -> Result<&'static dyn Predictor, Failure> {
        by_name(&self.predictor).ok_or_else(|| {
            let all: Vec<String> = predictors()
                .iter()
                .map(|predictor| format!("  {:10} {}", predictor.name(), predictor.about()))
                .collect();
            let unknown = if self.predictor == "list" {
                "the predictors:".to_owned()
            } else {
                format!("there is no predictor '{}'; the predictors:", self.predictor)
            };
            Failure::bad_input(format!("{unknown}\n{}", all.join("\n")))
        })
    }
}

/// Every program of which nothing at all is known: no measured pair, no profile.
pub fn unknown_programs(knowledge: &Knowledge, programs: &[String]) -> Vec<String> {
    let known = |at: usize| {
        let size = knowledge.matrix.len();
        !knowledge.profiles[at].is_empty()
            || (0..size).any(|other| {
                knowledge.matrix.get(at, other).is_some() || knowledge.matrix.get(other, at).is_some()
            })
    };
    let mut found: Vec<String> = programs
        .iter()
        .filter(|name| knowledge.matrix.find(name).is_some_and(|at| !known(at)))
        .cloned()
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// What is said of programs of which nothing is known.
pub fn describe_unknown(unknown_programs: &[String]) -> Option<String> {
    (!unknown_programs.is_empty()).then(|| {
        format!(
            "Nothing is known of {}: no measured pair, no profile. The figures for {} are those of programs \
             on average or, if no pair at all is known, the prior (1.25 for two of one program, 1.17 for \
             others).",
            unknown_programs.join(", "),
            if unknown_programs.len() == 1 { "it" } else { "them" }
        )
    })
}

/// Measured where it was measured, else predicted.
pub fn grid(knowledge: &Knowledge, predictor: &dyn Predictor) -> Grid {
    let predicted = predictor.predict(knowledge);
    Grid::new(predicted.len(), |(a, b)| {
        interference::measured(knowledge, a, b).or_else(|| predicted.get(a, b))
    })
}

fn read_observed(path: &Path) -> Result<(Notebook, f64), Failure> {
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::bad_input(format!("cannot read {shown}: {error}")))?;
    Notebook::read(&text).map_err(|(line, why)| Failure::bad_input(format!("{shown}:{line}: {why}")))
}

/// Pairs that were seen and not measured.
fn add_observed(knowledge: &mut Knowledge, notebook: &Notebook, now_s: f64) {
    let names = knowledge.matrix.names().to_vec();
    for (a, b) in (0..names.len()).flat_map(|a| (0..names.len()).map(move |b| (a, b))) {
        if let (None, Some((slowdown, error))) =
            (knowledge.matrix.get(a, b), notebook.slowdown(&names[a], &names[b], now_s))
        {
            knowledge.matrix.set(a, b, Some(slowdown));
            knowledge.errors.set(a, b, Some(error));
        }
    }
}

fn extend_names(matrix: &Matrix, programs: &[String]) -> Matrix {
    let mut names = matrix.names().to_vec();
    for name in programs {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    let mut whole = Matrix::unknown(names);
    matrix.known().for_each(|(a, b, slowdown)| whole.set(a, b, Some(slowdown)));
    whole
}

pub fn read_profiles(path: &Path) -> Result<Profiles, Failure> {
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::bad_input(format!("cannot read {shown}: {error}")))?;
    let profiles: Profiles = toml::from_str(&text).map_err(|error| {
        let (line, column) = line_and_column(&text, error.span().map_or(0, |span| span.start));
        Failure::bad_input(format!("{shown}:{line}:{column}: {}", error.message()))
    })?;
    match profiles.fault() {
        Some((owner, why)) => Err(Failure::bad_input(format!("{shown}: {owner}: {why}"))),
        None => Ok(profiles),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn observations_fill_unmeasured_pairs_with_their_own_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let line = |beside: &str, together: f64| {
            format!(
                r#"{{"program":"a","beside":"{beside}","at_s":1,"alone_per_s":10,"together_per_s":{together}}}"#
            )
        };
        std::fs::write(file.path(), format!("{}\n{}\n", line("b", 5.0), line("c", 8.0))).unwrap();
        let (notebook, now_s) = read_observed(file.path()).unwrap();
        let matrix = extend_names(&Matrix::parse("m", ",a,b\na,1.5,1.1\nb,,\n").unwrap(), &["c".to_owned()]);
        let mut knowledge = Knowledge::of(matrix);
        add_observed(&mut knowledge, &notebook, now_s);
        let pair_of = |b| interference::measured(&knowledge, 0, b).unwrap();
        assert_eq!(pair_of(1).value, 1.1);
        assert!((pair_of(2).value - 1.25).abs() < 1e-9 && pair_of(2).error > pair_of(1).error);
        std::fs::write(file.path(), "{}").unwrap();
        assert!(read_observed(file.path()).unwrap_err().message.contains(":1: "));
    }
}
