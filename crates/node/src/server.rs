//! The scheduler's end of the socket: accepts peers, reads whole messages, never blocks.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use linux::host::{self, Listener, Stream};
use protocol::{FromScheduler, Lines, Role, ToScheduler, VERSION};

use crate::home::Home;

/// A connection, numbered in order of acceptance and never reused.
pub type PeerId = u64;

/// Answers that a peer has not read yet; one that lets more than this pile up is dropped.
const MAX_BACKLOG: usize = 8 << 20;

struct Peer {
    stream: Box<dyn Stream>,
    lines: Lines,
    uid: u32,
    greeted: bool,
    unsent: Vec<u8>,
}

/// What a peer did.
#[derive(Debug)]
pub enum Incoming {
    Message(ToScheduler),
    Gone,
}

pub struct Server {
    /// `None`: nobody is taken in any more.
    listener: Option<Box<dyn Listener>>,
    home: Home,
    role: Role,
    peers: BTreeMap<PeerId, Peer>,
    next: PeerId,
}

impl Server {
    /// Listens at the home's socket. The caller holds the scheduler's lock, so a socket that lies
    /// there is stale. In the system's home, `group` says whose members alone may connect (a gid).
    pub fn bind(home: Home, role: Role, group: Option<u32>) -> io::Result<Server> {
        let path = home.socket();
        let context = |what: &str, error: io::Error| {
            io::Error::new(error.kind(), format!("cannot {what} {}: {error}", path.display()))
        };
        match host::with(|host| host.remove_file(&path)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(context("remove the stale socket", error));
            }
            _ => {}
        }
        let group = group.filter(|_| home.is_for_everybody());
        let mode = if home.is_for_everybody() && group.is_none() { 0o666 } else { 0o600 };
        let listener =
            host::with(|host| host.listen(&path, mode)).map_err(|error| context("listen at", error))?;
        if let Some(group) = group {
            open_to_group(&path, group)
                .map_err(|error| context(&format!("let members of group {group} connect to"), error))?;
        }
        Ok(Server { listener: Some(listener), home, role, peers: BTreeMap::new(), next: 1 })
    }

    /// What to poll for reading, and those for writing as well.
    pub fn fds(&self) -> Vec<(BorrowedFd<'_>, bool)> {
        let peers = self.peers.values().map(|peer| (peer.stream.as_fd(), !peer.unsent.is_empty()));
        let all = self.listener.iter().map(|listener| (listener.as_fd(), false)).chain(peers);
        all.filter_map(|(fd, writes)| Some((fd?, writes))).collect()
    }

    pub fn uid(&self, peer: PeerId) -> Option<u32> {
        self.peers.get(&peer).map(|peer| peer.uid)
    }

    /// Everything that peers said since the last call.
    pub fn pump(&mut self) -> Vec<(PeerId, Incoming)> {
        self.accept();
        let mut messages = Vec::new();
        self.peers.retain(|&id, peer| {
            let first = messages.len();
            let lives = peer.flush().is_ok() && peer.read(id, self.role, &mut messages).is_ok();
            if !lives {
                drop_transient(&mut messages, first);
                // Before what later ones say: who comes back does so by another connection.
                messages.push((id, Incoming::Gone));
            }
            lives
        });
        messages
    }

    fn accept(&mut self) {
        // Any error but "nobody there" (out of descriptors, say) is met again at the next pump;
        // those who are connected go on.
        let Some(listener) = &self.listener else { return };
        while let Ok(stream) = listener.accept() {
            let never = Some(Duration::ZERO);
            let (Ok(()), Ok(uid)) = (stream.set_patience(never, never), stream.peer_uid()) else { continue };
            if !self.home.may_connect(uid) {
                continue;
            }
            let peer = Peer { stream, lines: Lines::default(), uid, greeted: false, unsent: Vec::new() };
            self.peers.insert(self.next, peer);
            self.next += 1;
        }
    }

    /// Takes in nobody any more: whoever comes now finds nobody at once, and tries again until the next
    /// scheduler is there, instead of waiting for an answer that does not come.
    pub fn stop_listening(&mut self) {
        if self.listener.take().is_some() {
            // Whoever leads next removes it otherwise.
            let _ = host::with(|host| host.remove_file(&self.home.socket()));
        }
    }

    /// Queues an answer; a peer that is gone meanwhile is noticed by the next pump.
    pub fn send(&mut self, peer: PeerId, message: &FromScheduler) {
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.queue(message);
            let _ = peer.flush();
        }
    }
}

/// From now on its members may connect, too: that takes the right to write the socket.
fn open_to_group(socket: &Path, group: u32) -> io::Result<()> {
    std::os::unix::fs::chown(socket, None, Some(group))?;
    fs::set_permissions(socket, fs::Permissions::from_mode(0o660))
}

/// Of who has hung up, what was true when it asked only: its program is stopped or continued. A scheduler that was late
/// would do that after the next connection has said how things stand.
fn drop_transient(messages: &mut Vec<(PeerId, Incoming)>, first: usize) {
    let passing = |incoming: &Incoming| {
        matches!(incoming, Incoming::Message(ToScheduler::Suspend { .. } | ToScheduler::Resume { .. }))
    };
    let mut at = 0;
    messages.retain(|(_, incoming)| {
        at += 1;
        at <= first || !passing(incoming)
    });
}

impl Drop for Server {
    fn drop(&mut self) {
        for peer in self.peers.values_mut() {
            let _ = peer.flush();
        }
        self.stop_listening();
    }
}

impl Peer {
    fn queue(&mut self, message: &FromScheduler) {
        serde_json::to_writer(&mut self.unsent, message).expect("messages have no maps with odd keys");
        self.unsent.push(b'\n');
    }

    fn flush(&mut self) -> io::Result<()> {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        if self.unsent.len() > MAX_BACKLOG { Err(ErrorKind::OutOfMemory.into()) } else { Ok(()) }
    }

    /// `Err`: the peer is to be dropped.
    fn read(&mut self, id: PeerId, role: Role, messages: &mut Vec<(PeerId, Incoming)>) -> Result<(), ()> {
        // Twice: whether it has hung up after what it said is to be known before that is heard.
        let filled = self.lines.fill(&mut self.stream).and_then(|()| self.lines.fill(&mut self.stream));
        loop {
            match self.lines.next_message::<ToScheduler>() {
                Ok(None) => break,
                Ok(Some(ToScheduler::Hello { version: VERSION, .. })) => {
                    self.greeted = true;
                    self.queue(&FromScheduler::Hello { version: VERSION, pid: host::own_pid(), role });
                }
                Ok(Some(ToScheduler::Hello { version, .. })) => {
                    let why = format!(
                        "this scheduler speaks version {VERSION} of the protocol, you {version}; use one coplace for both"
                    );
                    self.queue(&FromScheduler::Refused { why });
                    let _ = self.flush();
                    return Err(());
                }
                Ok(Some(message)) if self.greeted => messages.push((id, Incoming::Message(message))),
                Ok(Some(_)) => return Err(()),
                Err(error) => {
                    self.queue(&FromScheduler::Refused { why: error.to_string() });
                    let _ = self.flush();
                    return Err(());
                }
            }
        }
        let _ = self.flush();
        if filled.is_err() || self.lines.ended() { Err(()) } else { Ok(()) }
    }
}
