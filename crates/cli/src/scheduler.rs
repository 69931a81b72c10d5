//! The way to the scheduler that runs, for the commands that only ask.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use node::home::Home;
use node::lease::Lease;
use protocol::{Client, ClientError, FromScheduler, ToScheduler};

use crate::exit::{DOES_NOT_HOLD, Failure};

/// What to say when nobody schedules: not an error of anybody, and what to do.
const NOBODY: &str = "no scheduler runs: nothing is under coplace now. `coplace run PROGRAM` starts one for \
                      as long as the program lasts, `coplace daemon` one that stays";

/// What a daemon may take until it is there, and for each answer, on a machine full of spinning threads.
const PATIENCE: Duration = Duration::from_secs(5);
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(20);

pub fn connect() -> Result<Client, Failure> {
    find_scheduler()?.ok_or_else(|| Failure::new(DOES_NOT_HOLD, NOBODY))
}

/// The same for who was typed together with a daemon that is only starting.
pub fn connect_soon() -> Result<Client, Failure> {
    let began = Instant::now();
    loop {
        match find_scheduler()? {
            Some(client) => return Ok(client),
            None if began.elapsed() < PATIENCE => std::thread::sleep(BETWEEN_ATTEMPTS),
            None => return Err(Failure::new(DOES_NOT_HOLD, NOBODY)),
        }
    }
}

/// `None`: nobody schedules.
fn find_scheduler() -> Result<Option<Client>, Failure> {
    let home = Home::find().map_err(Failure::ours)?;
    match connect_to(&home) {
        // A mix schedules in a home of its own.
        Ok(None) => Ok(mixes(&home).iter().find_map(|socket| Client::connect_within(socket, PATIENCE).ok())),
        found => found,
    }
}

/// `None`: nobody schedules here. One that begins, or hands over to another, holds programs while it cannot be asked:
/// its lease says so, and it is waited for.
fn connect_to(home: &Home) -> Result<Option<Client>, Failure> {
    let began = Instant::now();
    loop {
        match Client::connect_within(&home.socket(), PATIENCE) {
            Ok(client) => return Ok(Some(client)),
            Err(ClientError::NotThere { error, .. })
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) =>
            {
                if began.elapsed() > PATIENCE || !Lease::is_fresh(home) {
                    return Ok(None);
                }
            }
            Err(other) => return Err(client_failure(other)),
        }
        std::thread::sleep(BETWEEN_ATTEMPTS);
    }
}

/// Where a mix that runs under this home has its own.
pub fn mix_directory(home: &Home, pid: u32) -> PathBuf {
    let parent = if home.may_schedule() { home.path().to_owned() } else { std::env::temp_dir() };
    parent.join(format!("mix.{pid}"))
}

/// The mixes that run or ran here, by process.
pub fn mix_directories(home: &Home) -> Vec<(u32, PathBuf)> {
    let parent = mix_directory(home, 0).parent().map(PathBuf::from).unwrap_or_default();
    let mut found: Vec<(u32, PathBuf)> = std::fs::read_dir(parent)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.strip_prefix("mix.")?.parse().ok()?;
            Some((pid, entry.path()))
        })
        .collect();
    found.sort();
    found
}

fn mixes(home: &Home) -> Vec<PathBuf> {
    mix_directories(home).into_iter().map(|(_, path)| path.join("home/socket")).collect()
}

/// Asks one question. A refusal is an answer (bad input), anything else a failure of ours.
pub fn ask(
    request: &ToScheduler,
    is_answer: impl Fn(&FromScheduler) -> bool,
) -> Result<FromScheduler, Failure> {
    connect()?.ask(request, &mut Vec::new(), is_answer).map_err(client_failure)
}

fn client_failure(error: ClientError) -> Failure {
    match error {
        ClientError::Refused(why) => Failure::bad_input(why),
        other => Failure::ours(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheduler_that_hands_over_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::at(directory.path()).unwrap();
        let lease = Lease::acquire(&home).unwrap();
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| connect_to(&home).map(|found| found.is_some()));
            for _ in 0..20 {
                lease.beat();
                std::thread::sleep(BETWEEN_ATTEMPTS);
            }
            assert!(!asking.is_finished() || lease.was_late());
            drop(lease);
            assert!(!asking.join().unwrap().unwrap());
        });
    }
}
