//! The service: programs connect over a Unix socket, a thread of its own decides.
//!
//! | thread | |
//! |---|---|
//! | decider | owns the [`Registrar`] (strategies stay in one thread); takes messages in order |
//! | acceptor | takes connections in |
//! | reader, writer | two for each program; a program that does not read what it is told loses its connection |

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use policy::Failed;

use crate::messages::{Answer, MOST_BYTES, Request};
use crate::registrar::{Answers, ProgramId, Registrar};

/// Answers that a program has not read; with more it loses its connection.
const MOST_UNREAD: usize = 16_384;
/// Messages that are not handled yet; with more, programs wait.
const MOST_UNHANDLED: usize = 4096;
/// Programs at a time.
const MOST_PROGRAMS: usize = 1024;
/// How long the acceptor rests where no connection can be taken in.
const PAUSE: Duration = Duration::from_millis(50);

enum Message {
    Joined(ProgramId, Outbox),
    Asked(ProgramId, Request),
    /// It went, or lost its connection by a line that cannot be read: what is wrong with that.
    Gone(ProgramId, Option<String>),
    Stop,
}

/// Where answers to one program go.
struct Outbox {
    lines: SyncSender<Answer>,
    stream: UnixStream,
}

/// A service that runs; drop ends it.
pub struct Server {
    sender: SyncSender<Message>,
    intake: Intake,
    decider: Option<JoinHandle<()>>,
    acceptor: Option<(JoinHandle<()>, std::path::PathBuf)>,
}

/// Takes connections in, from any thread.
#[derive(Clone)]
struct Intake {
    sender: SyncSender<Message>,
    next: Arc<AtomicU64>,
    present: Arc<AtomicU64>,
    stops: Arc<AtomicBool>,
}

impl Server {
    /// Starts a service that decides by what `make` returns, which is called in the thread that decides.
    pub fn start(
        make: impl FnOnce() -> Result<Registrar, Failed> + Send + 'static,
    ) -> Result<Server, Failed> {
        let (sender, messages) = mpsc::sync_channel(MOST_UNHANDLED);
        let (made, is_made) = mpsc::channel();
        let decider = std::thread::Builder::new().name("offload".into()).spawn(move || match make() {
            Ok(registrar) => {
                let _ = made.send(Ok(()));
                Decider::new(registrar, messages).run();
            }
            Err(why) => drop(made.send(Err(why))),
        });
        let decider = decider.map_err(|error| Failed(format!("no thread can be started: {error}")))?;
        is_made.recv().unwrap_or_else(|_| Err(Failed("the thread that decides has ended".into())))?;
        let intake = Intake {
            sender: sender.clone(),
            next: Arc::default(),
            present: Arc::default(),
            stops: Arc::default(),
        };
        Ok(Server { sender, intake, decider: Some(decider), acceptor: None })
    }

    /// Also takes in whoever connects to this socket.
    pub fn listen(&mut self, listener: UnixListener) -> io::Result<()> {
        let path = listener.local_addr()?.as_pathname().map(ToOwned::to_owned).unwrap_or_default();
        let intake = self.intake.clone();
        let acceptor = std::thread::Builder::new().name("offload-accept".into()).spawn(move || {
            for stream in listener.incoming() {
                if intake.stops.load(Ordering::Acquire) {
                    return;
                }
                // Out of descriptors or threads: those who wait are taken in later.
                if stream.and_then(|stream| intake.admit(stream)).is_err() {
                    std::thread::sleep(PAUSE);
                }
            }
        })?;
        self.acceptor = Some((acceptor, path));
        Ok(())
    }

    /// A connection to it without a socket in the file system.
    pub fn connect(&self) -> io::Result<UnixStream> {
        let (theirs, ours) = UnixStream::pair()?;
        self.intake.admit(ours)?;
        Ok(theirs)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.intake.stops.store(true, Ordering::Release);
        let _ = self.sender.send(Message::Stop);
        if let Some((acceptor, path)) = self.acceptor.take() {
            // Wakes it; where that fails it stays behind, and takes nobody in.
            if UnixStream::connect(&path).is_ok() {
                let _ = acceptor.join();
            }
            let _ = std::fs::remove_file(path);
        }
        if let Some(decider) = self.decider.take() {
            let _ = decider.join();
        }
    }
}

