//! What `nice` means between programs.
//!
//! On CPUs that programs share the kernel gives them time by their nice value, and as nobody is moved to another
//! group of the hierarchy of CPU time, it does so under coplace, too. But a plan gives programs CPUs of their own.
//! So whoever was started to take only what others leave must not get an equal part: beside one that is
//! [`YIELDS`] levels more important (a ninth of its weight) such a program is left to the kernel, on all CPUs
//! that it may use, until none of these is there any more. Smaller differences are weights.

use engine::Event;
use linux::{Root, procfs};
use protocol::News;
use workload::{AppId, Demand};

use super::Scheduler;
use crate::identity;

/// From this difference on a program yields.
const YIELDS: i32 = 10;

/// The kernel's `sched_prio_to_weight`, from nice −20 to 19.
const KERNEL_WEIGHTS: [u32; 40] = [
    88_761, 71_755, 56_483, 46_273, 36_291, 29_154, 23_254, 18_705, 14_949, 11_916, 9_548, 7_620, 6_100,
    4_904, 3_906, 3_121, 2_501, 1_991, 1_586, 1_277, 1_024, 820, 655, 526, 423, 335, 272, 215, 172, 137, 110,
    87, 70, 56, 45, 36, 29, 23, 18, 15,
];

/// The kernel's weight at a nice value, in thousandths of that at 0.
fn weight_milli(nice: i32) -> u32 {
    KERNEL_WEIGHTS[(nice + 20).clamp(0, 39) as usize] * 1000 / 1024
}

/// Who of these yields, by their nice values.
fn yielding(nices: &[i32]) -> Vec<bool> {
    let least = nices.iter().min().copied().unwrap_or(0);
    nices.iter().map(|nice| nice - least >= YIELDS).collect()
}

/// The weight of a program whose user says nothing else is that of its nice value.
pub(super) fn weigh_by_nice(demand: &mut Demand, pid: u32) {
    if demand.weight_milli == Demand::default().weight_milli
        && let Ok(stat) = procfs::stat(pid, &Root::live())
    {
        demand.weight_milli = weight_milli(stat.nice);
    }
}

impl Scheduler {
    /// Programs that have to yield from now on leave the plan, and those that need no more come back.
    pub(super) fn sample_nice(&mut self) -> Vec<Event> {
        let root = Root::live();
        let mut by_nice: Vec<(AppId, i32)> = Vec::new();
        for (id, app) in self.live.apps().iter().filter(|(_, app)| !app.user_stopped) {
            // Of a program whose first process has ended nothing new is known.
            let stat = procfs::stat(identity::to_linux(app.record.process).pid, &root).ok();
            by_nice.extend(stat.filter(|stat| !stat.has_ended()).map(|stat| (id.clone(), stat.nice)));
        }
        let nices: Vec<i32> = by_nice.iter().map(|(_, nice)| *nice).collect();
        let mut events = Vec::new();
        for ((id, nice), yields) in by_nice.into_iter().zip(yielding(&nices)) {
            // One that is held yet makes others yield, and may wait for them by the plan; it yields itself once it runs.
            let started = self.live.apps().get(&id).is_some_and(|app| app.record.started);
            if !started || !self.live.set_yields(&id, yields) {
                continue;
            }
            self.note(News::Nice { app: id.clone(), nice, yields });
            events.push(if yields { Event::Suspend(id) } else { Event::Resume(id) });
        }
        events
    }

    /// A program that its user continued; one that yields stays out of the plan. Where it cannot come back yet the next
    /// look, which sees it run, asks again.
    pub(super) fn resumed(&mut self, id: AppId) -> Option<Event> {
        if !self.live.mark_user_continued(&id) {
            return None;
        }
        let yields = self.live.apps().get(&id).is_some_and(|app| app.yields());
        (!yields).then_some(Event::Resume(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nice_value_has_the_kernels_weight() {
        let weights = [-20, -5, 0, 5, 10, 19, 99].map(weight_milli);
        assert_eq!(weights, [86_680, 3_047, 1_000, 327, 107, 14, 14]);
    }

    #[test]
    fn a_much_nicer_program_yields_to_the_others() {
        assert_eq!(yielding(&[0, 19, 9, 10]), [false, true, false, true]);
        // Programs that are all equally nice share as others do.
        assert_eq!(yielding(&[19, 19]), [false, false]);
        assert_eq!(yielding(&[-5, 4, 5]), [false, false, true]);
        assert_eq!(yielding(&[]), [false; 0]);
    }
}
