//! Remarks in English.

use std::fmt::{self, Display, Formatter};

use workload::AppId;

use super::{Basis, Fact, Idleness, MoveReason, Rejection, Remark};
use crate::{Known, Source, display_ns};

fn cpus(count: u32) -> String {
    if count == 1 { "1 CPU".to_owned() } else { format!("{count} CPUs") }
}

fn programs(count: u32) -> String {
    if count == 1 { "1 program".to_owned() } else { format!("{count} programs") }
}

fn list<T: Display>(items: impl IntoIterator<Item = T>, between: &str) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(between)
}

fn names(apps: &[AppId]) -> String {
    if apps.is_empty() { "nobody".to_owned() } else { list(apps, ", ") }
}

fn factor(milli: u32) -> String {
    format!("{:.2}", f64::from(milli) / 1000.0)
}

/// By what, of whom nothing is known, and what is predicted, which `otherwise` it would not be.
fn neighbours(by: Basis, unknown: &[String], mean_milli: Option<(u32, u32)>, otherwise: &str) -> [String; 3] {
    let unknown = match unknown {
        [] => String::new(),
        kinds => format!(" Nothing is known of {}: taken for average.", list(kinds, ", ")),
    };
    let mean = mean_milli.map_or(String::new(), |(mean, without)| {
        format!(" Predicted mean slowdown {}, and {} {otherwise}.", factor(mean), factor(without))
    });
    [format!("Neighbours: {by}."), unknown, mean]
}

impl Display for Basis {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Basis::Twins => "runs of one program stand apart",
            Basis::TooUnsure => "what is known is no surer than it differs; runs of one program stand apart",
            Basis::Profiles => "by what programs ask of memory and caches",
            Basis::Predictions => "by predicted slowdowns",
            Basis::LoadRates => "by load instruction rates, high ones beside low ones",
        })
    }
}

impl Display for Idleness {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Idleness::OneShape => "all programs get partitions of one shape",
            Idleness::Closed => "no program may use them whose partition they are in",
            Idleness::Unneeded => "no program can use more",
        })
    }
}

impl Display for Fact {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut known = |what: &str, unit: &str, scale: f64, known: &Known| {
            let source = match known.source {
                Source::Measured => "measured",
                Source::Remembered => "remembered",
            };
            let (value, error) = (known.value as f64 / scale, f64::from(known.error_milli) / 10.0);
            write!(f, "{what} {value:.1} {unit} ({source}, ± {error:.0}%)")
        };
        match self {
            Fact::Left(left) => known("left on one CPU", "s", 1e9, left),
            Fact::Bandwidth(share) => known("asks of a node's bandwidth for", "%", 10.0, share),
            Fact::Cache(loss) => known("loses without cache", "%", 10.0, loss),
            Fact::Move(cost) => known("loses by a move", "s", 1e9, cost),
            Fact::Speedup { cpus, milli } => {
                write!(f, "{:.1} times as fast on {cpus} CPUs as on one", *milli as f64 / 1e3)
            }
        }
    }
}

impl Display for MoveReason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            MoveReason::Unusable { cpus } => write!(f, "CPUs {cpus} are no longer usable"),
            MoveReason::Rotated => {
                f.write_str("moved to a less crowded partition, so that over time all get the same")
            }
            MoveReason::Level { from, to } => write!(f, "partitions became {to} CPUs wide instead of {from}"),
            MoveReason::Partition { from, to } => {
                write!(f, "from a partition of {from} CPUs to one of {to}")
            }
            MoveReason::Ceded { cpus } => {
                write!(f, "CPUs {cpus} went to programs that cannot stand elsewhere")
            }
            MoveReason::Twins { beside, instead_of } => {
                let (now, before) = (names(beside), names(instead_of));
                write!(f, "beside {now} instead of {before}, so that runs of one program stand apart")
            }
            MoveReason::LoadRates { loads_per_s, beside, instead_of } => {
                let (now, before) = (names(beside), names(instead_of));
                match loads_per_s {
                    Some(rate) => write!(f, "with {} million loads a second ", rate / 1_000_000)?,
                    None => f.write_str("with an unknown load rate, taken for average, ")?,
                }
                write!(f, "beside {now} instead of {before}, so that load rates are balanced")
            }
            MoveReason::Predicted { beside, slowdown_milli, error_milli, instead_of, before_milli } => {
                let (slowdown, error) = (factor(*slowdown_milli), factor(*error_milli));
                let (now, before) = (names(beside), names(instead_of));
                write!(f, "beside {now} it is predicted to be {slowdown} ± {error} times slower, ")?;
                write!(f, "beside {before} {}; all together lose least so", factor(*before_milli))
            }
            MoveReason::Evidence => {
                f.write_str("by the evidence the others gain more by its CPUs than it loses")
            }
            MoveReason::Script(why) => f.write_str(why),
        }
    }
}

