//! What a program is planned as, by what it has shown.

use plan::App;
use protocol::News;
use workload::{Demand, Malleability};

use crate::watch::{Nature, Observation};

/// What is known of a program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown<'a> {
    /// What it was planned as so far.
    pub known: &'a App,
    /// What its user says.
    pub declared: &'a Demand,
    /// What it turned out to be when it ran before.
    pub expected: Option<&'a Demand>,
    pub observation: &'a Observation,
}

/// What it is planned as from now on, and what of that is news for people.
pub(super) fn planned_app(shown: &Shown<'_>) -> (App, Option<News>) {
    let Shown { known, declared, expected, observation } = *shown;
    let (mut app, mut news) = (known.clone(), None);
    app.demand = declared.clone();
    let was_rigid = known.demand.malleability == Malleability::Rigid;
    let expects_rigid = expected.is_some_and(|demand| demand.malleability == Malleability::Rigid);
    match &observation.nature {
        Nature::Rigid(_) if broken!(RigidTakenForResizable) => {}
        Nature::Rigid(_) => {
            app.demand.malleability = Malleability::Rigid;
            // The widest team it ever ran is the place that it needs, or what its user knows of it.
            let stated = declared.max_threads.filter(|_| declared.malleability == Malleability::Rigid);
            let width = observation.team.max(known.team).max(stated);
            app.demand.max_threads = declared.max_threads.or(width);
            app.team = width;
        }
        // With the team that it has, for as long as it keeps that.
        Nature::StuckInRegion(why) => {
            if !was_rigid {
                let threads = observation.team.unwrap_or(1);
                news = Some(News::StuckInRegion { app: known.id.clone(), threads, why: why.clone() });
            }
            app.demand.malleability = Malleability::Rigid;
            app.demand.max_threads = observation.team;
            app.team = observation.team;
        }
        // It has a runtime, and last time used none of it.
        Nature::Resizable if observation.regions == 0 && expects_rigid => {
            app.demand = expected.cloned().unwrap_or(app.demand);
        }
        Nature::Resizable => {
            if was_rigid {
                news = Some(News::Resizable { app: known.id.clone() });
            }
            let max_team = observation.max_team;
            app.demand.max_threads = declared.max_threads.min(max_team).or(max_team);
            let most = app.demand.max_threads.unwrap_or(observation.fewest);
            app.demand.min_threads = app.demand.min_threads.max(observation.fewest).min(most);
            // A team on its way to the wish is no news; the actuator waits for it itself.
            app.team = observation
                .team
                .map(|team| known.team.unwrap_or(team).max(team).min(max_team.unwrap_or(team)));
        }
        // Until it shows what it is, it counts as what it was last time.
        Nature::Starting | Nature::Serial => {
            app.demand = expected.cloned().unwrap_or(app.demand);
        }
    }
    (app, news)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observation(nature: Nature) -> Observation {
        Observation {
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

    fn demand_of(
        known: &str,
        declared: &str,
        expected: Option<&str>,
        observation: &Observation,
    ) -> (App, Option<News>) {
        let (known, declared) = (app(known), app(declared).demand);
        let expected = expected.map(|text| app(text).demand);
        planned_app(&Shown { known: &known, declared: &declared, expected: expected.as_ref(), observation })
    }

    #[test]
    fn a_rigid_program_needs_the_widest_team_it_ever_ran() {
        let rigid = observation(Nature::Rigid("so".into()));
        let (app, news) = demand_of("a team 5", "a", None, &rigid);
        assert_eq!((app.team, app.demand.max_threads, news.is_none()), (Some(5), Some(5), true));
        assert_eq!(app.demand.malleability, Malleability::Rigid);
        let (app, _) = demand_of("a", "a rigid max 7", None, &rigid);
        assert_eq!((app.team, app.demand.max_threads), (Some(7), Some(7)), "its user knows of it");
        let unseen = Observation { team: None, ..rigid };
        assert_eq!(demand_of("a", "a", None, &unseen).0.team, None);
    }

    #[test]
    fn a_program_stuck_in_its_region_is_rigid_and_reported_once() {
        let stays = observation(Nature::StuckInRegion("so".into()));
        let (app, news) = demand_of("a team 5", "a", None, &stays);
        assert_eq!((app.team, app.demand.max_threads), (Some(3), Some(3)));
        assert!(matches!(news, Some(News::StuckInRegion { threads: 3, .. })));
        assert!(demand_of("a rigid max 3 team 3", "a", None, &stays).1.is_none());
    }

    #[test]
    fn a_resizable_program_is_planned_between_its_bounds() {
        let resizable = observation(Nature::Resizable);
        let (app, news) = demand_of("a rigid max 3 team 3", "a", None, &resizable);
        assert_eq!((app.demand.min_threads, app.demand.max_threads), (2, Some(8)));
        assert!(matches!(news, Some(News::Resizable { .. })));
        let (app, news) = demand_of("a team 9", "a max 4", None, &resizable);
        assert_eq!((app.demand.max_threads, app.team, news.is_none()), (Some(4), Some(8), true));
        let narrow = Observation { max_team: Some(1), ..resizable };
        let (app, _) = demand_of("a", "a", None, &narrow);
        assert_eq!((app.demand.min_threads, app.demand.max_threads), (1, Some(1)), "never above the most");
    }

    #[test]
    fn until_its_nature_shows_a_program_counts_as_last_time() {
        let expected = Some("a rigid max 6");
        for observation in [
            observation(Nature::Starting),
            observation(Nature::Serial),
            Observation { regions: 0, ..observation(Nature::Resizable) },
        ] {
            let (app, _) = demand_of("a", "a", expected, &observation);
            assert_eq!(app.demand.malleability, Malleability::Rigid, "{:?}", observation.nature);
            assert_eq!(app.demand.max_threads, Some(6));
        }
        assert_eq!(
            demand_of("a", "a max 5", None, &observation(Nature::Starting)).0.demand.max_threads,
            Some(5)
        );
    }
}
