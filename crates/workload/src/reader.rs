//! TOML with positions: typed look-ups whose errors name file, line, column and key.

use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// What is wrong with a workload file, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MixError {
    /// The file.
    pub path: PathBuf,
    /// Line and column from 1 (the column in characters); `None` where the file as a whole is meant.
    pub position: Option<(usize, usize)>,
    /// Key in question, such as `program.demand.min_threads`.
    pub key: Option<String>,
    /// What is wrong.
    pub what: String,
}

impl std::fmt::Display for MixError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.path.display())?;
        if let Some((line, column)) = self.position {
            write!(f, ":{line}:{column}")?;
        }
        if let Some(key) = &self.key {
            write!(f, ": {key}")?;
        }
        write!(f, ": {}", self.what)
    }
}

impl std::error::Error for MixError {}

impl MixError {
    pub(crate) fn whole(path: &Path, what: &str) -> MixError {
        MixError { path: path.to_owned(), position: None, key: None, what: what.to_owned() }
    }
}

/// A value and the byte offset where it stands.
pub(crate) struct At<T> {
    pub value: T,
    pub at: usize,
}

pub(crate) struct Reader<'a> {
    text: &'a str,
    path: &'a Path,
}

/// One table of the file, with the name that errors give it (`program.demand.`).
pub(crate) struct Table<'a> {
    reader: &'a Reader<'a>,
    prefix: String,
    at: usize,
    entries: &'a DeTable<'a>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(text: &'a str, path: &'a Path) -> Self {
        Reader { text, path }
    }

    pub(crate) fn document(&self) -> Result<Spanned<DeTable<'a>>, MixError> {
        DeTable::parse(self.text).map_err(|error| MixError {
            path: self.path.to_owned(),
            position: error.span().map(|span: Range<usize>| self.position(span.start)),
            key: None,
            what: error.message().trim().replace('\n', ", "),
        })
    }

    pub(crate) fn root(
        &'a self,
        document: &'a Spanned<DeTable<'a>>,
        known: &[&str],
    ) -> Result<Table<'a>, MixError> {
        let table = Table { reader: self, prefix: String::new(), at: 0, entries: document.get_ref() };
        table.only(known)?;
        Ok(table)
    }

    fn position(&self, offset: usize) -> (usize, usize) {
        let before = self.text.get(..offset).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        (line, column)
    }
}

impl<'a> Table<'a> {
    pub(crate) fn error_at(&self, at: usize, key: &str, what: &str) -> MixError {
        MixError {
            path: self.reader.path.to_owned(),
            position: Some(self.reader.position(at)),
            key: Some(format!("{}{key}", self.prefix)),
            what: what.to_owned(),
        }
    }

    pub(crate) fn only(&self, known: &[&str]) -> Result<(), MixError> {
        // The map is sorted by name; people expect the first in the file.
        let unknown = self.entries.keys().filter(|key| !known.contains(&key.get_ref().as_ref()));
        let Some(key) = unknown.min_by_key(|key| key.span().start) else { return Ok(()) };
        let name = key.get_ref().as_ref();
        let what = match nearest(name, known) {
            Some(near) => format!("unknown key; did you mean '{near}'?"),
            None => format!("unknown key; known are {}", known.join(", ")),
        };
        Err(self.error_at(key.span().start, name, &what))
    }

    fn get(&self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.entries.get(key)
    }

    fn wrong<T>(&self, value: &Spanned<DeValue<'_>>, key: &str, wanted: &str) -> Result<T, MixError> {
        let what = format!("must be {wanted}, not {}", kind(value.get_ref()));
        Err(self.error_at(value.span().start, key, &what))
    }

