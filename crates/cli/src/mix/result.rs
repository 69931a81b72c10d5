//! What a mix came to: figures of each program and of all together, as table, JSON and CSV
//! (docs/formats/mix-result.md).

use std::collections::BTreeMap;

use plan::Plan;
use serde::{Serialize, Serializer};
use topology::CpuSet;
use workload::AppId;

use super::foreign::DISTURBED;
use crate::advise::shell;
use crate::status::clip;
use crate::table::Table;
use crate::timeline::{Program, Timeline, segments};
use crate::units;

/// By how much one run alone may err: what a quiet machine differs by from one run to the next.
const ALONE_ERROR: f64 = 0.05;

/// How a program ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    Status(i32),
    Signal(i32),
    /// It could not be started; why.
    NotStarted(String),
    /// The mix was ended before it came.
    Skipped,
}

/// One instance of a program of the mix.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProgramResult {
    pub name: AppId,
    /// The file's name for it; several instances of one repeated program share it.
    pub program: String,
    #[serde(serialize_with = "as_command_line")]
    pub command: Vec<String>,
    /// When it came, from the beginning of the mix.
    #[serde(rename = "arrived_s", serialize_with = "as_seconds")]
    pub arrived_ns: u64,
    /// When it was let go.
    #[serde(rename = "started_s", serialize_with = "as_maybe_seconds")]
    pub started_ns: Option<u64>,
    #[serde(rename = "ended_s", serialize_with = "as_maybe_seconds")]
    pub ended_ns: Option<u64>,
    #[serde(rename = "alone_s", serialize_with = "as_maybe_seconds")]
    pub alone_ns: Option<u64>,
    /// Share of the CPUs' time that others took while it ran alone; `None` where it did not here, or too short.
    pub alone_foreign_share: Option<f64>,
    pub turns: u64,
    #[serde(rename = "in_turn_s", serialize_with = "as_seconds")]
    pub in_turn_ns: u64,
    pub reconfigurations: u64,
    pub moves: u64,
    /// Seconds by the width of its place in CPUs.
    #[serde(rename = "widths_s", serialize_with = "as_widths")]
    pub width_ns: BTreeMap<u32, u64>,
    #[serde(rename = "cpu_time_s", serialize_with = "as_seconds")]
    pub cpu_time_ns: u64,
    pub regions: u64,
    /// The scheduler's own estimate of the slowdown from region rates, with its error.
    #[serde(rename = "slowdown_estimated")]
    pub estimated: Option<(f64, f64)>,
    pub ending: Ending,
    /// Whether its last line said VERIFIED; `None`: it said nothing of the kind.
    pub verified: Option<bool>,
}

fn as_command_line<S: Serializer>(command: &[String], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&shell(command))
}

fn as_seconds<S: Serializer>(ns: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(units::seconds(*ns))
}

fn as_maybe_seconds<S: Serializer>(ns: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    ns.map(units::seconds).serialize(serializer)
}

fn as_widths<S: Serializer>(widths: &BTreeMap<u32, u64>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(widths.iter().map(|(width, ns)| (width, units::seconds(*ns))))
}

impl ProgramResult {
    pub fn response_ns(&self) -> Option<u64> {
        self.ended_ns.map(|ended_ns| ended_ns.saturating_sub(self.arrived_ns))
    }

    pub fn waited_ns(&self) -> Option<u64> {
        self.started_ns.map(|started_ns| started_ns.saturating_sub(self.arrived_ns))
    }

    /// Response time over time alone; of programs that ended well only.
    fn response_over_alone(&self) -> Option<f64> {
        let alone_ns = self.alone_ns.filter(|alone_ns| *alone_ns > 0 && self.succeeded())?;
        Some(self.response_ns()? as f64 / alone_ns as f64)
    }

    /// What the others made it lose: [`ProgramResult::response_over_alone`], unless it took less than alone by more than one run alone
    /// can err. Then that time is not what it takes with the whole machine.
    pub fn slowdown(&self) -> Option<f64> {
        self.response_over_alone().filter(|ratio| *ratio >= 1.0 - ALONE_ERROR)
    }

