//! What is known and said of a program when it begins.

use plan::App;
use protocol::{AppRecord, FromScheduler, News};
use workload::{AppId, Demand, Malleability};

use super::admission::Expected;
use super::{Scheduler, allowed};

impl Scheduler {
    /// A program as the policy is to see it first, and what is expected of it by earlier runs.
    pub(super) fn describe(&self, record: &AppRecord) -> (App, Expected) {
        let recalled = self.remembered.recall(&record.terms.key);
        let expected = Expected {
            demand: remembered_demand(&record.demand, recalled.rigid),
            bytes: record.terms.memory_bytes.or(recalled.peak_bytes),
            speedup: recalled.speedup,
        };
        let arrived_ns = record.arrived_ns.max(self.began_ns) - self.began_ns;
        let app = App {
            demand: expected.demand.clone().unwrap_or_else(|| record.demand.clone()),
            speedup: expected.speedup.clone(),
            within: allowed::within(&record.original_cpus, self.live.allowed()),
            ..App::new(record.id.clone(), arrived_ns)
        };
        (app, expected)
    }

    /// The message by which a program starts, with what was decided for it.
    pub(super) fn start_message(&mut self, id: AppId) -> FromScheduler {
        let terms = self.live.apps().get(&id).map(|app| app.record.terms.clone()).unwrap_or_default();
        self.live.mark_let_go(&id);
        let threads = terms.threads.filter(|_| terms.narrow.is_some());
        FromScheduler::Start { id, threads, passive: terms.passive }
    }
}

/// What there is to say of a program that comes; `cpus`: those that are shared out.
pub(super) fn news_of(record: &AppRecord, expected: &Expected, cpus: u32) -> Vec<News> {
    let app = || record.id.clone();
    let rigid = expected.demand.as_ref().filter(|_| record.terms.narrow.is_none());
    let rigid =
        rigid.map(|demand| News::ExpectedRigid { app: app(), threads: demand.max_threads.unwrap_or(1) });
    let narrow = record.terms.threads.map(|threads| {
        let why = record.terms.narrow.clone().unwrap_or_else(|| narrow_start_cost(threads, cpus));
        News::NarrowStart { app: app(), why }
    });
    let came = News::Came { app: app(), uid: record.uid, command: record.command.clone() };
    rigid.into_iter().chain(narrow).chain([came]).collect()
}

/// The demand of a program that proved rigid last time, where its user says nothing about that.
fn remembered_demand(demand: &Demand, rigid: Option<u32>) -> Option<Demand> {
    let width = rigid.filter(|width| *width > 1)?;
    let stated = demand.max_threads.is_some() || demand.malleability != Malleability::Malleable;
    (!stated).then(|| Demand {
        malleability: Malleability::Rigid,
        max_threads: Some(width),
        ..demand.clone()
    })
}

/// What a narrow start costs that was asked for, for `explain`.
fn narrow_start_cost(threads: u32, cpus: u32) -> String {
    let cost = match cpus > threads {
        true => format!(
            ": when its neighbours leave it cannot use the other {}, and may take up to {:.1} times as long as with all",
            cpus - threads,
            f64::from(cpus) / f64::from(threads)
        ),
        false => String::new(),
    };
    format!("was started with {threads} of {cpus} threads, as asked{cost}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_proved_rigid_is_expected_to_be_so_again() {
        let silent = Demand::default();
        let expected = remembered_demand(&silent, Some(4)).unwrap();
        assert_eq!((expected.malleability, expected.max_threads), (Malleability::Rigid, Some(4)));
        assert_eq!(remembered_demand(&silent, Some(1)), None);
        assert_eq!(remembered_demand(&silent, None), None);
        assert_eq!(remembered_demand(&Demand { max_threads: Some(2), ..silent }, Some(4)), None);
    }

    #[test]
    fn a_requested_narrow_start_states_its_cost() {
        assert!(narrow_start_cost(1, 4).contains("cannot use the other 3, and may take up to 4.0 times"));
        assert_eq!(narrow_start_cost(4, 4), "was started with 4 of 4 threads, as asked");
    }
}
