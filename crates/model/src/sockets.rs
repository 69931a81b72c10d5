//! Connections between processes of the model.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};

#[derive(Debug, Default)]
struct End {
    /// What waits to be read at this end.
    unread: VecDeque<u8>,
    closed: bool,
    pid: u32,
}

#[derive(Debug)]
struct Listening {
    pid: u32,
    number: u64,
    waiting: VecDeque<u64>,
}

#[derive(Debug, Default)]
pub(crate) struct Sockets {
    connections: BTreeMap<u64, [End; 2]>,
    listening: BTreeMap<PathBuf, Listening>,
    next: u64,
}

impl Sockets {
    pub fn listen(&mut self, path: &Path, pid: u32) -> u64 {
        self.next += 1;
        let listening = Listening { pid, number: self.next, waiting: VecDeque::new() };
        self.listening.insert(path.to_owned(), listening);
        self.next
    }

    pub fn stop_listening(&mut self, path: &Path, number: u64) {
        if self.listening.get(path).is_some_and(|own| own.number == number)
            && let Some(own) = self.listening.remove(path)
        {
            own.waiting.iter().for_each(|connection| self.close(*connection, 1));
        }
    }

    /// The connection and the process at its other end; `None`: nobody listens.
    pub fn connect(&mut self, path: &Path, pid: u32) -> Option<(u64, u32)> {
        let listening = self.listening.get_mut(path)?;
        self.next += 1;
        listening.waiting.push_back(self.next);
        let end = |pid| End { pid, ..End::default() };
        self.connections.insert(self.next, [end(pid), end(listening.pid)]);
        Some((self.next, listening.pid))
    }

    pub fn accept(&mut self, path: &Path, number: u64) -> Option<u64> {
        self.listening.get_mut(path).filter(|own| own.number == number)?.waiting.pop_front()
    }

    pub fn pid_at(&self, connection: u64, side: usize) -> u32 {
        self.connections.get(&connection).map_or(0, |ends| ends[side].pid)
    }

    /// `None`: nothing is there yet; nought bytes: the other end is closed.
    pub fn read(&mut self, connection: u64, side: usize, into: &mut [u8]) -> Option<usize> {
        let Some(ends) = self.connections.get_mut(&connection) else { return Some(0) };
        let unread = &mut ends[side].unread;
        let count = unread.len().min(into.len());
        if count == 0 {
            return ends[1 - side].closed.then_some(0);
        }
        unread.drain(..count).zip(into).for_each(|(byte, place)| *place = byte);
        Some(count)
    }

    /// Target it is for; `None`: nobody reads any more.
    pub fn write(&mut self, connection: u64, side: usize, bytes: &[u8]) -> Option<u32> {
        let ends = self.connections.get_mut(&connection)?;
        let other = &mut ends[1 - side];
        if other.closed {
            return None;
        }
        other.unread.extend(bytes);
        Some(other.pid)
    }

    pub fn close(&mut self, connection: u64, side: usize) {
        if let Some(ends) = self.connections.get_mut(&connection) {
            ends[side].closed = true;
            if ends.iter().all(|end| end.closed) {
                self.connections.remove(&connection);
            }
        }
    }

    /// Target the other end belongs to, to tell it that something has come.
    pub fn close_all(&mut self, pid: u32) -> Vec<u32> {
        let dead: Vec<(PathBuf, u64)> = self
            .listening
            .iter()
            .filter(|(_, own)| own.pid == pid)
            .map(|(p, own)| (p.clone(), own.number))
            .collect();
        dead.into_iter().for_each(|(path, number)| self.stop_listening(&path, number));
        let mut others = Vec::new();
        let mine: Vec<(u64, usize)> = self
            .connections
            .iter()
            .flat_map(|(number, ends)| {
                (0..2).filter(|side| ends[*side].pid == pid).map(|side| (*number, side))
            })
            .collect();
        for (connection, side) in mine {
            others.push(self.pid_at(connection, 1 - side));
            self.close(connection, side);
        }
        others
    }
}
