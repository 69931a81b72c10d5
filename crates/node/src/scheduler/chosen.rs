//! What a program's own choice of CPUs means for the plan.

use linux::affinity::Chosen;
use plan::App;
use protocol::Choice;
use topology::CpuSet;
use workload::Malleability;

use crate::watch::Nature;

/// Has the plan honour what the program's threads chose: it is planned within these CPUs, or, where free
/// threads stand beside those that chose, with room for all. `came`: where it had to stay before.
pub(super) fn apply_chosen(
    planned: &mut App,
    nature: &Nature,
    chosen: &Chosen,
    came: Option<&CpuSet>,
    allowed: &CpuSet,
) {
    planned.within = within(chosen, came, allowed);
    if matches!(chosen, Chosen::Each { all: false, .. }) && matches!(nature, Nature::Rigid(_)) {
        planned.demand.malleability = Malleability::Rigid;
        let everywhere = allowed.len() as u32;
        planned.team = planned.team.max(Some(everywhere));
        planned.demand.max_threads = planned.demand.max_threads.max(Some(everywhere));
    }
}

/// Where a program has to stay that chose this, and had to stay in `came` before.
pub(super) fn within(chosen: &Chosen, came: Option<&CpuSet>, allowed: &CpuSet) -> Option<CpuSet> {
    let Some(chosen) = chosen.within() else { return came.cloned() };
    let within = chosen.intersection(came.unwrap_or(allowed)).intersection(allowed);
    // Elsewhere than where anybody may be planned: it stands there without the plan.
    Some(within).filter(|within| !within.is_empty() && within != allowed).or(came.cloned())
}

/// The same for the history.
pub(super) fn choice(chosen: &Chosen) -> Choice {
    match chosen {
        Chosen::Nothing => Choice::Nothing,
        Chosen::Same(cpus) => Choice::Same(cpus.clone()),
        Chosen::Each { cpus, all } => Choice::Each { cpus: cpus.clone(), all: *all },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    fn honoured(app: &str, nature: Nature, chosen: &Chosen, came: Option<&str>) -> App {
        let mut planned: App = app.parse().unwrap();
        apply_chosen(&mut planned, &nature, chosen, came.map(cpus).as_ref(), &cpus("0-7"));
        planned
    }

    #[test]
    fn a_choice_of_all_threads_restricts_the_program() {
        let same = Chosen::Same(cpus("2-5"));
        let planned = honoured("a max 8", Nature::Resizable, &same, None);
        assert_eq!(
            (planned.within, planned.demand.malleability),
            (Some(cpus("2-5")), Malleability::Malleable)
        );
        let within = |chosen: &Chosen, came| honoured("a", Nature::Resizable, chosen, came).within;
        assert_eq!(within(&same, Some("0-3")), Some(cpus("2-3")));
        // No restriction, or none that can be planned.
        assert_eq!(within(&Chosen::Same(cpus("0-7")), None), None);
        assert_eq!(within(&Chosen::Same(cpus("9")), None), None);
        assert_eq!(within(&Chosen::Same(cpus("6")), Some("0-3")), Some(cpus("0-3")));
        // Taken back.
        assert_eq!(within(&Chosen::Nothing, Some("0-3")), Some(cpus("0-3")));
        let each = Chosen::Each { cpus: cpus("0-1"), all: true };
        let planned = honoured("a rigid max 2 team 2", Nature::Rigid("".into()), &each, None);
        assert_eq!((planned.within, planned.team), (Some(cpus("0-1")), Some(2)));
    }

    #[test]
    fn bound_threads_beside_free_ones_need_all_cpus() {
        let some = Chosen::Each { cpus: cpus("1"), all: false };
        let planned = honoured("a rigid max 2 team 2", Nature::Rigid("".into()), &some, None);
        assert_eq!((planned.within, planned.team, planned.demand.max_threads), (None, Some(8), Some(8)));
        // One busy thread so far: it is not confined anyway.
        let planned = honoured("a", Nature::Serial, &some, None);
        assert_eq!((planned.within, planned.team), (None, None));
    }
}
