//! Tables as spreadsheets, R and pandas write them: which character separates, how fractions are written, what
//! stands for an unknown value, and what was added around the table.

/// What separates cells, in the order in which they are preferred where several could.
const SEPARATORS: [char; 3] = [',', ';', '\t'];
/// What others write into a cell of which nothing is known.
const UNKNOWN: [&str; 5] = ["na", "n/a", "#n/a", "nan", "null"];

/// A row and its line in the file.
pub type Row = (u64, Vec<String>);

/// The cells of a table, and whether their fractions may be written with a comma.
#[derive(Debug, PartialEq)]
pub struct Table {
    pub rows: Vec<Row>,
    pub decimal_comma: bool,
}

/// Why a text is no table, and in which line.
pub struct NoTable {
    pub line: u64,
    pub why: String,
}

pub fn parse(text: &str) -> Result<Table, NoTable> {
    // A line of Excel's that tells the separator.
    let (stated, text, skipped) = match text.split_once(['\n', '\r']) {
        Some((first, rest)) if first.trim().len() == 5 && first.starts_with("sep=") => {
            let separator = first.trim().chars().last();
            (separator, rest.trim_start_matches('\n'), 1)
        }
        _ => (None, text, 0),
    };
    let separator = stated.filter(|stated| SEPARATORS.contains(stated)).unwrap_or_else(|| separator_of(text));
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .trim(csv::Trim::All)
        .delimiter(separator as u8)
        .from_reader(text.as_bytes());
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|error| NoTable {
            line: skipped + error.position().map_or(1, csv::Position::line),
            why: format!("this is no CSV: {error}"),
        })?;
        let line = skipped + record.position().map_or(1, csv::Position::line);
        rows.push((line, record.iter().map(str::to_owned).collect()));
    }
    Ok(Table { rows: framed(rows), decimal_comma: separator != ',' })
}

/// The character that stands after the first cell of the first row, which is a name in quotes or mostly empty;
/// else the one that stands in that row most often.
fn separator_of(text: &str) -> char {
    let head = text.split(['\n', '\r']).next().unwrap_or_default().trim_start_matches(' ');
    let quoted = head.strip_prefix('"').and_then(|rest| rest.find('"').map(|at| &rest[at + 1..]));
    if let Some(first) = quoted.unwrap_or(head).trim_start_matches(' ').chars().next()
        && SEPARATORS.contains(&first)
    {
        return first;
    }
    // Those in quotes belong to names.
    let outside: String = head.split('"').step_by(2).collect();
    let often = |separator: char| outside.matches(separator).count();
    SEPARATORS.into_iter().rev().max_by_key(|separator| often(*separator)).unwrap_or(',')
}

/// Without the empty rows and columns that spreadsheets add, and with the corner that R leaves out.
fn framed(mut rows: Vec<Row>) -> Vec<Row> {
    rows.retain(|(_, cells)| cells.iter().any(|cell| !cell.is_empty()));
    let filled =
        |cells: &[String]| cells.iter().rposition(|cell| !cell.is_empty()).map_or(0, |last| last + 1);
    let width = rows.iter().map(|(_, cells)| filled(cells)).max().unwrap_or(0);
    rows.iter_mut().for_each(|(_, cells)| cells.truncate(width));
    if let [(_, head), others @ ..] = &mut rows[..]
        && !others.is_empty()
        && head.len() == others.len()
        && others
            .iter()
            .zip(head.iter())
            .all(|((_, cells), name)| cells.first() == Some(name) && cells.len() == head.len() + 1)
    {
        head.insert(0, String::new());
    }
    rows
}

/// A number; `None`: unknown. The error is the text that is none.
pub fn number(text: &str, decimal_comma: bool) -> Result<Option<f64>, String> {
    let lower = text.to_ascii_lowercase();
    if text.is_empty() || UNKNOWN.contains(&lower.as_str()) {
        return Ok(None);
    }
    let pointed = match decimal_comma && !text.contains('.') && text.matches(',').count() == 1 {
        true => text.replace(',', "."),
        false => text.to_owned(),
    };
    pointed.parse().map(Some).map_err(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(text: &str) -> Vec<Vec<String>> {
        let table = parse(text).unwrap_or_else(|error| panic!("{}: {}", error.line, error.why));
        table.rows.into_iter().map(|(_, cells)| cells).collect()
    }

    #[test]
    fn the_separator_is_found_whatever_names_hold() {
        for (head, wanted) in [
            (",a;b,c;d", ','),
            (";\"a,b,c\";d", ';'),
            ("\"\",\"a;b;c\"", ','),
            ("\ta,b\tc", '\t'),
            ("program;a;b", ';'),
            ("program,a,b", ','),
            ("\"the program\";a", ';'),
            ("a", ','),
            ("", ','),
        ] {
            assert_eq!(separator_of(head), wanted, "{head}");
        }
    }

    #[test]
    fn decorations_by_spreadsheets_and_r_are_stripped() {
        let wanted = cells(",a,b\na,1,2\nb,3,4\n");
        for text in [
            "sep=;\r\n;a;b\r\na;1;2\r\nb;3;4\r\n",
            ",a,b,,\na,1,2,,\nb,3,4,,\n,,,,\n",
            "a,b\na,1,2\nb,3,4\n",
            "\ta\tb\ra\t1\t2\rb\t3\t4\r",
            "\n,a,b\n\na,1,2\nb,3,4\n\n",
        ] {
            assert_eq!(cells(text), wanted, "{text:?}");
        }
        // A line that is told counts them all.
        assert_eq!(parse("sep=;\n;a\na;1\n").ok().map(|table| table.rows[1].0), Some(3));
    }

    #[test]
    fn numbers_have_a_point_or_where_nothing_else_is_meant_a_comma() {
        assert_eq!(number("1,62", true), Ok(Some(1.62)));
        assert_eq!(number("1.62", true), Ok(Some(1.62)));
        assert_eq!(number("NA", false), Ok(None));
        assert_eq!(number("#N/A", false), Ok(None));
        for (text, comma) in [("1,000", false), ("1.000,5", true), ("1,2,3", true), ("fast", true)] {
            assert_eq!(number(text, comma), Err(text.to_owned()));
        }
    }
}
