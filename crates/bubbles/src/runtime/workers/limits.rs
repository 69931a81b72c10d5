//! Which processors a run uses.

/// Which processors may be used, by whose will.
pub(crate) struct Limits {
    /// Those that have a kernel thread at all: the first so many.
    pub there: usize,
    /// The program's own choice.
    pub wanted: Vec<bool>,
    /// What the node leaves to the program.
    pub granted: Vec<bool>,
}

impl Limits {
    pub fn new(width: usize) -> Limits {
        Limits { there: width, wanted: vec![true; width], granted: vec![true; width] }
    }

    /// Those that all agree on; where there is none, what is granted, and that failing what is there.
    pub fn usable(&self) -> Vec<bool> {
        let among = |usable: &dyn Fn(usize) -> bool| -> Option<Vec<bool>> {
            let all: Vec<bool> = (0..self.wanted.len()).map(|at| at < self.there && usable(at)).collect();
            all.contains(&true).then_some(all)
        };
        among(&|at| self.wanted[at] && self.granted[at])
            .or_else(|| among(&|at| self.granted[at]))
            .or_else(|| among(&|_| true))
            .expect("one worker is always there")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_limits_processors_and_always_leaves_one() {
        let flags = |text: &str| text.chars().map(|c| c == '1').collect::<Vec<_>>();
        for (there, wanted, granted, expected) in [
            (4, "1111", "1111", "1111"),
            (4, "1100", "1111", "1100"),
            (4, "1110", "0111", "0110"),
            (4, "1100", "0011", "0011"),
            (2, "1111", "1111", "1100"),
            (2, "0011", "1111", "1100"),
            (2, "1111", "0011", "1100"),
        ] {
            let limits = Limits { there, wanted: flags(wanted), granted: flags(granted) };
            assert_eq!(limits.usable(), flags(expected), "{there} {wanted} {granted}");
        }
    }
}
