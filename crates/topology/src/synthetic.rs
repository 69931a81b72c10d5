//! Machines in one line, in the style of hwloc: `pack:4 [numa] l3:1(size=6MB) core:6 pu:1`.
//!
//! Each word is `level:count`, the count for each unit of the word before it; `os_index` runs
//! consecutively. `[numa]` is one NUMA node for each unit of the word before it. As in hwloc,
//! `node` means NUMA node; one machine of several is `machine`. Of the caches the outermost is the
//! last-level cache; an inner one makes a level of its own only where several cores share it.
//! Sizes are powers of 1024 with or without the `i` (6MB = 6MiB), as the kernel writes them.

use crate::machine::{Cache, Group, Level, Machine, Object};
use crate::{CpuSet, MAX_CPUS};

/// Why a line describes no machine, and where that shows.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("machine description, column {column}: {what} (write for example: pack:2 [numa] l3:1 core:4 pu:2)")]
pub struct SyntheticError {
    /// From 1, in characters.
    pub column: usize,
    /// What is wrong there, as a clause.
    pub what: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain(Level),
    /// A cache; the level is `None` in `llc`, which does not say.
    Cache(Option<u8>),
}

struct Token {
    kind: Kind,
    count: u32,
    size_bytes: Option<u64>,
    line_bytes: Option<u32>,
    column: usize,
}

impl Machine {
    /// Reads such a line, which also becomes the machine's name. Where it has no `pu`, each innermost unit
    /// is one CPU. Fails at the first word that is wrong, and beyond [`MAX_CPUS`] CPUs.
    pub fn synthetic(text: &str) -> Result<Machine, SyntheticError> {
        let mut tokens = parse(text)?;
        if !tokens.iter().any(|token| token.kind == Kind::Plain(Level::Pu)) {
            let column = text.chars().count() + 1;
            let kind = Kind::Plain(Level::Pu);
            tokens.push(Token { kind, count: 1, size_bytes: None, line_bytes: None, column });
        }
        let mut total: u32 = 1;
        for token in &tokens {
            total = total.checked_mul(token.count).filter(|&total| total <= MAX_CPUS).ok_or_else(|| {
                SyntheticError { column: token.column, what: format!("more than {MAX_CPUS} CPUs") }
            })?;
        }
        let mut root_level = Level::Node;
        let mut groups = Vec::new();
        let mut caches = Vec::new();
        let mut has_llc = false;
        let cores_at = tokens.iter().position(|token| token.kind == Kind::Plain(Level::Core));
        let mut width = total;
        for token in &tokens {
            width /= token.count;
            let level = match token.kind {
                Kind::Plain(level) => Some(level),
                Kind::Cache(_) if !has_llc => Some(Level::Llc),
                Kind::Cache(_) => {
                    let core_width: u32 = cores_at
                        .map_or(1, |cores| tokens[cores + 1..].iter().map(|token| token.count).product());
                    (width > core_width).then_some(Level::Group)
                }
            };
            if level == Some(Level::Node) {
                root_level = Level::Cluster;
            }
            let parts = (0..total / width).map(|part| {
                let cpus = CpuSet::from_cpus(&(part * width..(part + 1) * width).collect::<Vec<_>>());
                (part, cpus)
            });
            if let Kind::Cache(cache_level) = token.kind {
                has_llc = true;
                if cache_level.is_some() || token.size_bytes.is_some() {
                    caches.extend(parts.clone().map(|(_, cpus)| Cache {
                        level: cache_level.unwrap_or(3),
                        cpus,
                        size_bytes: token.size_bytes,
                        line_bytes: token.line_bytes,
                    }));
                }
            }
            if let Some(level) = level {
                let os_index = |part| matches!(level, Level::Package | Level::Numa).then_some(part);
                groups.extend(parts.map(|(part, cpus)| Group { level, os_index: os_index(part), cpus }));
            }
        }
        let (mut machine, _) = Machine::from_groups(root_level, &CpuSet::first(total), groups);
        caches.sort();
        machine.caches = caches;
        machine.name = text.split_whitespace().collect::<Vec<_>>().join(" ");
        machine.source = "synthetic".into();
        Ok(machine)
    }

