//! A set of processing units by their operating-system index (`os_index`).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Highest `os_index` + 1 that a set accepts; far above any Linux build (`NR_CPUS` ≤ 8192),
/// low enough that a typing error in a CPU list cannot allocate gigabytes.
pub const MAX_CPUS: u32 = 65_536;

/// A set of PUs by `os_index`, written like the kernel's CPU lists: `0-3,8,10-11`.
///
/// Holds only the words from its lowest to its highest member: on a big machine most sets are small
/// and near the top as often as near 0.
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CpuSet {
    /// Number of the first word held; 0 for the empty set.
    base: usize,
    /// Invariant: neither the first nor the last word is zero, so that equal sets are equal values.
    words: Vec<u64>,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("'{text}' is not a CPU list: {why} (write for example 0-3,8)")]
pub struct ParseCpuSetError {
    pub text: String,
    pub why: String,
}

impl CpuSet {
    pub const fn new() -> Self {
        CpuSet { base: 0, words: Vec::new() }
    }

    /// The CPUs `0..count`.
    pub fn first(count: u32) -> Self {
        (0..count).collect()
    }

    /// The set of these CPUs, in any order; one allocation, unlike collecting.
    pub fn from_cpus(cpus: &[u32]) -> Self {
        if let [first, .., last] = cpus
            && cpus.windows(2).all(|pair| pair[1] == pair[0].wrapping_add(1))
            && first < last
        {
            return CpuSet::range(*first, *last);
        }
        let (Some(&lowest), Some(&highest)) = (cpus.iter().min(), cpus.iter().max()) else {
            return CpuSet::new();
        };
        assert!(highest < MAX_CPUS, "CPU {highest} is beyond {MAX_CPUS}");
        let base = lowest as usize / 64;
        let mut words = vec![0; highest as usize / 64 + 1 - base];
        for &cpu in cpus {
            words[cpu as usize / 64 - base] |= 1 << (cpu % 64);
        }
        CpuSet { base, words }
    }

    /// `first` to `last`, both included: whole words at a time, as partitions mostly are.
    fn range(first: u32, last: u32) -> CpuSet {
        assert!(last < MAX_CPUS, "CPU {last} is beyond {MAX_CPUS}");
        let (base, end) = (first as usize / 64, last as usize / 64);
        let mut words = vec![u64::MAX; end + 1 - base];
        words[0] &= u64::MAX << (first % 64);
        words[end - base] &= u64::MAX >> (63 - last % 64);
        CpuSet { base, words }
    }

    pub fn insert(&mut self, cpu: u32) {
        assert!(cpu < MAX_CPUS, "CPU {cpu} is beyond {MAX_CPUS}");
        let word = cpu as usize / 64;
        if self.words.is_empty() {
            self.base = word;
        }
        if word < self.base {
            self.words.splice(..0, std::iter::repeat_n(0, self.base - word));
            self.base = word;
        }
        if word >= self.end() {
            self.words.resize(word + 1 - self.base, 0);
        }
        self.words[word - self.base] |= 1 << (cpu % 64);
    }

    pub fn remove(&mut self, cpu: u32) {
        let word = (cpu as usize / 64).checked_sub(self.base);
        if let Some(word) = word.and_then(|word| self.words.get_mut(word)) {
            *word &= !(1 << (cpu % 64));
        }
        self.trim();
    }

    pub fn contains(&self, cpu: u32) -> bool {
        self.word(cpu as usize / 64) >> (cpu % 64) & 1 == 1
    }

    fn word(&self, index: usize) -> u64 {
        index.checked_sub(self.base).and_then(|index| self.words.get(index)).copied().unwrap_or(0)
    }

    /// Number of the word after the last one held.
    fn end(&self) -> usize {
        self.base + self.words.len()
    }

