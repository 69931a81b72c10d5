//! The program's end: submits tasks, is told where their kernels run, and runs them itself.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::messages::{Answer, Offer, Request, Shown, Started, VERSION};

/// What went wrong between a program and the service.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens there.
    #[error("no offload service runs at {path}: {error}")]
    NotThere {
        /// Where.
        path: String,
        /// As the system put it.
        error: io::Error,
    },
    /// It went, or the connection broke.
    #[error("the offload service has gone: {0}")]
    Gone(io::Error),
    /// It says what this program does not understand.
    #[error("the offload service answered what cannot be read: {0}")]
    Unreadable(String),
    /// What was asked for is not done.
    #[error("{why}")]
    Refused {
        /// Which task, if it was about one.
        task: Option<u64>,
        /// Why.
        why: String,
    },
}

/// A connection to a service.
pub struct Client {
    stream: UnixStream,
    reader: BufReader<UnixStream>,
    resources: Vec<Shown>,
    next: u64,
    /// Starts that came while something else was waited for.
    started: VecDeque<Started>,
}

impl Client {
    /// Connects to the service that listens there; `program` is what it is called in reports.
    pub fn connect(path: &Path, program: &str) -> Result<Client, ClientError> {
        let not_there = |error| ClientError::NotThere { path: path.display().to_string(), error };
        Client::over(UnixStream::connect(path).map_err(not_there)?, program)
    }

    /// The same over a connection that is there, such as [`Server::connect`](crate::server::Server::connect).
    pub fn over(stream: UnixStream, program: &str) -> Result<Client, ClientError> {
        let reader = BufReader::new(stream.try_clone().map_err(ClientError::Gone)?);
        let (resources, started) = Default::default();
        let mut client = Client { stream, reader, resources, next: 0, started };
        client.send(&Request::Hello { version: VERSION, program: program.to_owned() })?;
        match client.receive()? {
            Answer::Hello { resources, .. } => {
                client.resources = resources;
                Ok(client)
            }
            other => Err(refusal(other)),
        }
    }

    /// What there is.
    pub fn resources(&self) -> &[Shown] {
        &self.resources
    }

    /// Submits a task with these kernels, the best first; its number.
    pub fn submit(&mut self, kernels: &[Offer]) -> Result<u64, ClientError> {
        let task = self.next;
        self.next += 1;
        self.send(&Request::Submit { task, kernels: kernels.to_vec() })?;
        Ok(task)
    }

    /// Waits until a kernel of one of its tasks is to start.
    pub fn wait(&mut self) -> Result<Started, ClientError> {
        if let Some(started) = self.started.pop_front() {
            return Ok(started);
        }
        match self.receive()? {
            Answer::Start(started) => Ok(started),
            other => Err(refusal(other)),
        }
    }

    /// A task has ended; before it has begun: it is given up.
    pub fn end(&mut self, task: u64) -> Result<(), ClientError> {
        self.send(&Request::Ended { task })
    }

    /// Submits a task, waits for its start, runs it and says that it has ended.
    pub fn run<T>(
        &mut self,
        kernels: &[Offer],
        kernel: impl FnOnce(&Started) -> T,
    ) -> Result<T, ClientError> {
        let task = self.submit(kernels)?;
        let started = loop {
            let started = self.wait()?;
            if started.task == task {
                break started;
            }
            self.started.push_back(started);
        };
        let value = kernel(&started);
        self.end(task)?;
        Ok(value)
    }

    /// Asks for something that is answered at once.
    pub fn ask(&mut self, request: &Request) -> Result<Answer, ClientError> {
        self.send(request)?;
        loop {
            match self.receive()? {
                Answer::Start(started) => self.started.push_back(started),
                Answer::Refused { task, why } => return Err(ClientError::Refused { task, why }),
                answer => return Ok(answer),
            }
        }
    }

    fn send(&mut self, request: &Request) -> Result<(), ClientError> {
        let mut line =
            serde_json::to_vec(request).map_err(|error| ClientError::Unreadable(error.to_string()))?;
        line.push(b'\n');
        self.stream.write_all(&line).map_err(ClientError::Gone)
    }

    fn receive(&mut self) -> Result<Answer, ClientError> {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(0) => Err(ClientError::Gone(io::ErrorKind::UnexpectedEof.into())),
            Ok(_) => serde_json::from_str(&line).map_err(|error| ClientError::Unreadable(error.to_string())),
            Err(error) => Err(ClientError::Gone(error)),
        }
    }
}

impl AsFd for Client {
    /// As long as it is open, here or in a process that inherited it, the program's tasks are.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn refusal(answer: Answer) -> ClientError {
    match answer {
        Answer::Refused { task, why } => ClientError::Refused { task, why },
        other => ClientError::Unreadable(format!("{other:?}")),
    }
}
