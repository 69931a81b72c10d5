//! What the CPUs that threads chose for themselves mean for their program as a whole.

use topology::CpuSet;

/// The CPUs that a program's threads chose themselves, or whoever started them for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Chosen {
    /// None of them chose any.
    #[default]
    Nothing,
    /// All chose the same: a program within these CPUs.
    Same(CpuSet),
    /// They chose one by one: each keeps what it chose.
    Each {
        /// Every CPU that any of them chose.
        cpus: CpuSet,
        /// Whether no thread is left that chose nothing.
        all: bool,
    },
}

impl Chosen {
    /// Of the choices of its threads; `None` of one that chose nothing.
    pub fn of<'a>(threads: impl IntoIterator<Item = Option<&'a CpuSet>>) -> Chosen {
        let (mut cpus, mut all, mut same) = (CpuSet::new(), true, true);
        let mut first: Option<&CpuSet> = None;
        for thread in threads {
            let Some(own) = thread else {
                all = false;
                continue;
            };
            same &= *first.get_or_insert(own) == own;
            cpus.add_all(own);
        }
        match first {
            None => Chosen::Nothing,
            Some(_) if same && all => Chosen::Same(cpus),
            Some(_) => Chosen::Each { cpus, all },
        }
    }

    /// The CPUs to which the program restricts itself, if it does.
    pub fn within(&self) -> Option<&CpuSet> {
        match self {
            Chosen::Same(cpus) | Chosen::Each { cpus, all: true } => Some(cpus),
            Chosen::Nothing | Chosen::Each { all: false, .. } => None,
        }
    }

    /// Whether its threads are bound one by one, so that its place must hold the CPUs of each.
    pub fn is_each(&self) -> bool {
        matches!(self, Chosen::Each { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_choices_are_one_restriction_or_a_binding() {
        let of = |text: &str| {
            let own: Vec<Option<CpuSet>> =
                text.split_whitespace().map(|own| (own != "-").then(|| own.parse().unwrap())).collect();
            Chosen::of(own.iter().map(Option::as_ref))
        };
        let cpus = |text: &str| text.parse::<CpuSet>().unwrap();
        let each = |text: &str, all| Chosen::Each { cpus: cpus(text), all };
        assert_eq!(of(""), Chosen::Nothing);
        assert_eq!(of("- - -"), Chosen::Nothing);
        assert_eq!(of("0-3 0-3"), Chosen::Same(cpus("0-3")));
        assert_eq!(of("1"), Chosen::Same(cpus("1")));
        assert_eq!(of("0 1 2"), each("0-2", true));
        // A thread that is free needs the CPUs beyond those that another chose.
        assert_eq!(of("- 1"), each("1", false));
        assert_eq!(of("0 - 1"), each("0-1", false));
        assert_eq!(each("0-2", true).within(), Some(&cpus("0-2")));
        assert_eq!(each("0-2", false).within(), None);
    }
}