    fn is_faster_than_alone(&self) -> bool {
        self.response_over_alone().is_some() && self.slowdown().is_none()
    }

    fn was_disturbed_alone(&self) -> bool {
        self.alone_foreign_share.is_some_and(|share| share >= DISTURBED)
    }

    pub fn succeeded(&self) -> bool {
        self.ending == Ending::Status(0) && self.verified != Some(false)
    }

    pub fn describe_ending(&self) -> String {
        match (&self.ending, self.verified) {
            (Ending::Status(0), Some(true)) => "VERIFIED".into(),
            (Ending::Status(0), Some(false)) => "FAILED its own check".into(),
            (Ending::Status(0), None) => "exit 0".into(),
            (Ending::Status(status), _) => format!("exit {status}"),
            (Ending::Signal(signal), _) => format!("killed by signal {signal}"),
            (Ending::NotStarted(_), _) => "not started".into(),
            (Ending::Skipped, _) => "skipped".into(),
        }
    }

    /// `~` marks an estimate from region rates, `*` what was measured while others took part of the machine.
    fn describe_slowdown(&self, mix_was_disturbed: bool) -> String {
        match (self.slowdown(), self.estimated) {
            (Some(slowdown), _) if mix_was_disturbed || self.was_disturbed_alone() => {
                format!("{slowdown:.2}*")
            }
            (Some(slowdown), _) => format!("{slowdown:.2}"),
            (None, Some((slowdown, error))) => format!("~{slowdown:.1} ±{error:.1}"),
            (None, None) => "–".into(),
        }
    }

    /// Mean width of its place while it had one, in CPUs.
    fn mean_width(&self) -> Option<f64> {
        let total: u64 = self.width_ns.values().sum();
        let weighted: f64 = self.width_ns.iter().map(|(width, ns)| f64::from(*width) * *ns as f64).sum();
        (total > 0).then(|| weighted / total as f64)
    }
}

/// A plan, and when it came into force from the beginning of the mix.
#[derive(Clone, Debug)]
pub struct PlanAt {
    pub at_ns: u64,
    pub plan: Plan,
}

pub struct MixResult {
    pub title: String,
    /// "equal parts (EQ)".
    pub policy: String,
    pub placement: String,
    pub turns: String,
    pub cpus: CpuSet,
    pub end_ns: u64,
    /// CPU time of coplace itself.
    pub own_cpu_ns: u64,
    /// Share of the CPUs' time that others took meanwhile; `None` where that cannot be known.
    pub foreign_share: Option<f64>,
    pub programs: Vec<ProgramResult>,
    pub plans: Vec<PlanAt>,
}

impl MixResult {
    /// Time with at least one program present.
    pub fn makespan_ns(&self) -> u64 {
        let mut spans: Vec<(u64, u64)> =
            self.programs.iter().filter_map(|p| Some((p.arrived_ns, p.ended_ns?))).collect();
        spans.sort_unstable();
        let (mut total, mut until) = (0, 0);
        for (from, to) in spans {
            total += to.saturating_sub(from.max(until));
            until = until.max(to);
        }
        total
    }

    /// Slowdowns, if all programs have one: a mean over some would hide those that failed.
    fn slowdowns(&self) -> Option<Vec<f64>> {
        let all: Option<Vec<f64>> = self.programs.iter().map(ProgramResult::slowdown).collect();
        all.filter(|all| !all.is_empty())
    }

    /// Average normalised turnaround time: the mean slowdown (Eyerman and Eeckhout 2008).
    pub fn antt(&self) -> Option<f64> {
        self.slowdowns().map(|all| all.iter().sum::<f64>() / all.len() as f64)
    }

    /// System throughput: the sum of 1 / slowdown (Eyerman and Eeckhout 2008).
    pub fn stp(&self) -> Option<f64> {
        self.slowdowns().map(|all| all.iter().map(|slowdown| 1.0 / slowdown).sum())
    }

    pub fn max_slowdown(&self) -> Option<f64> {
        self.slowdowns().map(|all| all.into_iter().fold(1.0, f64::max))
    }

    fn was_disturbed(&self) -> bool {
        self.foreign_share.is_some_and(|share| share >= DISTURBED)
    }

