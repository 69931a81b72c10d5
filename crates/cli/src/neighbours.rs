//! `neighbours` among the settings of policies: a word that they know, or the file of a slowdown matrix or of profiles,
//! which becomes a table of predictions here, so that whoever decides needs no file.

use std::path::{Path, PathBuf};

use interference::{Knowledge, Matrix, by_name};
use policy::{Neighbours, Predictions};

use crate::exit::Failure;
use crate::known;

/// What the settings know by themselves.
const KEYWORDS: [&str; 3] = ["twins", "profile", "load_rates"];

/// Takes the path of a file out of a table of settings; a word stays there.
pub fn take_path(table: &mut toml::Table) -> Option<PathBuf> {
    let path = match table.get("neighbours") {
        Some(toml::Value::String(text)) if !KEYWORDS.contains(&text.as_str()) => PathBuf::from(text),
        _ => return None,
    };
    table.remove("neighbours");
    Some(path)
}

/// What was measured, and what follows from it for pairs that were not; or what follows from profiles alone.
pub fn predicted(path: &Path) -> Result<Neighbours, Failure> {
    let knowledge = if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("toml")) {
        let profiles = known::read_profiles(path)?;
        let matrix = Matrix::unknown(profiles.program.keys().cloned().collect());
        let profile = profiles.of(&matrix);
        Knowledge { profiles: profile, machine: profiles.machine, ..Knowledge::of(matrix) }
    } else {
        Knowledge::of(Matrix::read(path).map_err(|error| {
            let keywords = KEYWORDS.join(", ");
            Failure::bad_input(format!(
                "neighbours: {error}; {keywords}, a matrix (.csv) or profiles (.toml) are expected"
            ))
        })?)
    };
    let predictor = by_name("combined").expect("it is one of ours");
    let grid = known::grid(&knowledge, predictor);
    Ok(Neighbours::Predicted(Predictions::of(knowledge.matrix.names(), &grid)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keywords_stay_and_paths_are_read() {
        let table = |text: &str| toml::from_str::<toml::Table>(text).unwrap();
        let mut twins = table("neighbours = 'twins'");
        assert_eq!((take_path(&mut twins), twins.len()), (None, 1));
        let mut path = table("neighbours = 'pairs.csv'\nslice_ns = 1");
        assert_eq!((take_path(&mut path), path.len()), (Some("pairs.csv".into()), 1));
        assert!(
            predicted(Path::new("/nowhere.csv")).unwrap_err().message.contains("cannot read /nowhere.csv")
        );
    }

    #[test]
    fn profiles_alone_predict_good_neighbours() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("p.toml");
        let profile = |name: &str, bandwidth: f64| {
            format!("[program.{name}]\nclass = 'S'\nbandwidth_bytes_per_s = {bandwidth}\n")
        };
        let machine = "[machine]\nbandwidth_bytes_per_s = 10e9\n";
        std::fs::write(&path, format!("{machine}{}{}", profile("a", 8e9), profile("b", 4e9))).unwrap();
        let Neighbours::Predicted(known) = predicted(&path).unwrap() else { panic!("a table") };
        assert_eq!((known.programs.len(), known.cells_milli[1].0), (2, 1200));
    }

    #[test]
    fn measurements_go_before_predictions() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), ",a,b\na,1.5,\nb,1.2,1.1\n").unwrap();
        let Neighbours::Predicted(known) = predicted(file.path()).unwrap() else { panic!("a table") };
        assert_eq!(known.programs, ["a", "b"]);
        assert_eq!([known.cells_milli[0].0, known.cells_milli[2].0], [1500, 1200]);
        assert!(known.cells_milli[1].0 >= 1000 && known.cells_milli[1].1 > known.cells_milli[0].1);
    }
}
