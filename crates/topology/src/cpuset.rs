//! A set of processing units by their operating-system index (`os_index`).

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Highest `os_index` + 1 that a set accepts; far above any Linux build (`NR_CPUS` ≤ 8192),
/// low enough that a typing error in a CPU list cannot allocate gigabytes.
pub const MAX_CPUS: u32 = 65_536;

/// A set of PUs by `os_index`, written like the kernel's CPU lists: `0-3,8,10-11`.
///
/// Holds only the words from its lowest to its highest member: on a big machine most sets are small
/// and near the top as often as near 0. Sets that reach over up to 256 CPUs need no memory of their own.
#[derive(Clone, Default)]
pub struct CpuSet {
    /// Number of the first word held; 0 for the empty set.
    base: usize,
    /// Invariant: neither the first nor the last word is zero, so that equal sets are equal values.
    words: Words,
}

/// Words that are held in the set itself.
const FEW: usize = 4;

/// Invariant: `Few` up to that many words and `Many` beyond; unused words of `Few` are 0.
#[derive(Clone)]
enum Words {
    Few(usize, [u64; FEW]),
    Many(Vec<u64>),
}

impl Words {
    const EMPTY: Words = Words::Few(0, [0; FEW]);

    #[inline]
    fn zeros(count: usize) -> Words {
        if count <= FEW { Words::Few(count, [0; FEW]) } else { Words::Many(vec![0; count]) }
    }

    #[inline]
    fn from_fn(count: usize, word: impl Fn(usize) -> u64) -> Words {
        let mut words = Words::zeros(count);
        words.iter_mut().enumerate().for_each(|(index, here)| *here = word(index));
        words
    }
}

impl Default for Words {
    fn default() -> Words {
        Words::EMPTY
    }
}

impl std::ops::Deref for Words {
    type Target = [u64];

    #[inline]
    fn deref(&self) -> &[u64] {
        match self {
            Words::Few(count, words) => &words[..*count],
            Words::Many(words) => words,
        }
    }
}

impl std::ops::DerefMut for Words {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u64] {
        match self {
            Words::Few(count, words) => &mut words[..*count],
            Words::Many(words) => words,
        }
    }
}

impl PartialEq for CpuSet {
    fn eq(&self, other: &CpuSet) -> bool {
        self.base == other.base && self.words[..] == other.words[..]
    }
}

impl Eq for CpuSet {}

impl Hash for CpuSet {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.base, &self.words[..]).hash(state);
    }
}

impl PartialOrd for CpuSet {
    fn partial_cmp(&self, other: &CpuSet) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for CpuSet {
    fn cmp(&self, other: &CpuSet) -> Ordering {
        (self.base, &self.words[..]).cmp(&(other.base, &other.words[..]))
    }
}

/// Why a text is no list of CPUs.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("'{text}' is not a CPU list: {why} (write for example 0-3,8)")]
pub struct ParseCpuSetError {
    /// The whole list, without blanks around it.
    pub text: String,
    /// Which part of it is wrong, and how.
    pub why: String,
}

impl CpuSet {
    /// The empty set.
    pub const fn new() -> Self {
        CpuSet { base: 0, words: Words::EMPTY }
    }

    /// The CPUs `0..count`.
    pub fn first(count: u32) -> Self {
        (0..count).collect()
    }

    /// The set of these CPUs, in any order; one allocation at most, where a set that is collected may need one for each
    /// time that it grows.
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
        let mut words = Words::zeros(highest as usize / 64 + 1 - base);
        for &cpu in cpus {
            words[cpu as usize / 64 - base] |= 1 << (cpu % 64);
        }
        CpuSet { base, words }
    }

    /// `first` to `last`, both included: whole words at a time, as partitions mostly are.
    fn range(first: u32, last: u32) -> CpuSet {
        assert!(last < MAX_CPUS, "CPU {last} is beyond {MAX_CPUS}");
        let (base, end) = (first as usize / 64, last as usize / 64);
        let mut words = Words::from_fn(end + 1 - base, |_| u64::MAX);
        words[0] &= u64::MAX << (first % 64);
        words[end - base] &= u64::MAX >> (63 - last % 64);
        CpuSet { base, words }
    }