    /// What a reader must know before he believes the slowdowns.
    fn describe_doubts(&self) -> Vec<String> {
        let percent = |share: Option<f64>| format!("{:.0}%", 100.0 * share.unwrap_or_default());
        let mut doubts = Vec::new();
        let alone = self.programs.iter().filter(|program| program.was_disturbed_alone());
        let alone: Vec<String> = alone
            .map(|program| {
                format!("{} while {} ran alone", percent(program.alone_foreign_share), program.name)
            })
            .collect();
        let meanwhile =
            self.was_disturbed().then(|| format!("{} during the mix", percent(self.foreign_share)));
        let times: Vec<String> = meanwhile.into_iter().chain(alone).collect();
        if !times.is_empty() {
            doubts.push(format!("disturbed     others took part of the CPUs' time: {}", times.join(", ")));
        }
        let faster: Vec<&str> = self
            .programs
            .iter()
            .filter(|program| program.is_faster_than_alone())
            .map(|program| program.name.as_str())
            .collect();
        if !faster.is_empty() {
            doubts.push(format!(
                "no slowdown   {}: the time alone is longer than the response time in the mix; measure it on a quiet \
                 machine",
                faster.join(", ")
            ));
        }
        doubts
    }

    pub fn failed_count(&self) -> usize {
        self.programs.iter().filter(|program| !program.succeeded()).count()
    }

    pub fn table(&self) -> String {
        let mut table = Table::new(&[
            "program",
            ">arrived",
            ">response",
            ">alone",
            ">slowdown",
            ">CPUs",
            ">turns",
            ">resized",
            "ended",
            "command",
        ]);
        let time = |ns: Option<u64>| ns.map_or("–".into(), units::format_ns);
        for program in &self.programs {
            table.row([
                program.name.to_string(),
                format!("{:.2} s", units::seconds(program.arrived_ns)),
                time(program.response_ns()),
                time(program.alone_ns),
                program.describe_slowdown(self.was_disturbed()),
                program.mean_width().map_or("–".into(), |width| format!("{width:.1}")),
                program.turns.to_string(),
                program.reconfigurations.to_string(),
                program.describe_ending(),
                clip(&shell(&program.command), 40),
            ]);
        }
        let mut out = format!("{}: {}\n\n{table}\n", self.title, self.policy);
        out += &format!("makespan      {}\n", units::format_ns(self.makespan_ns()));
        match (self.antt(), self.stp(), self.max_slowdown()) {
            (Some(antt), Some(stp), Some(most)) => {
                out +=
                    &format!("mean slowdown {antt:.2} (ANTT), worst {most:.2}; throughput {stp:.2} (STP)\n");
            }
            _ if self.failed_count() == 0
                && self.programs.iter().any(|program| program.alone_ns.is_none()) =>
            {
                out += "mean slowdown unknown: give alone_s in the file, or --measure-alone\n";
            }
            _ => {}
        }
        for doubt in self.describe_doubts() {
            out += &format!("{doubt}\n");
        }
        out += &format!("mechanisms    {}, turns by {}\n", self.placement, self.turns);
        out += &format!("coplace used  {} of CPU time\n", units::format_ns(self.own_cpu_ns));
        for program in self.programs.iter().filter(|program| !program.succeeded()) {
            let why = match &program.ending {
                Ending::NotStarted(why) => why.clone(),
                _ => program.describe_ending(),
            };
            out += &format!("failed        {}: {why} ({})\n", program.name, shell(&program.command));
        }
        out
    }