impl Display for Rejection {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Rejection::Failed(why) => f.write_str(why),
            Rejection::Refused(refusal) => refusal.fmt(f),
            Rejection::Broken(violation) => write!(f, "invariant {}: {violation}", violation.invariant()),
        }
    }
}

impl Display for Remark {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Remark::Level { .. }
            | Remark::Partitions { .. }
            | Remark::LeftOver { .. }
            | Remark::Idle { .. }
            | Remark::UnknownWidths { .. }
            | Remark::Crowded { .. }
            | Remark::EqualParts { .. } => self.division(f),
            Remark::Neighbours { .. }
            | Remark::Slots { .. }
            | Remark::Placed { .. }
            | Remark::ByEvidence { .. }
            | Remark::Evidence { .. } => self.choice(f),
            Remark::LeftToKernel { programs } => write!(f, "{programs} programs, left to the kernel."),
            Remark::FirstComeFirst { app, waiting } => {
                write!(f, "{app} came first and has its turn; {waiting} wait.")
            }
            Remark::TooWide { apps, slots } => {
                write!(f, "{}: cannot shrink to an equal part; {slots} slots take turns.", names(apps))
            }
            Remark::WideBeside { apps } => {
                write!(f, "{}: wider than an equal part, beside the others.", names(apps))
            }
            Remark::Unstoppable { apps } => write!(
                f,
                "{}: must not be stopped and leave no part free, so that all are left to the kernel.",
                names(apps)
            ),
            Remark::Unplanned { apps } => write!(f, "{}: no place in the plan, waiting.", names(apps)),
            Remark::Standstill { longest_ns, allowed_ns, shortest_slice_ns } => write!(
                f,
                "Programs stand still for up to {} instead of {}: slices are no shorter than {}.",
                display_ns(*longest_ns),
                display_ns(*allowed_ns),
                display_ns(*shortest_slice_ns)
            ),
            Remark::WeightRaised { apps, weight, shortest_slice_ns } => {
                let (weight, shortest) = (*weight as f64 / 1e3, display_ns(*shortest_slice_ns));
                write!(f, "{} count as weight {weight}: no turn is shorter than {shortest}.", names(apps))
            }
            Remark::LevelsInTurn => {
                f.write_str("These levels take turns, weighted so that all get the same CPU time.")
            }
            Remark::Unsettled { settle_ns } => {
                let settle = display_ns(*settle_ns);
                write!(f, "Levels are balanced when nobody has come or left for {settle}.")
            }
            Remark::LevelUp { apps } => {
                write!(f, "{}: lose least on wider partitions, and go a level up.", names(apps))
            }
            Remark::Satisfied { apps } => {
                write!(f, "{}: use no more than their part, and have it all the time.", names(apps))
            }
            Remark::Grace { apps, longest_ns } => {
                let longest = display_ns(*longest_ns);
                write!(f, "{}: keep their partitions until their teams are narrower, ", names(apps))?;
                write!(f, "for {longest} at most.")
            }
            Remark::Script(line) => f.write_str(line),
            Remark::Rejected { policy, why } => match &why[..] {
                [Rejection::Failed(why)] => write!(f, "{policy} came to no plan: {why}"),
                why => write!(f, "{policy} made a plan that is not valid: {}", list(why, "; ")),
            },
            Remark::Broken(violation) => write!(f, "a promise was broken: {violation}"),
        }
    }
}