impl Intake {
    fn admit(&self, stream: UnixStream) -> io::Result<()> {
        if self.present.load(Ordering::Acquire) >= MOST_PROGRAMS as u64 {
            let why = format!("{MOST_PROGRAMS} programs are connected already");
            return write_line(&stream, &Answer::Refused { task: None, why });
        }
        let id = self.next.fetch_add(1, Ordering::AcqRel);
        let (lines, answers) = mpsc::sync_channel(MOST_UNREAD);
        let (to_read, to_write) = (stream.try_clone()?, stream.try_clone()?);
        std::thread::Builder::new()
            .name("offload-write".into())
            .spawn(move || write_all(&to_write, &answers))?;
        self.present.fetch_add(1, Ordering::AcqRel);
        let _ = self.sender.send(Message::Joined(id, Outbox { lines, stream }));
        let intake = self.clone();
        let reader = std::thread::Builder::new().name("offload-read".into()).spawn(move || {
            let wrong = read_all(&to_read, |request| drop(intake.sender.send(Message::Asked(id, request))));
            intake.present.fetch_sub(1, Ordering::AcqRel);
            let _ = intake.sender.send(Message::Gone(id, wrong));
        });
        if let Err(error) = reader {
            self.present.fetch_sub(1, Ordering::AcqRel);
            let _ = self.sender.send(Message::Gone(id, None));
            return Err(error);
        }
        Ok(())
    }
}

fn write_line(mut stream: &UnixStream, answer: &Answer) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    stream.write_all(&line)
}

fn write_all(stream: &UnixStream, answers: &Receiver<Answer>) {
    while let Ok(answer) = answers.recv() {
        if write_line(stream, &answer).is_err() {
            break;
        }
    }
    // Its reader ends by that, too.
    let _ = stream.shutdown(Shutdown::Both);
}

/// Reads until the program goes. Returns what is wrong with its last line, if anything is.
fn read_all(stream: &UnixStream, mut request: impl FnMut(Request)) -> Option<String> {
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        let limit = MOST_BYTES as u64 + 1;
        match reader.by_ref().take(limit).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return None,
            Ok(_) if line.len() > MOST_BYTES => {
                return Some(format!("a line has more than {MOST_BYTES} bytes"));
            }
            // The rest of what it said when it went.
            Ok(_) if line.last() != Some(&b'\n') => return None,
            Ok(_) => {}
        }
        match serde_json::from_slice(&line) {
            Ok(read) => request(read),
            Err(error) => return Some(format!("a line cannot be read: {error}")),
        }
    }
}

struct Decider {
    registrar: Registrar,
    messages: Receiver<Message>,
    outboxes: BTreeMap<ProgramId, Outbox>,
    began: Instant,
    tick_at: Option<Instant>,
}

impl Decider {
    fn new(registrar: Registrar, messages: Receiver<Message>) -> Decider {
        Decider { registrar, messages, outboxes: BTreeMap::new(), began: Instant::now(), tick_at: None }
    }

    fn run(mut self) {
        self.set_tick(Instant::now());
        loop {
            let message = match self.tick_at {
                Some(at) => self.messages.recv_timeout(at.saturating_duration_since(Instant::now())),
                None => self.messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            let now_ns = self.began.elapsed().as_nanos() as u64;
            match message {
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => break,
                Ok(message) => self.handle(message, now_ns),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let now = Instant::now();
            if self.tick_at.is_some_and(|at| at <= now) {
                let answers = self.registrar.tick(now_ns);
                self.send(answers);
                self.set_tick(now);
            }
        }
        for outbox in self.outboxes.values() {
            let _ = outbox.stream.shutdown(Shutdown::Both);
        }
    }

    fn set_tick(&mut self, now: Instant) {
        self.tick_at = self.registrar.tick_ns().map(|ns| now + Duration::from_nanos(ns));
    }

    fn handle(&mut self, message: Message, now_ns: u64) {
        match message {
            Message::Joined(id, outbox) => {
                self.registrar.join(id);
                self.outboxes.insert(id, outbox);
            }
            Message::Asked(id, request) => {
                let is_swap = matches!(request, Request::SetStrategy { .. });
                let answers = self.registrar.handle(id, request, now_ns);
                self.send(answers);
                if is_swap {
                    self.set_tick(Instant::now());
                }
            }
            Message::Gone(id, wrong) => {
                if let Some(why) = wrong {
                    self.send(vec![(id, Answer::Refused { task: None, why })]);
                }
                // Its writer ends with what is still to be said.
                self.outboxes.remove(&id);
                let answers = self.registrar.leave(id, now_ns);
                self.send(answers);
            }
            Message::Stop => {}
        }
    }

    fn send(&mut self, answers: Answers) {
        for (id, answer) in answers {
            let Some(outbox) = self.outboxes.get(&id) else { continue };
            if outbox.lines.try_send(answer).is_err() {
                // It does not read. Its reader says that it has gone.
                let _ = outbox.stream.shutdown(Shutdown::Both);
            }
        }
    }
}