    fn from_words(range: std::ops::Range<usize>, word: impl Fn(usize) -> u64) -> CpuSet {
        let mut set = CpuSet { base: range.start, words: range.map(word).collect() };
        set.trim();
        set
    }

    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The members in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.words.iter().enumerate().flat_map(move |(index, &word)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                let bit = (rest != 0).then(|| rest.trailing_zeros())?;
                rest &= rest - 1;
                Some((self.base + index) as u32 * 64 + bit)
            })
        })
    }

    pub fn lowest(&self) -> Option<u32> {
        self.iter().next()
    }

    pub fn highest(&self) -> Option<u32> {
        self.words.last().map(|word| self.end() as u32 * 64 - 1 - word.leading_zeros())
    }

    pub fn union(&self, other: &CpuSet) -> CpuSet {
        match (self.is_empty(), other.is_empty()) {
            (_, true) => self.clone(),
            (true, _) => other.clone(),
            _ => {
                let range = self.base.min(other.base)..self.end().max(other.end());
                CpuSet::from_words(range, |index| self.word(index) | other.word(index))
            }
        }
    }

    /// The union, in place.
    pub fn add_all(&mut self, other: &CpuSet) {
        if self.is_empty() || other.base < self.base || other.end() > self.end() {
            *self = self.union(other);
            return;
        }
        for (index, word) in (other.base..).zip(&other.words) {
            self.words[index - self.base] |= word;
        }
    }

    pub fn intersection(&self, other: &CpuSet) -> CpuSet {
        CpuSet::from_words(self.common_words(other), |index| self.word(index) & other.word(index))
    }

    pub fn difference(&self, other: &CpuSet) -> CpuSet {
        CpuSet::from_words(self.base..self.end(), |index| self.word(index) & !other.word(index))
    }

    fn common_words(&self, other: &CpuSet) -> std::ops::Range<usize> {
        self.base.max(other.base)..self.end().min(other.end())
    }

    pub fn is_subset(&self, other: &CpuSet) -> bool {
        (self.base..self.end()).all(|index| self.word(index) & !other.word(index) == 0)
    }

    pub fn intersects(&self, other: &CpuSet) -> bool {
        self.common_words(other).any(|index| self.word(index) & other.word(index) != 0)
    }

    /// The `count` lowest members (all, where there are fewer).
    pub fn take(&self, count: usize) -> CpuSet {
        self.iter().take(count).collect()
    }

    fn trim(&mut self) {
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
        let zeros = self.words.iter().take_while(|&&word| word == 0).count();
        self.words.drain(..zeros);
        self.base = if self.words.is_empty() { 0 } else { self.base + zeros };
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        let mut set = CpuSet::new();
        for cpu in cpus {
            set.insert(cpu);
        }
        set
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut separator = "";
        while let Some(start) = cpus.next() {
            let mut end = start;
            while cpus.peek() == Some(&(end + 1)) {
                end += 1;
                cpus.next();
            }
            write!(f, "{separator}{start}")?;
            if end > start {
                write!(f, "-{end}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

impl FromStr for CpuSet {
    type Err = ParseCpuSetError;

    /// Reads the kernel's list form; blanks around the list and its parts are allowed, and
    /// the empty list is the empty set (as in `cpuset.cpus`).
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = |why: String| ParseCpuSetError { text: text.trim().to_owned(), why };
        let number = |part: &str| -> Result<u32, ParseCpuSetError> {
            let cpu: u32 =
                part.trim().parse().map_err(|_| error(format!("'{}' is not a number", part.trim())))?;
            if cpu >= MAX_CPUS {
                return Err(error(format!("CPU {cpu} is beyond {}", MAX_CPUS - 1)));
            }
            Ok(cpu)
        };
        let mut set = CpuSet::new();
        if text.trim().is_empty() {
            return Ok(set);
        }
        for part in text.split(',') {
            let (first, last) = match part.split_once('-') {
                Some((first, last)) => (number(first)?, number(last)?),
                None => (number(part)?, number(part)?),
            };
            if last < first {
                return Err(error(format!("the range {first}-{last} runs backwards")));
            }
            (first..=last).for_each(|cpu| set.insert(cpu));
        }
        Ok(set)
    }
}

impl Serialize for CpuSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CpuSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
