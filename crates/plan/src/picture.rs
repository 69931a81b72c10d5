//! A plan as a picture in text: a row a CPU, columns are time over one period.

use std::collections::BTreeMap;
use std::fmt::Write;

use workload::AppId;

use crate::{Plan, display_ns};

const LETTERS: &str = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

impl Plan {
    /// The CPUs that the plan uses, each over one period in `columns` characters, sampled at their
    /// left edges; a letter a program (`?` from the 63rd on), `*` where several share, `.` idle.
    /// Where nothing takes turns the columns are all alike. Ends with a newline.
    pub fn picture(&self, columns: usize) -> String {
        let columns = columns.max(1);
        let period_ns = self.period_ns();
        let mut letters: BTreeMap<&AppId, char> = BTreeMap::new();
        let mut names = Vec::new();
        let mut left = LETTERS.chars();
        self.for_each_run(&mut |run| {
            letters.entry(&run.app).or_insert_with(|| {
                let letter = left.next().unwrap_or('?');
                names.push(format!("{letter} = {}", run.app));
                letter
            });
        });
        let place = self.place();
        let mut rows: BTreeMap<u32, Vec<char>> = place.iter().map(|cpu| (cpu, vec!['.'; columns])).collect();
        for column in 0..columns {
            let phase_ns = u128::from(period_ns) * column as u128 / columns as u128;
            for run in self.running_at(phase_ns as u64) {
                for cpu in run.place.iter() {
                    let Some(cell) = rows.get_mut(&cpu).map(|row| &mut row[column]) else { continue };
                    *cell = if *cell == '.' { letters[&run.app] } else { '*' };
                }
            }
        }
        let mut text = String::new();
        if !rows.is_empty() {
            let end = if period_ns == 0 { String::new() } else { display_ns(period_ns).to_string() };
            let _ = writeln!(text, "{}", format!("{:<5}{:<columns$}{end}", "CPU", "0").trim_end());
        }
        for (cpu, row) in &rows {
            let _ = writeln!(text, "{cpu:<5}{}", row.iter().collect::<String>());
        }
        let marks = [('*', "shared"), ('.', "idle")];
        for (mark, meaning) in marks {
            if rows.values().flatten().any(|&cell| cell == mark) {
                names.push(format!("{mark} = {meaning}"));
            }
        }
        let mut parts: Vec<String> = (!names.is_empty()).then(|| names.join(", ")).into_iter().collect();
        for (title, apps) in [("waiting", &self.waiting), ("suspended", &self.suspended)] {
            if !apps.is_empty() {
                let apps: Vec<&str> = apps.iter().map(AppId::as_str).collect();
                parts.push(format!("{title}: {}", apps.join(", ")));
            }
        }
        if rows.is_empty() {
            parts.insert(0, "nothing runs".to_owned());
        }
        let _ = writeln!(text, "{}", parts.join("; "));
        text
    }
}
