//! The way to the scheduler that runs, for the commands that only ask.

use node::home::Home;
use protocol::{Client, ClientError, FromScheduler, ToScheduler};

use crate::exit::{DOES_NOT_HOLD, Failure};

/// What to say when nobody schedules: not an error of anybody, and what to do.
const NOBODY: &str = "no scheduler runs: nothing is under coplace now. `coplace run PROGRAM` starts one for \
                      as long as the program lasts, `coplace daemon` one that stays";

pub fn connect() -> Result<Client, Failure> {
    let home = Home::find().map_err(Failure::ours)?;
    Client::connect(&home.socket()).map_err(|error| match error {
        ClientError::NotThere { error, .. }
            if matches!(
                error.kind(),
                std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused
            ) =>
        {
            Failure::new(DOES_NOT_HOLD, NOBODY)
        }
        other => told(other),
    })
}

/// Asks one question. A refusal is an answer (bad input), anything else a failure of ours.
pub fn ask(
    request: &ToScheduler,
    is_answer: impl Fn(&FromScheduler) -> bool,
) -> Result<FromScheduler, Failure> {
    connect()?.ask(request, &mut Vec::new(), is_answer).map_err(told)
}

fn told(error: ClientError) -> Failure {
    match error {
        ClientError::Refused(why) => Failure::bad_input(why),
        other => Failure::ours(other),
    }
}
