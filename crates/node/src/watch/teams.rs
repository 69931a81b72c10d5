//! The teams of one program: its processes that run parallel regions, and how a place is divided
//! among them.
//!
//! A program may be one OpenMP process, an MPI job whose ranks each have a team, a parent with
//! workers, or a script that starts one after the other. Only those that live count, and of these
//! the ones that run regions share the place; who only waits for the others is left out.

use std::collections::BTreeMap;

use linux::affinity::Stated;
use linux::host;
use linux::page::{Owner, Page, PageDir, PageName, RigidReason, state};
use linux::{Process, Root};

use regions::Finding;

use super::member::Member;
use super::patience::{Patience, RegionSample};
use crate::resizing::Analyst;

/// Files looked at in a directory of pages, which is its user's to fill.
const MOST_FILES: usize = 10_000;

#[derive(Default)]
pub struct Teams {
    /// By name and number of the file: containers that come one after the other use the same name again.
    members: BTreeMap<(PageName, u64), Member>,
    /// Threads that the active teams were last asked to have together.
    asked_team: u32,
}

/// What a team needs to be given its share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Need {
    active: bool,
    /// Most threads that it can use; 0: not known.
    most: u32,
}

impl Teams {
    /// Takes up pages that appeared. Known ones stay open: exec keeps file and mapping, and a page
    /// whose process has ended still holds its last figures.
    /// `only`: the directory serves other programs, too, and these alone are looked for.
    pub fn scan_pages(&mut self, pages: &PageDir, only: Option<&[Process]>, living: &[Process], root: &Root) {
        let Ok(entries) = host::with(|host| host.names(pages.path())) else { return };
        let names = entries
            .into_iter()
            .take(MOST_FILES)
            .filter_map(|entry| Some((entry.name.to_str()?.parse::<PageName>().ok()?, entry.inode)));
        let new: Vec<_> = names.filter(|name| !self.members.contains_key(name)).collect();
        if new.is_empty() {
            return;
        }
        let only: Option<Vec<PageName>> =
            only.map(|only| only.iter().map(|process| PageName::of(process.pid, root)).collect());
        for (name, file) in new {
            if only.as_ref().is_some_and(|only| !only.contains(&name)) {
                continue;
            }
            // One that cannot be read yet is being made.
            let Ok(Some(page)) = pages.page(name) else { continue };
            let owner = page.owner(living, root);
            if only.is_some() && !matches!(owner, Owner::Is(_)) {
                continue;
            }
            let member = Member {
                page,
                owner,
                found_ns: linux::clock::now_ns(),
                lives: true,
                regions: 0,
                entered_ns: 0,
                patience: Patience::default(),
                asked: None,
                changes: 0,
                finding: None,
            };
            self.members.insert((name, file), member);
        }
    }

    /// Takes note of who lives and who entered regions since the last look. `let_run_ns` is how long the
    /// program was let run so far.
    pub fn sample(
        &mut self,
        living: &[Process],
        now_ns: u64,
        let_run_ns: u64,
        analyst: &Analyst,
        root: &Root,
    ) {
        for member in self.members.values_mut() {
            member.find_owner(living, now_ns, root);
            member.lives = !member.page.has(state::EXITED)
                && match &member.owner {
                    // A process may have started since `living` was found.
                    Owner::Is(process) => living.contains(process) || process.is_alive(root),
                    Owner::OneOf(_) => true,
                    Owner::Nobody => false,
                };
            let regions = member.page.regions();
            let wish = member.page.target();
            member.patience.sample(RegionSample {
                in_same_region: member.lives && regions == member.regions && member.page.is_in_region(),
                too_wide: wish != 0 && member.page.running() > wish,
                let_run_ns,
            });
            if regions != member.regions {
                (member.regions, member.entered_ns) = (regions, now_ns);
            }
            if member.runs_teams() {
                member.ask(analyst);
            }
        }
    }

    fn running(&self) -> impl Iterator<Item = &Member> {
        self.members.values().filter(|member| member.runs_teams())
    }

