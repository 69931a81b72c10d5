//! The slowdown matrix: how much slower a program (row) is beside another (column) than alone.

use std::collections::HashMap;
use std::path::Path;

use thiserror::Error;
use workload::text;

use crate::table::{self, Table};

/// Largest and smallest slowdown that is believed. A program that is a thousand times slower beside
/// another was stopped, not slowed.
const CREDIBLE: std::ops::RangeInclusive<f64> = 0.01..=1000.0;
/// More programs than that is no matrix that anybody measured.
const MOST_PROGRAMS: usize = 4096;

/// Why a file is no slowdown matrix. Lines and columns count from 1; columns are those of the table.
#[derive(Debug, Error, PartialEq)]
pub enum Unreadable {
    /// It cannot be read.
    #[error("cannot read {path}: {why}")]
    File {
        /// The file.
        path: String,
        /// What the system said.
        why: String,
    },
    /// A cell holds what no matrix has there.
    #[error("{path}:{line}:{column}: {why}")]
    Cell {
        /// The file.
        path: String,
        /// The row's line.
        line: u64,
        /// The cell's column.
        column: usize,
        /// What is wrong with it.
        why: String,
    },
}

/// Programs by name and the slowdown of each beside each; `None` is unknown.
///
/// ```
/// # use coplace_interference::Matrix;
/// let matrix = Matrix::parse("pair.csv", ",a,b\na,1.5,1.1\nb,,1.0\n")?;
/// assert_eq!(matrix.get(0, 1), Some(1.1));
/// assert_eq!(matrix.get(1, 0), None);
/// # Ok::<(), coplace_interference::Unreadable>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    names: Vec<String>,
    cells: Vec<Option<f64>>,
}

impl Matrix {
    /// Nothing known of these programs.
    pub fn unknown(names: Vec<String>) -> Matrix {
        let cells = vec![None; names.len() * names.len()];
        Matrix { names, cells }
    }

    /// The number of programs.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether it has no programs.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The programs, in the order of rows and columns.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The name of a program by its row.
    pub fn name(&self, program: usize) -> &str {
        &self.names[program]
    }

    /// The row of a program by its name.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|other| other == name)
    }

    /// The slowdown of `program` beside `beside`.
    pub fn get(&self, program: usize, beside: usize) -> Option<f64> {
        self.cells[program * self.names.len() + beside]
    }

    /// Sets the slowdown of `program` beside `beside`; `None` makes it unknown.
    pub fn set(&mut self, program: usize, beside: usize, slowdown: Option<f64>) {
        let width = self.names.len();
        self.cells[program * width + beside] = slowdown;
    }

    /// Row, column and slowdown of all that is known, in order.
    pub fn known(&self) -> impl Iterator<Item = (usize, usize, f64)> + '_ {
        let width = self.names.len();
        self.cells
            .iter()
            .enumerate()
            .filter_map(move |(at, cell)| cell.map(|slowdown| (at / width, at % width, slowdown)))
    }

    /// Is every cell known?
    pub fn is_whole(&self) -> bool {
        self.cells.iter().all(Option::is_some)
    }

    /// The programs that are known beside each other both ways, as unordered pairs, and alike.
    pub fn known_pairs(&self) -> Vec<(usize, usize)> {
        let pairs = (0..self.len()).flat_map(|a| (a..self.len()).map(move |b| (a, b)));
        pairs.filter(|&(a, b)| self.get(a, b).is_some() && self.get(b, a).is_some()).collect()
    }

    /// These programs of it, in this order; one may come several times.
    pub fn of(&self, programs: &[usize]) -> Matrix {
        let mut matrix = Matrix::unknown(programs.iter().map(|&at| self.names[at].clone()).collect());
        for (a, &from) in programs.iter().enumerate() {
            for (b, &beside) in programs.iter().enumerate() {
                matrix.set(a, b, self.get(from, beside));
            }
        }
        matrix
    }

    /// Reads a file in CSV.
    pub fn read(path: &Path) -> Result<Matrix, Unreadable> {
        let shown = path.display().to_string();
        let text = text::read(path).map_err(|error| {
            let why = match error {
                text::Unreadable::File { error, .. } => error.to_string(),
                text::Unreadable::NoText { why, .. } => why.to_string(),
            };
            Unreadable::File { path: shown.clone(), why }
        })?;
        Matrix::parse(&shown, &text)
    }

    /// Reads CSV: names in the first row and the first column, in one order; an empty cell is unknown, and one
    /// with NA. Cells may be separated by semicolons or tabs, and numbers then have a decimal comma. `path` is what
    /// errors name.
    pub fn parse(path: &str, text: &str) -> Result<Matrix, Unreadable> {
        let at = |line: u64, column: usize, why: String| Unreadable::Cell {
            path: path.to_owned(),
            line,
            column,
            why,
        };
        let Table { rows, decimal_comma } = table::parse(text.trim_start_matches('\u{feff}'))
            .map_err(|error| at(error.line, 1, error.why))?;
        let Some(((head_line, head), rows)) = rows.split_first() else {
            return Err(at(1, 1, "the file is empty; a matrix begins with a row of names".into()));
        };
        let names: Vec<String> = head.iter().skip(1).cloned().collect();
        check_names(&names).map_err(|(column, why)| at(*head_line, column, why))?;
        let count = names.len();
        let mut matrix = Matrix::unknown(names);
        for (row, (line, record)) in rows.iter().enumerate() {
            let name = record.first().map_or("", String::as_str);
            match matrix.names.get(row) {
                None => {
                    let why = format!(
                        "a row '{name}' too many: the first row names {count} programs, and a matrix is square"
                    );
                    return Err(at(*line, 1, why));
                }
                Some(wanted) if wanted != name => {
                    let why = format!(
                        "this row is '{name}' where the first row has '{wanted}'; rows and columns stand in \
                         one order"
                    );
                    return Err(at(*line, 1, why));
                }
                Some(_) => {}
            }
            if record.len() != count + 1 {
                let why = format!(
                    "the row of '{name}' has {} values for {count} programs; an unknown one is left empty, \
                     with its comma",
                    record.len() - 1
                );
                return Err(at(*line, record.len().min(count + 2), why));
            }
            for (column, text) in record.iter().enumerate().skip(1) {
                let slowdown = slowdown(text, decimal_comma).map_err(|why| {
                    let beside = &matrix.names[column - 1];
                    at(*line, column + 1, format!("'{name}' beside '{beside}': {why}"))
                })?;
                matrix.set(row, column - 1, slowdown);
            }
        }
        if rows.len() < count {
            let missing = &matrix.names[rows.len()];
            let line = rows.last().map_or(*head_line, |(line, _)| *line) + 1;
            let why = format!("the row of '{missing}' is missing: {} of {count} rows are there", rows.len());
            return Err(at(line, 1, why));
        }
        Ok(matrix)
    }

    /// The same as CSV, six digits behind the point.
    pub fn to_csv(&self) -> String {
        let mut writer = csv::Writer::from_writer(Vec::new());
        let head = std::iter::once("").chain(self.names.iter().map(String::as_str));
        writer.write_record(head).expect("a vector takes everything");
        for (row, name) in self.names.iter().enumerate() {
            let value = |column| self.get(row, column).map_or_else(String::new, |cell| format!("{cell:.6}"));
            let cells = std::iter::once(name.clone()).chain((0..self.len()).map(value));
            writer.write_record(cells).expect("a vector takes everything");
        }
        let bytes = writer.into_inner().expect("a vector takes everything");
        String::from_utf8(bytes).expect("names and numbers are text")
    }
}

