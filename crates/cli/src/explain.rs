//! `coplace explain`: why it is so.

mod news;

use std::process::ExitCode;

use protocol::{Explanation, FromScheduler, HistoryEntry, News, ToScheduler};
use workload::AppId;

use crate::exit::{Failure, Outcome};
use crate::scheduler;

/// Explains the plan in force, for all programs or for one
#[derive(clap::Args)]
#[command(
    long_about = "Explains the plan in force, for all programs or for one.

Prints what happened most recently, and then the plan with the policy's reasons. For one program it says \
why the program runs where it does, with that many threads, or what it waits for.",
    after_long_help = "Exit status: 0; 1 no scheduler runs; 2 the scheduler does not know the program.

Example:
  coplace explain cg"
)]
pub struct Args {
    /// The program, as `coplace status` names it [default: all programs]
    app: Option<AppId>,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
}

pub fn main(args: &Args) -> Outcome {
    let request = ToScheduler::Explain { id: args.app.clone() };
    let answer = scheduler::ask(&request, |m| matches!(m, FromScheduler::Explanation { .. }))?;
    let FromScheduler::Explanation { explanation } = answer else {
        return Err(Failure::ours("the scheduler answered something other than an explanation"));
    };
    if args.json {
        println!("{:#}", json(&explanation).map_err(Failure::ours)?);
    } else {
        lines(&explanation).iter().for_each(|line| println!("{line}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// What was sent, and beside each entry of the history how much it matters.
fn json(explanation: &Explanation) -> serde_json::Result<serde_json::Value> {
    let mut value = serde_json::to_value(explanation)?;
    let entries = value["history"].as_array_mut().into_iter().flatten();
    for (entry, known) in entries.zip(&explanation.history) {
        entry["severity"] = serde_json::to_value(known.news.severity())?;
    }
    Ok(value)
}

fn lines(explanation: &Explanation) -> Vec<String> {
    let app = explanation.app.as_ref().map(|app| &app.id);
    let mut lines: Vec<String> =
        explanation.history.iter().flat_map(|entry| render_entry(entry, app)).collect();
    lines.push(format!("now: {}", explanation.plan));
    lines.extend(explanation.report.lines().iter().map(|line| format!("  {line}")));
    if let Some(app) = &explanation.app {
        lines.extend(app.waits_for.iter().map(|why| format!("  it waits: {why}")));
        lines.extend(app.waiting.iter().map(|how| format!("  its threads were told to wait {how}")));
        lines.extend(app.moved.iter().map(|why| format!("  it was moved: {why}")));
    }
    lines
}

/// One entry, and below a plan what was said of it; of `app` alone, if one is asked about.
fn render_entry(entry: &HistoryEntry, app: Option<&AppId>) -> Vec<String> {
    let at_s = entry.at_ns as f64 / 1e9;
    let mut lines = vec![format!("{at_s:9.3} s  {}", news::sentence(&entry.news))];
    if let News::Plan { report, .. } = &entry.news {
        let remarks = report.remarks.iter().filter(|remark| app.is_none_or(|app| remark.concerns(app)));
        lines.extend(remarks.map(|remark| format!("{:13}  {remark}", "")));
    }
    lines
}

#[cfg(test)]
mod tests {
    use plan::{Remark, Report};
    use protocol::AppExplanation;

    use super::*;

    fn id(name: &str) -> AppId {
        AppId::new(name).unwrap()
    }

    fn explanation(app: Option<&str>) -> Explanation {
        let remarks = vec![Remark::LevelsInTurn, Remark::TooWide { apps: vec![id("a")], slots: 2 }];
        let report = Report { remarks, ..Report::default() };
        let plan: plan::Plan = "in_turn [20ms a on 0-1, 20ms b on 0-1]".parse().unwrap();
        let news = News::Plan { plan: plan.clone(), report: report.clone() };
        let app = app.map(|app| AppExplanation {
            id: id(app),
            waits_for: None,
            waiting: Some("passively, as asked".into()),
            moved: None,
        });
        Explanation { history: vec![HistoryEntry { at_ns: 12_000_000, news }], plan, report, app }
    }

    #[test]
    fn an_explanation_of_all_shows_each_remark() {
        assert_eq!(
            lines(&explanation(None)),
            [
                "    0.012 s  plan: in_turn strict [20ms a on 0-1, 20ms b on 0-1]",
                "               These levels take turns, weighted so that all get the same CPU time.",
                "               a: cannot shrink to an equal part; 2 slots take turns.",
                "now: in_turn strict [20ms a on 0-1, 20ms b on 0-1]",
                "  These levels take turns, weighted so that all get the same CPU time.",
                "  a: cannot shrink to an equal part; 2 slots take turns.",
            ]
        );
    }

    #[test]
    fn the_history_of_one_program_leaves_others_remarks_out() {
        let lines = lines(&explanation(Some("b")));
        assert_eq!(lines[1], "now: in_turn strict [20ms a on 0-1, 20ms b on 0-1]");
        assert_eq!(lines.last().unwrap(), "  its threads were told to wait passively, as asked");
    }

    #[test]
    fn json_has_the_severity_of_each_entry() {
        let value = json(&explanation(None)).unwrap();
        assert_eq!(value["history"][0]["severity"], "info");
        assert_eq!(
            value["history"][0]["news"]["plan"]["plan"],
            "in_turn strict [20ms a on 0-1, 20ms b on 0-1]"
        );
    }
}