    /// Adds a CPU, which may be a member already. Panics at [`MAX_CPUS`] and above.
    pub fn insert(&mut self, cpu: u32) {
        assert!(cpu < MAX_CPUS, "CPU {cpu} is beyond {MAX_CPUS}");
        let word = cpu as usize / 64;
        if self.words.is_empty() {
            (self.base, self.words) = (word, Words::zeros(1));
        } else if word < self.base || word >= self.end() {
            let (base, end) = (self.base.min(word), self.end().max(word + 1));
            self.words = Words::from_fn(end - base, |index| self.word(base + index));
            self.base = base;
        }
        self.words[word - self.base] |= 1 << (cpu % 64);
    }

    /// Takes a CPU out; nothing happens where it is no member.
    pub fn remove(&mut self, cpu: u32) {
        if self.contains(cpu) {
            let (gone, bit) = (cpu as usize / 64, 1 << (cpu % 64));
            *self = CpuSet::from_words(self.base..self.end(), |index| {
                self.word(index) & !(if index == gone { bit } else { 0 })
            });
        }
    }

    /// Whether a CPU is a member; numbers from [`MAX_CPUS`] on never are.
    #[inline]
    pub fn contains(&self, cpu: u32) -> bool {
        self.word(cpu as usize / 64) >> (cpu % 64) & 1 == 1
    }

    #[inline]
    fn word(&self, index: usize) -> u64 {
        index.checked_sub(self.base).and_then(|index| self.words.get(index)).copied().unwrap_or(0)
    }

    /// Number of the word after the last one held.
    #[inline]
    fn end(&self) -> usize {
        self.base + self.words.len()
    }

    /// The set of these words; the first and the last may be 0.
    #[inline]
    fn from_words(range: std::ops::Range<usize>, word: impl Fn(usize) -> u64) -> CpuSet {
        let std::ops::Range { start: mut base, mut end } = range;
        while base < end && word(base) == 0 {
            base += 1;
        }
        while base < end && word(end - 1) == 0 {
            end -= 1;
        }
        if base >= end {
            return CpuSet::new();
        }
        CpuSet { base, words: Words::from_fn(end - base, |index| word(base + index)) }
    }

    /// How many members it has, counted anew at every call.
    #[inline]
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether it has no member.
    #[inline]
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

    /// The member with the lowest `os_index`; `None` of the empty set.
    pub fn lowest(&self) -> Option<u32> {
        self.iter().next()
    }

    /// The member with the highest `os_index`; `None` of the empty set.
    pub fn highest(&self) -> Option<u32> {
        self.words.last().map(|word| self.end() as u32 * 64 - 1 - word.leading_zeros())
    }

    /// The CPUs that are in at least one of the two.
    #[inline]
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
    #[inline]
    pub fn add_all(&mut self, other: &CpuSet) {
        if self.is_empty() || other.base < self.base || other.end() > self.end() {
            *self = self.union(other);
            return;
        }
        let first = other.base - self.base;
        self.words[first..].iter_mut().zip(other.words.iter()).for_each(|(mine, theirs)| *mine |= theirs);
    }

    /// The CPUs that are in both.
    #[inline]
    pub fn intersection(&self, other: &CpuSet) -> CpuSet {
        CpuSet::from_words(self.common_words(other), |index| self.word(index) & other.word(index))
    }

    /// The members that `other` lacks.
    #[inline]
    pub fn difference(&self, other: &CpuSet) -> CpuSet {
        CpuSet::from_words(self.base..self.end(), |index| self.word(index) & !other.word(index))
    }

    #[inline]
    fn common_words(&self, other: &CpuSet) -> std::ops::Range<usize> {
        self.base.max(other.base)..self.end().min(other.end())
    }

    /// Whether `other` has all members of this one; true of the empty set.
    #[inline]
    pub fn is_subset(&self, other: &CpuSet) -> bool {
        (self.base..self.end()).all(|index| self.word(index) & !other.word(index) == 0)
    }

    /// Whether the two have a member in common; false where one of them is empty.
    #[inline]
    pub fn intersects(&self, other: &CpuSet) -> bool {
        self.common_words(other).any(|index| self.word(index) & other.word(index) != 0)
    }

    /// How many members both have.
    #[inline]
    pub fn common_len(&self, other: &CpuSet) -> usize {
        self.common_words(other)
            .map(|index| (self.word(index) & other.word(index)).count_ones() as usize)
            .sum()
    }

    /// The `count` lowest members (all, where there are fewer).
    pub fn take(&self, count: usize) -> CpuSet {
        self.iter().take(count).collect()
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