    pub fn json(&self) -> serde_json::Value {
        let programs: Vec<serde_json::Value> = self
            .programs
            .iter()
            .map(|program| {
                let mut value = serde_json::to_value(program).expect("string keys only");
                value["waited_s"] = program.waited_ns().map(units::seconds).into();
                value["response_s"] = program.response_ns().map(units::seconds).into();
                value["slowdown"] = program.slowdown().into();
                value["well"] = program.succeeded().into();
                value
            })
            .collect();
        let plans: Vec<serde_json::Value> = self
            .plans
            .iter()
            .map(|at| serde_json::json!({ "at_s": units::seconds(at.at_ns), "plan": at.plan.to_string() }))
            .collect();
        serde_json::json!({
            "format": "coplace mix result", "version": 1,
            "title": self.title, "policy": self.policy, "placement": self.placement, "turns": self.turns,
            "cpus": self.cpus, "makespan_s": units::seconds(self.makespan_ns()), "antt": self.antt(),
            "stp": self.stp(), "max_slowdown": self.max_slowdown(), "failed": self.failed_count(),
            "own_cpu_time_s": units::seconds(self.own_cpu_ns), "foreign_share": self.foreign_share, "programs": programs, "plans": plans,
        })
    }

    /// One line a program; columns as in the JSON form.
    pub fn csv(&self) -> String {
        let mut out = String::from(
            "name,program,command,arrived_s,waited_s,response_s,alone_s,slowdown,turns,in_turn_s,reconfigurations,\
             moves,mean_width_cpus,cpu_time_s,regions,ended,well\n",
        );
        let maybe = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.6}"));
        let time = |ns: Option<u64>| maybe(ns.map(units::seconds));
        for program in &self.programs {
            let fields = [
                program.name.to_string(),
                program.program.clone(),
                shell(&program.command),
                time(Some(program.arrived_ns)),
                time(program.waited_ns()),
                time(program.response_ns()),
                time(program.alone_ns),
                maybe(program.slowdown()),
                program.turns.to_string(),
                time(Some(program.in_turn_ns)),
                program.reconfigurations.to_string(),
                program.moves.to_string(),
                maybe(program.mean_width()),
                time(Some(program.cpu_time_ns)),
                program.regions.to_string(),
                program.describe_ending(),
                program.succeeded().to_string(),
            ];
            out += &fields.iter().map(|field| quoted(field)).collect::<Vec<_>>().join(",");
            out.push('\n');
        }
        out
    }

    pub fn timeline(&self) -> Timeline {
        let plans: Vec<(u64, Plan)> = self.plans.iter().map(|at| (at.at_ns, at.plan.clone())).collect();
        Timeline {
            title: self.title.clone(),
            policy: self.policy.clone(),
            facts: [
                format!("CPUs {}", self.cpus),
                self.placement.clone(),
                format!("turns by {}", self.turns),
                format!("coplace used {} of CPU time", units::format_ns(self.own_cpu_ns)),
            ]
            .into_iter()
            .chain(self.describe_doubts())
            .collect(),
            cpus: self.cpus.clone(),
            end_ns: self.end_ns,
            programs: self
                .programs
                .iter()
                .filter(|program| !matches!(program.ending, Ending::Skipped))
                .map(|program| Program {
                    app: program.name.clone(),
                    command: shell(&program.command),
                    arrived_ns: program.arrived_ns,
                    started_ns: program.started_ns,
                    ended_ns: program.ended_ns,
                    response_ns: program.response_ns(),
                    alone_ns: program.alone_ns,
                    slowdown: program.slowdown(),
                    ending: program.describe_ending(),
                    well: program.succeeded(),
                })
                .collect(),
            segments: segments(&plans, self.end_ns),
            makespan_ns: self.makespan_ns(),
            antt: self.antt(),
            stp: self.stp(),
        }
    }
}

