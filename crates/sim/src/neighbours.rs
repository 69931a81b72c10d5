//! Who stands where: programs that share a mixture, and programs that share a domain and feel or cause
//! contention there; and whose rates must be made anew for that.

use crate::standing::NONE;
use crate::world::Program;

/// Program, and which of its leaves.
pub type Standing = (usize, usize);

#[derive(Clone, Debug, Default)]
pub struct Neighbours {
    /// In each mixture.
    pub mixtures: Vec<Vec<Standing>>,
    /// In each domain.
    pub occupants: Vec<Vec<Standing>>,
}

impl Neighbours {
    /// Nobody anywhere, on a machine of so many domains; the lists keep their memory.
    pub fn clear(&mut self, domains: usize) {
        self.occupants.resize(domains, Vec::new());
        self.occupants.iter_mut().chain(&mut self.mixtures).for_each(Vec::clear);
    }

    /// A program stands nowhere any more.
    pub fn remove(&mut self, at: usize) {
        self.occupants
            .iter_mut()
            .chain(&mut self.mixtures)
            .for_each(|all| all.retain(|&(program, _)| program != at));
    }

    /// A leaf of a program stands where it says.
    pub fn add(&mut self, at: usize, number: usize, program: &Program) {
        let leaf = &program.leaves[number];
        if leaf.around.mixture != NONE {
            let mixture = leaf.around.mixture as usize;
            if self.mixtures.len() <= mixture {
                self.mixtures.resize(mixture + 1, Vec::new());
            }
            self.mixtures[mixture].push((at, number));
        }
        if program.contends {
            for &(domain, _) in &leaf.domains {
                self.occupants[domain as usize].push((at, number));
            }
        }
    }
}

/// Programs to which something was done, each once.
pub struct Stale {
    pub programs: Vec<usize>,
    pub is_stale: Vec<bool>,
    /// Mixtures all of whose programs are stale already.
    mixtures: Flags,
    /// The same for domains.
    domains: Flags,
}

/// True or false for each number; false for those that were never asked for.
#[derive(Default)]
struct Flags(Vec<bool>);

impl Flags {
    /// Sets one; whether it was not set before.
    fn set(&mut self, number: usize) -> bool {
        if self.0.len() <= number {
            self.0.resize(number + 1, false);
        }
        !std::mem::replace(&mut self.0[number], true)
    }
}

impl Stale {
    /// None of so many.
    pub fn of(programs: usize) -> Stale {
        let (mixtures, domains) = Default::default();
        Stale { programs: Vec::new(), is_stale: vec![false; programs], mixtures, domains }
    }

    pub fn mark(&mut self, at: usize) {
        if !std::mem::replace(&mut self.is_stale[at], true) {
            self.programs.push(at);
        }
    }

    /// Marks everybody in this mixture.
    pub fn mark_mixture(&mut self, mixture: usize, neighbours: &Neighbours) {
        if self.mixtures.set(mixture) {
            neighbours.mixtures.get(mixture).into_iter().flatten().for_each(|&(at, _)| self.mark(at));
        }
    }

    /// Marks everybody in this domain.
    pub fn mark_domain(&mut self, domain: usize, neighbours: &Neighbours) {
        if self.domains.set(domain) {
            neighbours.occupants[domain].iter().for_each(|&(at, _)| self.mark(at));
        }
    }

    /// Other programs may be in mixtures and domains now, or those that are there may not be stale any more.
    pub fn neighbours_change(&mut self) {
        self.mixtures.0.clear();
        self.domains.0.clear();
    }
}