    /// Divides `target` threads among the teams, less `others` that run beside them in processes
    /// without one; 0: no wish.
    pub fn spread(&mut self, target: u32, others: u32, now_ns: u64) {
        // Who might not be heard is asked for nothing.
        let target = if self.is_uncertain() { 0 } else { target };
        let needs: Vec<Need> = self
            .running()
            .map(|member| Need { active: member.is_active(now_ns), most: member.page.max_team() })
            .collect();
        let shares = shares(target, others, &needs);
        let active = needs.iter().zip(&shares).filter(|(need, _)| need.active).map(|(_, share)| *share);
        self.asked_team = active.sum();
        for (member, share) in self.running().zip(shares) {
            if member.page.target() != share {
                member.page.set_target(share);
            }
        }
        // One whose runtime is just being loaded is to find its wish there.
        let early = self.members.values().filter(|member| member.lives && !member.has_runtime());
        for member in early.filter(|member| member.page.target() != target) {
            member.page.set_target(target);
        }
    }

    /// Threads that the program has when its teams obey; more than the place is wide where it has
    /// more processes than CPUs.
    pub fn asked_team(&self) -> u32 {
        self.asked_team
    }

    /// Threads that may run at this moment, cheaply. `None` where only a look tells.
    pub fn threads_now(&self) -> Option<u32> {
        let threads = |member: &Member| {
            member.may_run(match member.page.has(state::SPINS_LONG) {
                true => member.page.team(),
                false => member.page.running(),
            })
        };
        self.running().map(|member| threads(member).max(1)).reduce(|a, b| a + b)
    }

    /// Threads of the latest teams, whether they run now or wait.
    pub fn last_team(&self, now_ns: u64) -> Option<u32> {
        let active = self.running().filter(|member| member.regions > 0 && member.is_active(now_ns));
        let teams = active.map(|member| member.page.team().max(1)).reduce(|a, b| a + b);
        teams.or_else(|| self.running().filter(|m| m.regions > 0).map(|m| m.page.team().max(1)).max())
    }

    /// Greatest number of threads that all teams together can use, by what their runtimes say.
    pub fn max_team(&self, now_ns: u64) -> Option<u32> {
        let active: u32 = self
            .running()
            .filter(|member| member.is_active(now_ns))
            .map(|member| member.page.max_team())
            .sum();
        let one = self.members.values().map(|member| member.page.max_team()).max().unwrap_or(0);
        Some(active.max(one)).filter(|&threads| threads > 0)
    }

    /// Teams that run regions now: fewer threads than these the program cannot have.
    pub fn active(&self, now_ns: u64) -> u32 {
        self.running().filter(|member| member.regions > 0 && member.is_active(now_ns)).count() as u32
    }

    /// Whether a runtime read its CPU mask already, so that narrowing it now loses nothing later.
    pub fn has_runtime(&self) -> bool {
        self.members.values().any(Member::has_runtime)
    }

    /// Whether this process has a team that we see.
    pub fn has(&self, process: Process) -> bool {
        self.members.values().any(|member| member.runs_teams() && member.may_belong_to(process))
    }

    /// Whether a page may belong to one of several processes, none of them for certain: places are given to
    /// processes and wishes to pages, so that such a program is not resized.
    pub fn is_uncertain(&self) -> bool {
        self.running().any(|member| matches!(member.owner, Owner::OneOf(_)))
    }

    /// Whether this process's runtime has not run any region so far.
    pub fn is_silent(&self, process: Process) -> bool {
        let its = |member: &&Member| member.may_belong_to(process);
        self.running().find(its).is_some_and(|member| member.regions == 0 && !member.page.is_in_region())
    }

    pub fn has_foreign_runtime(&self) -> bool {
        let living = self.members.values().filter(|member| member.lives);
        living.map(|member| &member.page).any(|page| page.rigid().contains(&RigidReason::RuntimeUnknown))
    }

    /// Why the program is rigid, if any of its processes is; those that have ended count while no
    /// other runs teams.
    pub fn rigid(&self) -> Option<RigidReason> {
        let living = self.running().next().is_some();
        let counted = self.members.values().filter(|member| member.lives || !living);
        counted.flat_map(|member| member.page.rigid()).next()
    }

    /// What was found about those that run regions: what stands in the way of one stands in the way of all.
    pub fn finding(&self) -> Option<&Finding> {
        let found = || self.running().filter(|member| member.regions > 0).filter_map(|m| m.finding.as_ref());
        found().find(|finding| matches!(finding, Finding::Rigid(_))).or_else(|| found().next())
    }

    /// Whether one that runs regions may be resized.
    pub fn may_resize(&self) -> bool {
        self.running().any(|member| member.page.may_resize())
    }