/// As RFC 4180 wants it.
fn quoted(field: &str) -> String {
    match field.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn program(name: &str, arrived_ns: u64, ended_ns: u64, alone_ns: Option<u64>) -> ProgramResult {
        ProgramResult {
            name: AppId::new(name).unwrap(),
            program: name.into(),
            command: vec![format!("./{name}"), "a,\"b".into()],
            arrived_ns,
            started_ns: Some(arrived_ns),
            ended_ns: Some(ended_ns),
            alone_ns,
            alone_foreign_share: None,
            turns: 3,
            in_turn_ns: 0,
            reconfigurations: 1,
            moves: 0,
            width_ns: BTreeMap::from([(1, S), (2, 3 * S)]),
            cpu_time_ns: S,
            regions: 7,
            estimated: None,
            ending: Ending::Status(0),
            verified: Some(true),
        }
    }

    fn result(programs: Vec<ProgramResult>) -> MixResult {
        MixResult {
            title: "t".into(),
            policy: "equal parts (EQ)".into(),
            placement: "affinity".into(),
            turns: "SIGSTOP".into(),
            cpus: "0-1".parse().unwrap(),
            end_ns: 10 * S,
            own_cpu_ns: 1,
            foreign_share: Some(0.01),
            programs,
            plans: vec![PlanAt { at_ns: 0, plan: "a on 0-1".parse().unwrap() }],
        }
    }

    #[test]
    fn the_makespan_counts_no_time_in_which_nobody_is_present() {
        let gap =
            [program("a", 0, 2 * S, None), program("b", S, 3 * S, None), program("c", 7 * S, 8 * S, None)];
        assert_eq!(result(gap.to_vec()).makespan_ns(), 4 * S);
        let inside = [program("a", 0, 9 * S, None), program("b", S, 3 * S, None)];
        assert_eq!(result(inside.to_vec()).makespan_ns(), 9 * S);
    }

    #[test]
    fn means_are_given_only_where_every_program_has_a_slowdown() {
        let all = result(vec![program("a", 0, 2 * S, Some(S)), program("b", 0, 4 * S, Some(S))]);
        assert_eq!((all.antt(), all.stp(), all.max_slowdown()), (Some(3.0), Some(0.75), Some(4.0)));
        let mut failed = all.programs;
        failed[1].ending = Ending::Signal(11);
        let failed = result(failed);
        assert_eq!((failed.antt(), failed.stp(), failed.failed_count()), (None, None, 1));
        assert!(failed.table().contains("b: killed by signal 11"));
    }

    #[test]
    fn a_time_alone_above_the_response_time_is_no_slowdown() {
        let faster = result(vec![program("a", 0, 9 * S, Some(10 * S)), program("b", 0, 4 * S, Some(S))]);
        assert_eq!((faster.programs[0].slowdown(), faster.antt(), faster.stp()), (None, None, None));
        let table = faster.table();
        assert!(table.contains("no slowdown   a: ") && !table.contains("0.90"), "{table}");
        // One run alone is not that exact.
        assert_eq!(program("a", 0, 97 * S, Some(100 * S)).slowdown(), Some(0.97));
    }

    #[test]
    fn disturbed_measurements_are_marked() {
        let mut alone = program("a", 0, 2 * S, Some(S));
        alone.alone_foreign_share = Some(0.48);
        let shown = result(vec![alone, program("b", 0, 4 * S, Some(S))]).table();
        assert!(shown.contains("2.00*") && shown.contains("48% while a ran alone"), "{shown}");
        assert!(shown.contains("4.00 ") && !shown.contains("4.00*"), "{shown}");
        let mut mix = result(vec![program("a", 0, 2 * S, Some(S))]);
        mix.foreign_share = Some(0.25);
        assert!(
            mix.table().contains("2.00*") && mix.table().contains("25% during the mix"),
            "{}",
            mix.table()
        );
    }

    #[test]
    fn a_wrong_result_is_a_failure_whatever_the_exit_status() {
        let mut wrong = program("a", 0, S, Some(S));
        wrong.verified = Some(false);
        assert!(!wrong.succeeded() && wrong.slowdown().is_none());
    }

    #[test]
    fn json_and_csv_hold_the_same_figures_in_seconds() {
        let result = result(vec![program("a", S / 2, 2 * S, Some(S))]);
        let json = result.json();
        assert_eq!(json["programs"][0]["response_s"], 1.5);
        assert_eq!(json["programs"][0]["widths_s"], serde_json::json!({"1": 1.0, "2": 3.0}));
        assert_eq!(json["plans"][0]["plan"], "a on 0-1");
        let csv = result.csv();
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(lines[0].split(',').count(), 17);
        assert!(
            lines[1].starts_with("a,a,\"./a 'a,\"\"b'\",0.500000,0.000000,1.500000,1.000000,1.500000,3,"),
            "{csv}"
        );
        assert!(lines[1].ends_with(",1.750000,1.000000,7,VERIFIED,true"), "{csv}");
    }
}
