//! Tables for people: columns as wide as they need to be, numbers to the right.

use std::fmt;

pub struct Table {
    heads: Vec<String>,
    right: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A head that begins with `>` makes a column of numbers.
    pub fn new(heads: &[&str]) -> Table {
        Table {
            heads: heads.iter().map(|head| head.trim_start_matches('>').to_owned()).collect(),
            right: heads.iter().map(|head| head.starts_with('>')).collect(),
            rows: Vec::new(),
        }
    }

    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        assert_eq!(N, self.heads.len(), "a row has a cell for every head");
        self.rows.push(cells.into());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = |text: &String| text.chars().count();
        let width = |column: usize| {
            self.rows.iter().chain([&self.heads]).map(|row| length(&row[column])).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.heads.len()).map(width).collect();
        for row in std::iter::once(&self.heads).chain(&self.rows) {
            let mut line = String::new();
            for ((cell, &width), &right) in row.iter().zip(&widths).zip(&self.right) {
                let gap = " ".repeat(width - length(cell));
                if !line.is_empty() {
                    line += "  ";
                }
                line += &if right { format!("{gap}{cell}") } else { format!("{cell}{gap}") };
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_numbers_stand_to_the_right() {
        let mut table = Table::new(&["name", ">n"]);
        table.row(["a".into(), "1".into()]);
        table.row(["längste".into(), "1000".into()]);
        assert_eq!(table.to_string(), "name        n\na           1\nlängste  1000\n");
    }
}