    /// What the processes of which there are pages say of their threads' CPUs.
    pub fn stated_cpus(&self) -> BTreeMap<Process, Stated> {
        let living = self.members.values().filter(|member| member.lives);
        let stated = |page: &Page| Stated {
            follows_place: page.has(state::FOLLOWS_PLACE),
            chooses: page.has(state::SET_OWN_MASK),
            chose: page.bound_threads(),
        };
        let known = living.filter_map(|member| match member.owner {
            Owner::Is(process) => Some((process, stated(&member.page))),
            _ => None,
        });
        known.collect()
    }

    /// Whether a team of it has stayed in one region for longer than it is waited for.
    pub fn is_stuck_in_region(&self) -> bool {
        self.running().any(|member| member.patience.is_lost())
    }

    /// Regions that ended so far, by team size; `None` unless one thread of one process starts them all:
    /// others' rates are not those of a team.
    pub fn regions_by_size(&self) -> Option<BTreeMap<u32, u64>> {
        let mut running = self.running();
        let only = running.next().filter(|member| member.page.masters() <= 1)?;
        let sizes = || only.page.sizes().into_iter().map(|size| (size.threads, size.regions)).collect();
        running.next().is_none().then(sizes)
    }

    pub fn regions(&self) -> u64 {
        self.members.values().map(|member| member.page.regions()).sum()
    }
}

/// Equal parts for those that are active, no more than each can use; who is idle gets what it would
/// have as one more of them. Everybody has one thread at least.
fn shares(target: u32, others: u32, needs: &[Need]) -> Vec<u32> {
    if target == 0 {
        return vec![0; needs.len()];
    }
    let target = target.saturating_sub(others).max(1);
    let all_idle = needs.iter().all(|need| !need.active);
    let wants = |need: &Need| need.active || all_idle;
    let mut open: Vec<usize> = (0..needs.len()).filter(|&at| wants(&needs[at])).collect();
    let as_one_more = (target / (open.len() as u32 + 1)).max(1);
    let mut shares = vec![as_one_more; needs.len()];
    let mut left = target;
    // Who can use less than an equal part leaves the rest to the others.
    loop {
        let part = left / (open.len() as u32).max(1);
        let (full, rest): (Vec<usize>, Vec<usize>) =
            open.iter().partition(|&&at| needs[at].most != 0 && needs[at].most <= part);
        if full.is_empty() || open.is_empty() {
            break;
        }
        for at in full {
            shares[at] = needs[at].most;
            left -= needs[at].most;
        }
        open = rest;
    }
    let count = open.len() as u32;
    for (place, at) in open.into_iter().enumerate() {
        let one_more = u32::from((place as u32) < left % count);
        shares[at] = (left / count + one_more).max(1);
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs(text: &str) -> Vec<Need> {
        let need = |word: &str| Need {
            active: !word.starts_with('-'),
            most: word.trim_start_matches('-').parse().unwrap(),
        };
        text.split_whitespace().map(need).collect()
    }

    #[test]
    fn a_place_is_divided_among_the_teams_that_run_regions() {
        for (target, others, teams, expected) in [
            (8, 0, "8", vec![8]),
            (8, 0, "8 8", vec![4, 4]),
            (8, 0, "0 0 0", vec![3, 3, 2]),
            // Who can use only two threads leaves the others more.
            (8, 0, "2 8 8", vec![2, 3, 3]),
            (8, 0, "1 1", vec![1, 1]),
            // A parent that only waits for its workers.
            (8, 0, "-8 8 8", vec![2, 4, 4]),
            // Between all regions: as if all were about to begin.
            (8, 0, "-8 -8", vec![4, 4]),
            // Two workers without teams run beside.
            (8, 2, "8", vec![6]),
            (2, 5, "8", vec![1]),
            // More processes than CPUs: one thread each, and no more.
            (2, 0, "4 4 4", vec![1, 1, 1]),
            (0, 0, "4 4", vec![0, 0]),
            (4, 0, "", vec![]),
        ] {
            assert_eq!(shares(target, others, &needs(teams)), expected, "{target} {others} {teams}");
        }
    }

    #[test]
    fn no_division_exceeds_the_target_or_any_need() {
        for target in 1..20_u32 {
            for teams in ["3 1 7", "0 5", "2 2 2 2", "9", "-4 1 1 0"] {
                let needs = needs(teams);
                let shares = shares(target, 0, &needs);
                let active: Vec<_> = needs.iter().zip(&shares).filter(|(need, _)| need.active).collect();
                let sum: u32 = active.iter().map(|(_, share)| **share).sum();
                assert!(sum <= target.max(active.len() as u32), "{target} {teams}: {shares:?}");
                assert!(active.iter().all(|(need, share)| need.most == 0 || **share <= need.most));
            }
        }
    }
}