    /// The description that [`Machine::synthetic`] reads; `None` for a machine whose units of a
    /// level differ, whose CPUs are not numbered in tree order, or whose cores are unlike.
    pub fn to_synthetic(&self) -> Option<String> {
        let in_order = self.units(Level::Pu).enumerate().all(|(at, pu)| pu.os_index == Some(at as u32));
        if !in_order || !self.capacities.is_empty() || !self.kinds.is_empty() {
            return None;
        }
        let mut tokens: Vec<String> = Vec::new();
        let mut printed: Vec<u8> = Vec::new();
        let mut row: Vec<&Object> = vec![&self.root];
        while !row[0].children.is_empty() {
            let (count, level) = (row[0].children.len(), row[0].children[0].level);
            let same = |o: &&Object| {
                o.children.len() == count
                    && o.children.iter().all(|c| c.level == level && c.cpus.len() * count == o.cpus.len())
            };
            if !row.iter().all(same) {
                return None;
            }
            row = row.into_iter().flat_map(|object| &object.children).collect();
            let mut caches = self.caches_of(&row)?;
            caches.retain(|cache| !printed.contains(&cache.level));
            match level {
                Level::Numa if count == 1 && !tokens.is_empty() => tokens.push("[numa]".into()),
                Level::Llc | Level::Group if !caches.is_empty() => {
                    tokens.push(cache_token(caches[0], count));
                    printed.push(caches[0].level);
                }
                Level::Core | Level::Pu => {
                    let mut count = count;
                    for cache in caches {
                        tokens.push(cache_token(cache, count));
                        printed.push(cache.level);
                        count = 1;
                    }
                    tokens.push(format!("{}:{count}", token_of(level)));
                }
                _ => tokens.push(format!("{}:{count}", token_of(level))),
            }
        }
        let text = tokens.join(" ");
        // What the line cannot say (distances, a cache between two levels) must not get lost silently.
        let again = Machine::synthetic(&text).ok()?;
        let faithful =
            same(&again.root, &self.root) && again.caches == self.caches && self.distances.is_none();
        faithful.then_some(text)
    }

    /// The caches that belong to exactly the first unit of a row, outermost first; `None` if the
    /// row's units have different caches.
    fn caches_of(&self, row: &[&Object]) -> Option<Vec<&Cache>> {
        let of = |object: &Object| -> Vec<&Cache> {
            self.caches.iter().rev().filter(|cache| cache.cpus == object.cpus).collect()
        };
        let first = of(row[0]);
        let alike = |other: Vec<&Cache>| {
            other.len() == first.len()
                && other.iter().zip(&first).all(|(a, b)| {
                    (a.level, a.size_bytes, a.line_bytes) == (b.level, b.size_bytes, b.line_bytes)
                })
        };
        row[1..].iter().all(|object| alike(of(object))).then_some(first)
    }
}

/// The same tree, whatever numbers the kernel gives to packages and cores.
fn same(a: &Object, b: &Object) -> bool {
    a.level == b.level
        && a.cpus == b.cpus
        && a.children.len() == b.children.len()
        && a.children.iter().zip(&b.children).all(|(a, b)| same(a, b))
}

fn cache_token(cache: &Cache, count: usize) -> String {
    let mut attributes = Vec::new();
    if let Some(size) = cache.size_bytes {
        let text = match size {
            s if s > 0 && s % (1 << 20) == 0 => format!("{}MB", s >> 20),
            s if s > 0 && s % (1 << 10) == 0 => format!("{}KB", s >> 10),
            s => s.to_string(),
        };
        attributes.push(format!("size={text}"));
    }
    if let Some(line) = cache.line_bytes {
        attributes.push(format!("linesize={line}"));
    }
    let attributes =
        if attributes.is_empty() { String::new() } else { format!("({})", attributes.join(" ")) };
    format!("l{}:{count}{attributes}", cache.level)
}

fn token_of(level: Level) -> &'static str {
    match level {
        Level::Cluster => "cluster",
        Level::Node => "machine",
        Level::Box => "box",
        Level::Package => "pack",
        Level::Numa => "numa",
        Level::Llc => "llc",
        Level::Group => "group",
        Level::Core => "core",
        Level::Pu => "pu",
    }
}

fn kind_of(token: &str) -> Option<Kind> {
    Some(match token.to_ascii_lowercase().as_str() {
        "machine" => Kind::Plain(Level::Node),
        "box" | "vm" => Kind::Plain(Level::Box),
        "pack" | "package" | "socket" => Kind::Plain(Level::Package),
        "numa" | "node" | "numanode" => Kind::Plain(Level::Numa),
        "group" | "die" => Kind::Plain(Level::Group),
        "core" => Kind::Plain(Level::Core),
        "pu" => Kind::Plain(Level::Pu),
        "llc" => Kind::Cache(None),
        "l4" | "l4cache" => Kind::Cache(Some(4)),
        "l3" | "l3cache" => Kind::Cache(Some(3)),
        "l2" | "l2cache" => Kind::Cache(Some(2)),
        "l1" | "l1d" | "l1cache" | "l1dcache" => Kind::Cache(Some(1)),
        _ => return None,
    })
}

