//! The client's side of a connection.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::Duration;

use linux::clock::now_ns;
use linux::host::{self, Stream};

use crate::line::{LineError, Lines};
use crate::message::{FromScheduler, Role, ToScheduler, VERSION};

/// Why a connection to a scheduler, or a request, failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens at the socket, or it cannot be connected to.
    #[error("no scheduler answers at {path}: {error}")]
    NotThere {
        /// Path of the socket.
        path: String,
        /// Why connecting failed.
        error: io::Error,
    },
    /// Reading or writing failed, no answer came in time, or what came is no message.
    #[error(transparent)]
    Line(#[from] LineError),
    /// The scheduler closed the connection.
    #[error("the scheduler ended the connection")]
    Ended,
    /// The scheduler gave an answer that was not expected.
    #[error("the scheduler gave an unexpected answer")]
    Unexpected,
    /// The scheduler greeted with another version than [`VERSION`].
    #[error(
        "the scheduler speaks version {theirs} of the protocol and this coplace version {VERSION}; use one coplace for both"
    )]
    Version {
        /// The version that the scheduler speaks.
        theirs: u32,
    },
    /// The scheduler refused the greeting, as it does where it speaks another version; what it said, with both versions.
    #[error("{0}")]
    GreetingRefused(String),
    /// What the scheduler said against the request ([`FromScheduler::Refused`]).
    #[error("{0}")]
    Refused(String),
}

impl ClientError {
    /// Whether the scheduler is gone, or may be: the next attempt may find another. What it said itself (a
    /// refusal, another version, no message of ours) it would say again.
    pub fn is_lost(&self) -> bool {
        match self {
            ClientError::NotThere { .. } | ClientError::Ended | ClientError::Line(LineError::Io(_)) => true,
            ClientError::Line(LineError::Json(_) | LineError::TooLong)
            | ClientError::Unexpected
            | ClientError::Version { .. }
            | ClientError::GreetingRefused(_)
            | ClientError::Refused(_) => false,
        }
    }
}

/// A connection to a scheduler.
pub struct Client {
    stream: Box<dyn Stream>,
    lines: Lines,
    answer_within: Duration,
    /// What kind of scheduler answered, by its `Hello`.
    pub role: Role,
    /// Its process ID, by its `Hello`; of a leader that of the `coplace run` or `mix`.
    pub scheduler_pid: u32,
}

/// How long a scheduler may take for an answer before it counts as gone. Above the time for which
/// a busy machine can keep it from running, below the second within which a guard must act.
const ANSWER_WITHIN: Duration = Duration::from_millis(800);

/// A wait is made of short ones: a machine that stood still for long, as a virtual one may, has kept
/// the scheduler from answering as well, and counts as one of them.
const SHORT: Duration = Duration::from_millis(100);

impl Client {
    /// For members, whose programs depend on a scheduler that acts.
    pub fn connect(socket: &Path) -> Result<Client, ClientError> {
        Client::connect_within(socket, ANSWER_WITHIN)
    }

    /// The same where nothing depends on how soon each answer comes.
    pub fn connect_within(socket: &Path, answer_within: Duration) -> Result<Client, ClientError> {
        let stream = host::with(|host| host.connect(socket))
            .map_err(|error| ClientError::NotThere { path: socket.display().to_string(), error })?;
        stream.set_patience(Some(SHORT), Some(answer_within)).map_err(LineError::Io)?;
        let mut client =
            Client { stream, lines: Lines::default(), answer_within, role: Role::Leader, scheduler_pid: 0 };
        client.send(&ToScheduler::Hello { version: VERSION, pid: host::own_pid() })?;
        match client.receive()? {
            FromScheduler::Hello { version: VERSION, pid, role } => {
                client.role = role;
                client.scheduler_pid = pid;
                Ok(client)
            }
            FromScheduler::Hello { version, .. } => Err(ClientError::Version { theirs: version }),
            FromScheduler::Refused { why } => Err(ClientError::GreetingRefused(why)),
            _ => Err(ClientError::Unexpected),
        }
    }

    /// Sends without waiting for an answer. [`ClientError::Ended`]: the scheduler closed the connection;
    /// [`ClientError::Line`]: writing failed, or the socket stayed full for as long as an answer may take.
    pub fn send(&mut self, message: &ToScheduler) -> Result<(), ClientError> {
        let mut line = serde_json::to_vec(message).map_err(LineError::Json)?;
        line.push(b'\n');
        self.stream.write_all(&line).map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => ClientError::Ended,
            _ => LineError::Io(error).into(),
        })
    }

    /// Answers may take longer from now on: what is asked for is work that the machine itself may
    /// hold up. Returns how long they could take before.
    pub fn set_patience(&mut self, answer_within: Duration) -> Duration {
        std::mem::replace(&mut self.answer_within, answer_within)
    }

    /// Waits for the next message (at most the time that a living scheduler needs).
    pub fn receive(&mut self) -> Result<FromScheduler, ClientError> {
        let mut waited = Duration::ZERO;
        loop {
            if let Some(message) = self.lines.next_message()? {
                return Ok(message);
            }
            if self.lines.ended() {
                return Err(ClientError::Ended);
            }
            if waited >= self.answer_within {
                let error = io::Error::new(io::ErrorKind::TimedOut, "the scheduler does not answer");
                return Err(LineError::Io(error).into());
            }
            let began_ns = now_ns();
            self.lines.fill(&mut self.stream)?;
            waited += Duration::from_nanos(now_ns() - began_ns).min(SHORT * 3 / 2);
        }
    }

    /// Readable when something has come; `None` in a model.
    pub fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        self.stream.as_fd()
    }

    /// What has come without waiting; call it when [`Client::poll_fd`] is readable.
    pub fn drain(&mut self) -> Result<Vec<FromScheduler>, ClientError> {
        self.stream.set_patience(Some(Duration::ZERO), None).map_err(LineError::Io)?;
        let filled = self.lines.fill(&mut self.stream);
        self.stream.set_patience(Some(SHORT), Some(self.answer_within)).map_err(LineError::Io)?;
        filled?;
        let mut messages = Vec::new();
        while let Some(message) = self.lines.next_message()? {
            messages.push(message);
        }
        if messages.is_empty() && self.lines.ended() { Err(ClientError::Ended) } else { Ok(messages) }
    }

    /// Sends a request and waits for its answer; what arrives meanwhile goes to `aside`.
    pub fn ask(
        &mut self,
        request: &ToScheduler,
        aside: &mut Vec<FromScheduler>,
        is_answer: impl Fn(&FromScheduler) -> bool,
    ) -> Result<FromScheduler, ClientError> {
        self.send(request)?;
        loop {
            match self.receive()? {
                FromScheduler::Refused { why } => return Err(ClientError::Refused(why)),
                message if is_answer(&message) => return Ok(message),
                message => aside.push(message),
            }
        }
    }
}
