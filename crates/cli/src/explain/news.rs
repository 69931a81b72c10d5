//! What happened, in English.

use std::collections::BTreeMap;

use plan::Speedup;
use protocol::{Choice, News};

/// One sentence without its full stop; what was said of a plan is not in it.
pub fn sentence(news: &News) -> String {
    match news {
        News::Plan { plan, .. } => format!("plan: {plan}"),
        News::Rejected { why } => {
            let why: Vec<String> = why.iter().map(ToString::to_string).collect();
            format!("the policy's plan was refused: {}", why.join("; "))
        }
        News::Policy { name } => format!("policy: {name}"),
        News::Withheld(withheld) => withheld.to_string(),
        News::Came { app, command, .. } => format!("{app} comes: {}", command.join(" ")),
        News::Waits { app, why } => format!("{app} waits: {why}"),
        News::Admitted { app } => format!("{app} is admitted"),
        News::ExpectedRigid { app, threads } => {
            format!("{app} is expected to run {threads} threads that cannot be resized, as last time")
        }
        News::NarrowStart { app, why } => format!("{app} {why}"),
        News::Passive { app, why } => format!("{app} is told to wait passively: {why}"),
        News::StuckInRegion { app, threads, why } => {
            format!("{app} counts as rigid with {threads} threads until it enters another region: {why}")
        }
        News::Resizable { app } => format!("{app} can be resized"),
        News::Chose { app, chosen } => format!("{app} {}", choice(chosen)),
        News::Speedup { app, speedup } => format!("{app} {}", curve(speedup)),
        News::Nice { app, nice, yields: true } => {
            format!("{app} runs at nice {nice} and takes what more important programs leave")
        }
        News::Nice { app, nice, yields: false } => {
            format!("{app} runs at nice {nice}, and no other program is much more important")
        }
        News::Stopped { app } => format!("{app} was stopped by somebody else; it leaves the rotation"),
        News::SetFree { app } => {
            format!("{app} was set free while this scheduler did not act; it is taken in again")
        }
        News::TakenIn { app, pid, rule } => format!("{app} (process {pid}) was adopted by {rule}"),
        News::NotTakenIn { pid, rule, why } => format!("{rule} could not adopt process {pid}: {why}"),
        News::Released { app } => format!("{app} was given back"),
        News::GivenUp { app } => format!("{app} was given up by its run before it started"),
        News::Ended { app } => format!("{app} has ended"),
        News::Failed { app: Some(app), why } => format!("{app}: {why}"),
        News::Failed { app: None, why } => why.clone(),
    }
}

fn choice(chosen: &Choice) -> String {
    match chosen {
        Choice::Nothing => "leaves it to coplace again where it runs".into(),
        Choice::Same(cpus) => format!("chose CPUs {cpus} itself, and is placed within these"),
        Choice::Each { cpus, all: true } => {
            format!("bound its threads one by one to CPUs {cpus} itself: each keeps its own")
        }
        Choice::Each { cpus, all: false } => format!(
            "bound threads one by one to CPUs {cpus} itself, and has others that are free: each keeps its own, \
             and the program has turns on all CPUs"
        ),
    }
}

fn curve(speedup: &Speedup) -> String {
    let points = BTreeMap::from(speedup.clone()).into_iter().filter(|(threads, _)| *threads > 1);
    let point = |(threads, milli)| format!("{:.2} with {threads}", f64::from(milli) / 1000.0);
    let points: Vec<String> = points.map(point).collect();
    format!("has, by its region rates, this many times the speed of one thread: {}", points.join(", "))
}

#[cfg(test)]
mod tests {
    use workload::AppId;

    use super::*;

    #[test]
    fn news_read_as_sentences() {
        let app = AppId::new("cg").unwrap();
        for (news, expected) in [
            (
                News::Came { app: app.clone(), uid: 0, command: vec!["./cg".into(), "4".into()] },
                "cg comes: ./cg 4",
            ),
            (News::Failed { app: Some(app.clone()), why: "runs unmanaged".into() }, "cg: runs unmanaged"),
            (News::Failed { app: None, why: "disk full".into() }, "disk full"),
            (
                News::Chose { app: app.clone(), chosen: Choice::Same("0-1".parse().unwrap()) },
                "cg chose CPUs 0-1 itself, and is placed within these",
            ),
            (
                News::Speedup { app, speedup: Speedup::new([(2, 1900)]).unwrap() },
                "cg has, by its region rates, this many times the speed of one thread: 1.90 with 2",
            ),
        ] {
            assert_eq!(sentence(&news), expected);
        }
    }
}