impl Remark {
    /// How CPUs are cut into partitions.
    fn division(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Remark::Level { programs: count, width, shape, used, partitions } => {
                let (programs, cpus) = (programs(*count), cpus(*width));
                write!(f, "{programs} on partitions of {cpus} ({shape}, {used} of {partitions} in use).")
            }
            Remark::Partitions { programs: count, widths } => {
                let widths = widths.iter().map(|(width, count)| format!("{count} of {}", cpus(*width)));
                write!(f, "{count} programs on partitions: {}.", list(widths, ", "))
            }
            Remark::LeftOver { cpus: left, width } => {
                write!(f, "CPUs {left} are left over by partitions of {}.", cpus(*width))
            }
            Remark::Idle { cpus, why } => write!(f, "CPUs {cpus} stay idle: {why}."),
            Remark::UnknownWidths { allowed, used } => {
                let used = list(used, ", ");
                write!(f, "None of the allowed widths {allowed:?} can be cut here; using {used}.")
            }
            Remark::Crowded { width, least, most } => {
                write!(f, "Partitions of {} hold {least} to {most} programs each.", cpus(*width))
            }
            Remark::EqualParts { programs, cpus, single } => {
                let how = if *single { ", with one thread each" } else { " evenly" };
                write!(f, "{programs} programs share {cpus} CPUs{how}.")
            }
            _ => Ok(()),
        }
    }

    /// Who stands beside whom, and on what evidence.
    fn choice(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Remark::Neighbours { by, unknown, mean_milli } => {
                let parts = neighbours(*by, unknown, *mean_milli, "where most CPUs would be kept");
                f.write_str(&parts.concat())
            }
            Remark::Slots { by, unknown, groups, mean_milli } => {
                let [by, unknown, mean] = neighbours(*by, unknown, *mean_milli, "in order of arrival");
                let groups = list(groups.iter().map(|group| list(group, " with ")), "; ");
                write!(f, "{by}{unknown} In one slot: {groups}.{mean}")
            }
            Remark::Placed { app, why } => write!(f, "{app}: {why}."),
            Remark::ByEvidence { programs, nodes } => {
                write!(f, "{programs} programs on {nodes} nodes of memory by what is known of them.")
            }
            Remark::Evidence { app, cpus, nodes, facts } => {
                write!(f, "{app}: {cpus} CPUs of {nodes} nodes; ")?;
                match &facts[..] {
                    [] => write!(f, "nothing is known of {app}."),
                    facts => write!(f, "{}.", list(facts, ", ")),
                }
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(names: &[&str]) -> Vec<AppId> {
        names.iter().map(|name| AppId::new(name).unwrap()).collect()
    }

    #[test]
    fn remarks_read_as_sentences() {
        let level =
            Remark::Level { programs: 1, width: 6, shape: "each a package".into(), used: 1, partitions: 4 };
        assert_eq!(level.to_string(), "1 program on partitions of 6 CPUs (each a package, 1 of 4 in use).");
        let widths = Remark::UnknownWidths { allowed: vec![5], used: vec![4, 2] };
        assert_eq!(widths.to_string(), "None of the allowed widths [5] can be cut here; using 4, 2.");
        let slots = Remark::Slots {
            by: Basis::Predictions,
            unknown: vec!["new".into()],
            groups: vec![ids(&["a", "b"]), ids(&["c"])],
            mean_milli: Some((1204, 1500)),
        };
        assert_eq!(
            slots.to_string(),
            "Neighbours: by predicted slowdowns. Nothing is known of new: taken for average. In one slot: a with b; c. \
             Predicted mean slowdown 1.20, and 1.50 in order of arrival."
        );
        let still = Remark::Standstill {
            longest_ns: 300_000_000,
            allowed_ns: 200_000_000,
            shortest_slice_ns: 5_000_000,
        };
        assert_eq!(
            still.to_string(),
            "Programs stand still for up to 300ms instead of 200ms: slices are no shorter than 5ms."
        );
        let raised = Remark::WeightRaised { apps: ids(&["a"]), weight: 250, shortest_slice_ns: 5_000_000 };
        assert_eq!(raised.to_string(), "a count as weight 0.25: no turn is shorter than 5ms.");
        let app = AppId::new("a").unwrap();
        let evidence = Remark::Evidence { app, cpus: 6, nodes: 2, facts: Vec::new() };
        assert_eq!(evidence.to_string(), "a: 6 CPUs of 2 nodes; nothing is known of a.");
    }

    #[test]
    fn reasons_name_neighbours_and_how_much_slower() {
        let why = MoveReason::Predicted {
            beside: ids(&["b"]),
            slowdown_milli: 1100,
            error_milli: 50,
            instead_of: Vec::new(),
            before_milli: 1300,
        };
        assert_eq!(
            why.to_string(),
            "beside b it is predicted to be 1.10 ± 0.05 times slower, beside nobody 1.30; all together lose least so"
        );
    }
}