    pub(crate) fn string(&self, key: &str) -> Result<Option<At<String>>, MixError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.get_ref() {
            DeValue::String(text) => {
                Ok(Some(At { value: text.clone().into_owned(), at: value.span().start }))
            }
            _ => self.wrong(value, key, "a string"),
        }
    }

    pub(crate) fn boolean(&self, key: &str) -> Result<Option<bool>, MixError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value.get_ref().as_bool().map_or_else(|| self.wrong(value, key, "true or false"), |b| Ok(Some(b)))
    }

    pub(crate) fn path(&self, key: &str) -> Result<Option<PathBuf>, MixError> {
        match self.string(key)? {
            Some(text) if text.value.is_empty() || text.value.contains('\0') => {
                Err(self.error_at(text.at, key, "must be a path; leave the key out for none"))
            }
            text => Ok(text.map(|text| PathBuf::from(text.value))),
        }
    }

    pub(crate) fn whole(&self, key: &str, range: RangeInclusive<u64>) -> Result<Option<At<u64>>, MixError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let wanted = format!("a whole number from {} to {}", range.start(), range.end());
        let Some(integer) = value.get_ref().as_integer() else { return self.wrong(value, key, &wanted) };
        let at = value.span().start;
        match i128::from_str_radix(integer.as_str(), integer.radix()) {
            Ok(number) if (i128::from(*range.start())..=i128::from(*range.end())).contains(&number) => {
                Ok(Some(At { value: number as u64, at }))
            }
            _ => Err(self.error_at(at, key, &format!("must be {wanted}, not {integer}"))),
        }
    }

    /// Seconds in the file, nanoseconds for us.
    pub(crate) fn seconds(&self, key: &str) -> Result<Option<At<u64>>, MixError> {
        /// Ten years; longer is a typing error, and nanoseconds stay far from overflow.
        const LONGEST_S: f64 = 3.2e8;
        let Some(value) = self.get(key) else { return Ok(None) };
        let at = value.span().start;
        match number(value.get_ref()) {
            None => self.wrong(value, key, "a number of seconds"),
            Some(seconds) if (0.0..=LONGEST_S).contains(&seconds) => {
                Ok(Some(At { value: (seconds * 1e9).round() as u64, at }))
            }
            _ => {
                let what =
                    format!("must be a number of seconds from 0 to {LONGEST_S:e}, not below and not beyond");
                Err(self.error_at(at, key, &what))
            }
        }
    }

    /// A number within `range`; `what` says what it is in errors.
    pub(crate) fn number(
        &self,
        key: &str,
        what: &str,
        range: RangeInclusive<f64>,
    ) -> Result<Option<At<f64>>, MixError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let at = value.span().start;
        match number(value.get_ref()) {
            Some(number) if range.contains(&number) => Ok(Some(At { value: number, at })),
            Some(_) => {
                let what = format!("must be {what}, from {} to {}", range.start(), range.end());
                Err(self.error_at(at, key, &what))
            }
            None => self.wrong(value, key, what),
        }
    }

    /// A table of numbers by whole numbers above 1, as `{ 2 = 1.8, 6 = 3.8 }`, in ascending order.
    pub(crate) fn numbers_by_size(&self, key: &str) -> Result<Vec<(u32, At<f64>)>, MixError> {
        let Some(value) = self.get(key) else { return Ok(Vec::new()) };
        let Some(entries) = value.get_ref().as_table() else {
            return self.wrong(value, key, "a table such as { 2 = 1.8, 6 = 3.8 }");
        };
        let mut numbers = Vec::new();
        for (size, value) in entries.iter() {
            let inner = format!("{key}.{}", size.get_ref());
            let Some(cpus) =
                size.get_ref().parse().ok().filter(|cpus| (2..=topology::MAX_CPUS).contains(cpus))
            else {
                let what = format!("is not a number of CPUs from 2 to {}", topology::MAX_CPUS);
                return Err(self.error_at(size.span().start, &inner, &what));
            };
            match number(value.get_ref()) {
                Some(number) if number > 0.0 => {
                    numbers.push((cpus, At { value: number, at: value.span().start }));
                }
                _ => return self.wrong(value, &inner, "a number above 0"),
            }
        }
        numbers.sort_by_key(|(cpus, _)| *cpus);
        Ok(numbers)
    }

    /// A list of strings, each with where it stands.
    pub(crate) fn strings(&self, key: &str) -> Result<Option<Vec<At<String>>>, MixError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let Some(items) = value.get_ref().as_array() else {
            return self.wrong(value, key, "a list of strings");
        };
        let mut strings = Vec::new();
        for item in items.iter() {
            match item.get_ref() {
                DeValue::String(text) => {
                    strings.push(At { value: text.clone().into_owned(), at: item.span().start });
                }
                _ => return self.wrong(item, key, "a list of strings"),
            }
        }
        Ok(Some(strings))
    }

    /// That a key which cannot be done without is missing.
    pub(crate) fn missing(&self, key: &str, example: &str) -> MixError {
        self.error_at(self.at, key, &format!("is missing: write {example}"))
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Line on which the table begins, from 1.
    pub(crate) fn line(&self) -> usize {
        self.line_of(self.at)
    }

    /// Line of what stands there, from 1.
    pub(crate) fn line_of(&self, at: usize) -> usize {
        self.reader.position(at).0
    }

    /// A list of strings, or one string that is split into words.
    pub(crate) fn command(&self, key: &str) -> Result<Vec<String>, MixError> {
        let Some(value) = self.get(key) else {
            let what = "is missing: write command = [\"./program\", \"argument\"]";
            return Err(self.error_at(self.at, key, what));
        };
        let at = value.span().start;
        let words = match value.get_ref() {
            DeValue::String(text) => {
                crate::shell_words::split(text).map_err(|what| self.error_at(at, key, &what))?
            }
            DeValue::Array(items) => {
                let mut words = Vec::new();
                for item in items.iter() {
                    match item.get_ref() {
                        DeValue::String(word) => words.push(word.clone().into_owned()),
                        _ => return self.wrong(item, key, "a list of strings"),
                    }
                }
                words
            }
            _ => return self.wrong(value, key, "a string or a list of strings"),
        };
        if words.first().is_none_or(|program| program.is_empty()) {
            return Err(self.error_at(at, key, "is empty: name the program to start"));
        }
        if words.iter().any(|word| word.contains('\0')) {
            return Err(self.error_at(at, key, "contains a NUL character, which no argument can hold"));
        }
        Ok(words)
    }

    pub(crate) fn environment(&self, key: &str) -> Result<BTreeMap<String, String>, MixError> {
        let Some(value) = self.get(key) else { return Ok(BTreeMap::new()) };
        let Some(entries) = value.get_ref().as_table() else {
            return self.wrong(value, key, "a table of NAME = \"value\"");
        };
        let mut environment = BTreeMap::new();
        for (name, value) in entries.iter() {
            let inner = format!("{key}.{}", name.get_ref());
            if name.get_ref().is_empty() || name.get_ref().contains(['=', '\0']) {
                let what = "is not the name of a variable: it must not be empty or contain =";
                return Err(self.error_at(name.span().start, &inner, what));
            }
            let text = match value.get_ref() {
                DeValue::String(text) if !text.contains('\0') => text.clone().into_owned(),
                // OMP_NUM_THREADS = 2 is what people write, and means one thing only.
                DeValue::Integer(integer) if integer.radix() == 10 => integer.as_str().to_owned(),
                _ => return self.wrong(value, &inner, "a string without NUL characters"),
            };
            environment.insert(name.get_ref().clone().into_owned(), text);
        }
        Ok(environment)
    }

    pub(crate) fn table(&self, key: &str, known: &[&str]) -> Result<Option<Table<'a>>, MixError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.get_ref() {
            DeValue::Table(entries) => Ok(Some(self.inner(key, value.span().start, entries, known)?)),
            _ => self.wrong(value, key, "a table"),
        }
    }

    pub(crate) fn tables(&self, key: &str, known: &[&str]) -> Result<Vec<Table<'a>>, MixError> {
        let tables = self.unchecked_tables(key)?;
        tables.iter().try_for_each(|table| table.only(known))?;
        Ok(tables)
    }

    /// The same with whatever keys they have, so that a wrong one need not spoil the others.
    pub(crate) fn unchecked_tables(&self, key: &str) -> Result<Vec<Table<'a>>, MixError> {
        let Some(value) = self.get(key) else { return Ok(Vec::new()) };
        let wanted = format!("a list of tables, each begun by [[{key}]]");
        let Some(items) = value.get_ref().as_array() else { return self.wrong(value, key, &wanted) };
        let table = |item: &'a Spanned<DeValue<'a>>| match item.get_ref() {
            DeValue::Table(entries) => {
                let prefix = format!("{}{key}.", self.prefix);
                Ok(Table { reader: self.reader, prefix, at: item.span().start, entries })
            }
            _ => self.wrong(item, key, &wanted),
        };
        items.iter().map(table).collect()
    }

    fn inner(
        &self,
        key: &str,
        at: usize,
        entries: &'a DeTable<'a>,
        known: &[&str],
    ) -> Result<Table<'a>, MixError> {
        let table = Table { reader: self.reader, prefix: format!("{}{key}.", self.prefix), at, entries };
        table.only(known)?;
        Ok(table)
    }
}

fn number(value: &DeValue<'_>) -> Option<f64> {
    match value {
        DeValue::Float(float) => float.as_str().parse().ok(),
        DeValue::Integer(integer) if integer.radix() == 10 => integer.as_str().parse().ok(),
        _ => None,
    }
}

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a float",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// The known word with the fewest edits, if few enough to be a typing error.
fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    let best = known.iter().min_by_key(|candidate| edits(word, candidate))?;
    (edits(word, best) <= 1 + best.len() / 4).then_some(best)
}

/// Levenshtein's distance.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
