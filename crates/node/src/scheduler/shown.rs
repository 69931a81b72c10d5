//! What a program is planned as, by what it has shown.

use plan::App;
use protocol::News;
use workload::{Demand, Malleability};

use crate::watch::{Nature, Sight};

/// What is known of a program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown<'a> {
    /// What it was planned as so far.
    pub known: &'a App,
    /// What its user says.
    pub declared: &'a Demand,
    /// What it turned out to be when it ran before.
    pub expected: Option<&'a Demand>,
    pub sight: &'a Sight,
}

/// What it is planned as from now on, and what of that is news for people.
pub(super) fn seen(shown: &Shown<'_>) -> (App, Option<News>) {
    let Shown { known, declared, expected, sight } = *shown;
    let (mut seen, mut news) = (known.clone(), None);
    seen.demand = declared.clone();
    let was_rigid = known.demand.malleability == Malleability::Rigid;
    let expects_rigid = expected.is_some_and(|demand| demand.malleability == Malleability::Rigid);
    match &sight.nature {
        Nature::Rigid(_) if broken!(RigidTakenForResizable) => {}
        Nature::Rigid(_) => {
            seen.demand.malleability = Malleability::Rigid;
            // The widest team it ever ran is the place that it needs, or what its user knows of it.
            let stated = declared.max_threads.filter(|_| declared.malleability == Malleability::Rigid);
            let width = sight.team.max(known.team).max(stated);
            seen.demand.max_threads = declared.max_threads.or(width);
            seen.team = width;
        }
        // With the team that it has, for as long as it keeps that.
        Nature::StuckInRegion(why) => {
            if !was_rigid {
                let threads = sight.team.unwrap_or(1);
                news = Some(News::StuckInRegion { app: known.id.clone(), threads, why: why.clone() });
            }
            seen.demand.malleability = Malleability::Rigid;
            seen.demand.max_threads = sight.team;
            seen.team = sight.team;
        }
        // It has a runtime, and last time used none of it.
        Nature::Resizable if sight.regions == 0 && expects_rigid => {
            seen.demand = expected.cloned().unwrap_or(seen.demand);
        }
        Nature::Resizable => {
            if was_rigid {
                news = Some(News::Resizable { app: known.id.clone() });
            }
            let max_team = sight.max_team;
            seen.demand.max_threads = declared.max_threads.min(max_team).or(max_team);
            let most = seen.demand.max_threads.unwrap_or(sight.fewest);
            seen.demand.min_threads = seen.demand.min_threads.max(sight.fewest).min(most);
            // A team on its way to the wish is no news; the actuator waits for it itself.
            seen.team =
                sight.team.map(|team| known.team.unwrap_or(team).max(team).min(max_team.unwrap_or(team)));
        }
        // Until it shows what it is, it counts as what it was last time.
        Nature::Starting | Nature::Serial => {
            seen.demand = expected.cloned().unwrap_or(seen.demand);
        }
    }
    (seen, news)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sight(nature: Nature) -> Sight {
        Sight {
            nature,
            finding: None,
            team: Some(3),
            max_team: Some(8),
            fewest: 2,
            regions: 1,
            cpu_time_ns: 0,
            stopped: false,
            waits_passively: false,
            protected: None,
            foreground: false,
            ended: false,
        }
    }

    fn app(text: &str) -> App {
        text.parse().unwrap()
    }

    fn demand_of(known: &str, declared: &str, expected: Option<&str>, sight: &Sight) -> (App, Option<News>) {
        let (known, declared) = (app(known), app(declared).demand);
        let expected = expected.map(|text| app(text).demand);
        seen(&Shown { known: &known, declared: &declared, expected: expected.as_ref(), sight })
    }

    #[test]
    fn a_rigid_program_needs_the_widest_team_it_ever_ran() {
        let rigid = sight(Nature::Rigid("so".into()));
        let (seen, news) = demand_of("a team 5", "a", None, &rigid);
        assert_eq!((seen.team, seen.demand.max_threads, news.is_none()), (Some(5), Some(5), true));
        assert_eq!(seen.demand.malleability, Malleability::Rigid);
        let (seen, _) = demand_of("a", "a rigid max 7", None, &rigid);
        assert_eq!((seen.team, seen.demand.max_threads), (Some(7), Some(7)), "its user knows of it");
        let unseen = Sight { team: None, ..rigid };
        assert_eq!(demand_of("a", "a", None, &unseen).0.team, None);
    }

    #[test]
    fn one_that_stays_in_its_region_is_rigid_and_said_so_once() {
        let stays = sight(Nature::StuckInRegion("so".into()));
        let (seen, news) = demand_of("a team 5", "a", None, &stays);
        assert_eq!((seen.team, seen.demand.max_threads), (Some(3), Some(3)));
        assert!(matches!(news, Some(News::StuckInRegion { threads: 3, .. })));
        assert!(demand_of("a rigid max 3 team 3", "a", None, &stays).1.is_none());
    }

    #[test]
    fn a_resizable_program_is_planned_between_its_bounds() {
        let resizable = sight(Nature::Resizable);
        let (seen, news) = demand_of("a rigid max 3 team 3", "a", None, &resizable);
        assert_eq!((seen.demand.min_threads, seen.demand.max_threads), (2, Some(8)));
        assert!(matches!(news, Some(News::Resizable { .. })));
        let (seen, news) = demand_of("a team 9", "a max 4", None, &resizable);
        assert_eq!((seen.demand.max_threads, seen.team, news.is_none()), (Some(4), Some(8), true));
        let narrow = Sight { max_team: Some(1), ..resizable };
        let (seen, _) = demand_of("a", "a", None, &narrow);
        assert_eq!((seen.demand.min_threads, seen.demand.max_threads), (1, Some(1)), "never above the most");
    }

    #[test]
    fn until_it_shows_what_it_is_it_counts_as_last_time() {
        let expected = Some("a rigid max 6");
        for sight in
            [sight(Nature::Starting), sight(Nature::Serial), Sight { regions: 0, ..sight(Nature::Resizable) }]
        {
            let (seen, _) = demand_of("a", "a", expected, &sight);
            assert_eq!(seen.demand.malleability, Malleability::Rigid, "{:?}", sight.nature);
            assert_eq!(seen.demand.max_threads, Some(6));
        }
        assert_eq!(demand_of("a", "a max 5", None, &sight(Nature::Starting)).0.demand.max_threads, Some(5));
    }
}