fn check_names(names: &[String]) -> Result<(), (usize, String)> {
    if names.is_empty() {
        return Err((1, "the first row names no program".into()));
    }
    if names.len() > MOST_PROGRAMS {
        return Err((MOST_PROGRAMS + 2, format!("more than {MOST_PROGRAMS} programs")));
    }
    let mut first_at = HashMap::new();
    for (at, name) in names.iter().enumerate() {
        if name.is_empty() {
            return Err((at + 2, "a program without a name".into()));
        }
        if let Some(first) = first_at.insert(name, at) {
            let why = format!("'{name}' stands in column {} already; name every program once", first + 2);
            return Err((at + 2, why));
        }
    }
    Ok(())
}

fn slowdown(text: &str, decimal_comma: bool) -> Result<Option<f64>, String> {
    let value = table::number(text, decimal_comma)
        .map_err(|text| format!("'{text}' is no number; what is unknown is left empty, or NA"))?;
    let Some(value) = value else { return Ok(None) };
    if value.is_finite() && CREDIBLE.contains(&value) {
        return Ok(Some(value));
    }
    Err(match value {
        v if v.is_nan() => format!("'{text}' is no slowdown; leave what is unknown empty"),
        v if v.is_infinite() => {
            format!(
                "'{text}': no program is slowed down without end; leave the cell empty where a pair cannot run"
            )
        }
        v if v <= 0.0 => format!("{text} is no slowdown: 1 is as fast as alone, and nothing is below 0"),
        _ => format!("{text} is no slowdown: {} to {} is believed", CREDIBLE.start(), CREDIBLE.end()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fault(text: &str) -> String {
        Matrix::parse("m.csv", text).expect_err("it is wrong").to_string()
    }

    #[test]
    fn mistakes_are_reported_by_file_line_and_column() {
        for (text, wanted) in [
            ("", "m.csv:1:1: the file is empty"),
            ("x\n", "m.csv:1:1: the first row names no program"),
            (",a,\na,1,1\n", "m.csv:1:3: a program without a name"),
            (",a,a\na,1,1\na,1,1\n", "m.csv:1:3: 'a' stands in column 2 already"),
            (",a,b\na,1,1\n", "m.csv:3:1: the row of 'b' is missing: 1 of 2 rows are there"),
            (",a,b\nb,1,1\na,1,1\n", "m.csv:2:1: this row is 'b' where the first row has 'a'"),
            (",a\na,1\nb,1\n", "m.csv:3:1: a row 'b' too many"),
            (",a,b\na,1\nb,1,1\n", "m.csv:2:2: the row of 'a' has 1 values for 2 programs"),
            (",a,b\na,1,2,3\nb,1,1\n", "m.csv:2:4: the row of 'a' has 3 values"),
            (",a,b\na,1,0\nb,1,1\n", "m.csv:2:3: 'a' beside 'b': 0 is no slowdown"),
            (",a,b\na,1,1\nb,-2,1\n", "m.csv:3:2: 'b' beside 'a': -2 is no slowdown"),
            (
                ",a,b\na,1,inf\nb,1,1\n",
                "m.csv:2:3: 'a' beside 'b': 'inf': no program is slowed down without end",
            ),
            (",a,b\na,1,-nan\nb,1,1\n", "m.csv:2:3: 'a' beside 'b': '-nan' is no slowdown"),
            (",a,b\na,1,\"1,5\"\nb,1,1\n", "m.csv:2:3: 'a' beside 'b': '1,5' is no number"),
            (";a;b\na;1;1.000,5\nb;1;1\n", "m.csv:2:3: 'a' beside 'b': '1.000,5' is no number"),
            (",a,b\na,1,fast\nb,1,1\n", "m.csv:2:3: 'a' beside 'b': 'fast' is no number"),
            (",a,b\na,1,1e9\nb,1,1\n", "m.csv:2:3: 'a' beside 'b': 1e9 is no slowdown"),
        ] {
            let message = fault(text);
            assert!(message.starts_with(wanted), "{text:?} gave: {message}");
        }
    }

    #[test]
    fn names_with_commas_and_line_ends_of_windows_are_read() {
        let matrix =
            Matrix::parse("m.csv", "\u{feff},\"a, big\",b\r\n\"a, big\", 1.5 ,\r\nb,1.2,1\r\n").unwrap();
        assert_eq!(matrix.names(), ["a, big", "b"]);
        assert_eq!([matrix.get(0, 0), matrix.get(0, 1), matrix.get(1, 0)], [Some(1.5), None, Some(1.2)]);
        assert_eq!(matrix.known().count(), 3);
        assert_eq!(matrix.known_pairs(), [(0, 0), (1, 1)]);
        assert!(!matrix.is_whole());
    }

    #[test]
    fn matrices_of_spreadsheets_r_and_pandas_are_read() {
        for text in [
            ",a,b\na,1.5,\nb,1.25,1\n",
            "\"\",\"a\",\"b\"\n\"a\",1.5,NA\n\"b\",1.25,1\n",
            "\u{feff};a;b\r\na;1,5;\r\nb;1,25;1\r\n",
            "\ta\tb\ra\t1,5\t#N/A\rb\t1.25\t1\r",
            "\"a\",\"b\"\n\"a\",1.5,NaN\n\"b\",1.25,1\n",
        ] {
            let matrix = Matrix::parse("m.csv", text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
            let cells = [matrix.get(0, 0), matrix.get(0, 1), matrix.get(1, 0), matrix.get(1, 1)];
            assert_eq!(cells, [Some(1.5), None, Some(1.25), Some(1.0)], "{text:?}");
        }
    }

    #[test]
    fn some_programs_of_a_matrix_keep_their_slowdowns() {
        let matrix = Matrix::parse("m.csv", ",a,b\na,1.5,1.1\nb,1.3,1\n").unwrap();
        let twice = matrix.of(&[1, 0, 1]);
        assert_eq!(twice.names(), ["b", "a", "b"]);
        assert_eq!([twice.get(0, 1), twice.get(0, 2), twice.get(1, 2)], [Some(1.3), Some(1.0), Some(1.1)]);
    }

    proptest! {
        #[test]
        fn a_written_matrix_reads_back(cells in proptest::collection::vec(proptest::option::of(0.5f64..20.0), 16)) {
            let names = ["a", "b \"c\"", "d,e", "f"].map(str::to_owned).to_vec();
            let mut matrix = Matrix::unknown(names);
            for (at, cell) in cells.iter().enumerate() {
                matrix.set(at / 4, at % 4, cell.map(|value| (value * 1e6).round() / 1e6));
            }
            let read = Matrix::parse("m.csv", &matrix.to_csv()).unwrap();
            prop_assert_eq!(read.names(), matrix.names());
            for ((_, _, one), (_, _, other)) in read.known().zip(matrix.known()) {
                prop_assert!((one - other).abs() < 1e-6);
            }
            prop_assert_eq!(read.known().count(), matrix.known().count());
        }

        #[test]
        fn no_text_makes_the_reader_fail_otherwise_than_by_an_error(text in "[,\\n\"ab0-9.\\-einf ]{0,60}") {
            let _ = Matrix::parse("m.csv", &text);
        }
    }
}
