//! The one line that shows how far a mix has come; on a terminal only.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

pub struct Progress(ProgressBar);

impl Progress {
    pub fn new(programs: usize, quiet: bool) -> Progress {
        let bar = ProgressBar::new(programs as u64);
        if quiet || !std::io::stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        let style = ProgressStyle::with_template("{elapsed:>4} {bar:20} {pos}/{len} done  {wide_msg}")
            .expect("the template is one of ours");
        bar.set_style(style.progress_chars("━╸ "));
        bar.enable_steady_tick(Duration::from_millis(500));
        Progress(bar)
    }

    /// One line of a program, above the bar.
    pub fn print(&self, name: &str, line: &str) {
        // Where stderr takes nothing any more nothing is shown, and the programs go on.
        self.0.suspend(|| drop(writeln!(std::io::stderr(), "{name} │ {line}")));
    }

    pub fn update(&self, done: usize, running: &[String], waiting: &[String]) {
        self.0.set_position(done as u64);
        let mut parts = Vec::new();
        if !running.is_empty() {
            parts.push(format!("running {}", running.join(" ")));
        }
        if !waiting.is_empty() {
            parts.push(format!("waiting {}", waiting.join(" ")));
        }
        self.0.set_message(parts.join(", "));
    }

    pub fn end(&self) {
        self.0.finish_and_clear();
    }
}

/// Columns of the terminal on stdout, and whether it takes colours.
pub fn terminal() -> (usize, bool) {
    let stdout = std::io::stdout();
    if !stdout.is_terminal() {
        return (100, false);
    }
    let columns = rustix::termios::tcgetwinsize(&stdout).map_or(0, |size| usize::from(size.ws_col));
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
        || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    (if columns > 0 { columns } else { 100 }, !plain)
}
