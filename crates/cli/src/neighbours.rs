//! `neighbours` among the settings of policies: a word that they know, or the file of a slowdown matrix, which becomes
//! a table of predictions here, so that whoever decides needs no file.

use std::path::{Path, PathBuf};

use interference::{Knowledge, Matrix, by_name};
use policy::{Neighbours, Predictions};

use crate::exit::Failure;
use crate::lab::known;

/// What the settings know by themselves.
const WORDS: [&str; 2] = ["twins", "profile"];

/// Takes the path of a matrix out of a table of settings; a word stays there.
pub fn take_path(table: &mut toml::Table) -> Option<PathBuf> {
    let path = match table.get("neighbours") {
        Some(toml::Value::String(text)) if !WORDS.contains(&text.as_str()) => PathBuf::from(text),
        _ => return None,
    };
    table.remove("neighbours");
    Some(path)
}

/// What was measured, and what follows from it for pairs that were not.
pub fn predicted(path: &Path) -> Result<Neighbours, Failure> {
    let matrix = Matrix::read(path).map_err(|error| {
        Failure::bad_input(format!("neighbours: {error}; {} or the CSV file of a matrix is expected", WORDS.join(", ")))
    })?;
    let knowledge = Knowledge::of(matrix);
    let predictor = by_name("combined").expect("it is one of ours");
    let grid = known::grid(&knowledge, predictor);
    Ok(Neighbours::Predicted(Predictions::of(knowledge.matrix.names(), &grid)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stay_and_paths_are_read() {
        let table = |text: &str| toml::from_str::<toml::Table>(text).unwrap();
        let mut words = table("neighbours = 'twins'");
        assert_eq!((take_path(&mut words), words.len()), (None, 1));
        let mut path = table("neighbours = 'pairs.csv'\nslice_ns = 1");
        assert_eq!((take_path(&mut path), path.len()), (Some("pairs.csv".into()), 1));
        assert!(predicted(Path::new("/nowhere.csv")).unwrap_err().message.contains("cannot read /nowhere.csv"));
    }

    #[test]
    fn what_was_measured_goes_before_what_is_predicted() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), ",a,b\na,1.5,\nb,1.2,1.1\n").unwrap();
        let Neighbours::Predicted(known) = predicted(file.path()).unwrap() else { panic!("a table") };
        assert_eq!(known.programs, ["a", "b"]);
        assert_eq!([known.cells_milli[0].0, known.cells_milli[2].0], [1500, 1200]);
        assert!(known.cells_milli[1].0 >= 1000 && known.cells_milli[1].1 > known.cells_milli[0].1);
    }
}