/// Words with blanks inside brackets kept together, each with its column from 1.
fn split(text: &str) -> Vec<(usize, String)> {
    let mut tokens: Vec<(usize, String)> = Vec::new();
    let mut depth = 0;
    let mut inside = false;
    for (at, c) in text.chars().enumerate() {
        if c.is_whitespace() && depth == 0 {
            inside = false;
            continue;
        }
        // `pack:4[numa]` is two words.
        if !inside || (c == '[' && depth == 0) {
            tokens.push((at + 1, String::new()));
            inside = true;
        }
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' if depth > 0 => depth -= 1,
            _ => {}
        }
        if let Some((_, token)) = tokens.last_mut() {
            token.push(c);
        }
    }
    tokens
}

fn parse(text: &str) -> Result<Vec<Token>, SyntheticError> {
    let mut tokens: Vec<Token> = Vec::new();
    for (column, text) in split(text) {
        let error = |offset: usize, what: String| SyntheticError { column: column + offset, what };
        let (head, attributes, closed) = match text.find(['(', '[']) {
            Some(at) if text.starts_with('[') || text[at..].starts_with('(') => {
                let close = if text[at..].starts_with('[') { ']' } else { ')' };
                let inner = text[at + 1..].strip_suffix(close);
                (&text[..at], inner.unwrap_or(""), inner.is_some())
            }
            _ => (text.as_str(), "", true),
        };
        if !closed {
            return Err(error(0, format!("'{text}' is not closed")));
        }
        let mut token = if text.starts_with('[') {
            let name = attributes.split('(').next().unwrap_or("").trim();
            if kind_of(name) != Some(Kind::Plain(Level::Numa)) {
                return Err(error(1, format!("only [numa] can be attached, not '{name}'")));
            }
            if tokens.is_empty() {
                return Err(error(0, "[numa] needs a word before it, or write numa:1".into()));
            }
            let kind = Kind::Plain(Level::Numa);
            Token { kind, count: 1, size_bytes: None, line_bytes: None, column }
        } else {
            let Some((name, count)) = head.split_once(':') else {
                return Err(error(0, format!("'{head}' is not of the form level:count")));
            };
            let Some(kind) = kind_of(name) else {
                let known = "machine, box, pack, numa, l3, llc, l2, group, core, pu";
                return Err(error(0, format!("'{name}' is not a level; known are {known}")));
            };
            let count = count.parse().ok().filter(|&count| count > 0).ok_or_else(|| {
                let offset = name.chars().count() + 1;
                error(offset, format!("'{count}' is not a count: a whole number from 1"))
            })?;
            Token { kind, count, size_bytes: None, line_bytes: None, column }
        };
        if !text.starts_with('[') {
            let offset = head.chars().count() + 1;
            read_attributes(&mut token, attributes).map_err(|what| error(offset, what))?;
        }
        if let Some(what) = misplaced(&tokens, &token) {
            return Err(error(0, what));
        }
        tokens.push(token);
    }
    if tokens.is_empty() {
        return Err(SyntheticError { column: 1, what: "the description is empty".into() });
    }
    Ok(tokens)
}

fn misplaced(before: &[Token], token: &Token) -> Option<String> {
    let is = |token: &Token, level| token.kind == Kind::Plain(level);
    let last = before.last()?;
    if is(last, Level::Pu) {
        return Some("nothing can stand below pu".into());
    }
    if before.iter().any(|other| other.kind == token.kind) {
        return Some("the level occurs twice".into());
    }
    if before.iter().any(|other| is(other, Level::Core)) && !is(token, Level::Pu) {
        return Some("below core only pu can stand".into());
    }
    let outer = before.iter().rev().find_map(|other| match other.kind {
        Kind::Cache(level) => level,
        Kind::Plain(_) => None,
    });
    if let (Some(outer), Kind::Cache(Some(inner))) = (outer, token.kind)
        && inner >= outer
    {
        return Some(format!("an L{inner} cache cannot stand below an L{outer} cache"));
    }
    None
}

fn read_attributes(token: &mut Token, text: &str) -> Result<(), String> {
    for attribute in text.split([' ', ',']).filter(|part| !part.is_empty()) {
        let Some((key, value)) = attribute.split_once('=') else {
            return Err(format!("'{attribute}' is not of the form name=value"));
        };
        match (key, token.kind) {
            ("size", Kind::Cache(_)) => {
                token.size_bytes =
                    Some(parse_size(value).ok_or_else(|| format!("'{value}' is not a size (6MB, 512KB)"))?);
            }
            ("linesize", Kind::Cache(_)) => {
                let line = value.parse().ok().filter(|&line| line > 0);
                token.line_bytes =
                    Some(line.ok_or_else(|| format!("'{value}' is not a line size in bytes"))?);
            }
            // hwloc writes how much memory a unit has; nothing here asks for it.
            ("memory", _) => {}
            _ => return Err(format!("'{key}' is not known here; known are size= and linesize= of caches")),
        }
    }
    Ok(())
}

/// `32768K`, `6MB`, `6MiB`, `512`: in bytes, powers of 1024.
pub(crate) fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().ok()?;
    let shift = match text[digits..].to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}
