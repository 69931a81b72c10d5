//! What stays open between calls: files, processes, locks, threads, connections.

use std::io::{self, Read, Write};
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use linux::host::{Listener, Lock, OpenFile, OpenProcess, Started, Stream, Thread};
use rustix::process::Signal;

use crate::calls::{begin_call, error};
use crate::files::{self, Body, Content};
use crate::kernel::Act;
use crate::world::{Wake, World, here};

/// Between two looks of who waits for something that nobody tells him of.
const PAUSE_NS: u64 = 100_000;

#[derive(Debug)]
pub(crate) enum Open {
    Content(Content),
    Group(PathBuf),
}

impl OpenFile for Open {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let world = begin_call()?;
        let all = match self {
            Open::Content(content) => files::bytes_of(content),
            Open::Group(path) => {
                let file = world.group_file(path).ok_or_else(|| error(libc::ENODEV))?;
                world.read_group(&file)?
            }
        };
        let part = all.get(offset as usize..offset as usize + bytes.len());
        bytes.copy_from_slice(part.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let world = begin_call()?;
        match self {
            Open::Content(content) => {
                *content.lock().expect("no thread but this one") = Body::Bytes(bytes.to_vec());
            }
            Open::Group(path) => {
                let file = world.group_file(path).ok_or_else(|| error(libc::ENODEV))?;
                world.write_group(&file, &String::from_utf8_lossy(bytes))?;
            }
        }
        Ok(bytes.len())
    }
}

#[derive(Debug)]
pub(crate) struct Handle {
    pub pid: u32,
    pub start_ticks: u64,
}

impl OpenProcess for Handle {
    fn send(&self, signal: Signal) -> io::Result<()> {
        let world = begin_call()?;
        if world.kernel.borrow().processes.get(&self.pid).is_none_or(|p| p.start_ticks != self.start_ticks) {
            return Err(error(libc::ESRCH));
        }
        send(&world, self.pid, None, signal)
    }

    fn wait_exit(&self, timeout_ns: u64) -> io::Result<bool> {
        let world = begin_call()?;
        let until_ns = world.now_ns().saturating_add(timeout_ns);
        loop {
            let lives = |process: &crate::Process| process.start_ticks == self.start_ticks && !process.zombie;
            if !world.kernel.borrow().processes.get(&self.pid).is_some_and(lives) {
                return Ok(true);
            }
            let now_ns = world.now_ns();
            if now_ns >= until_ns || world.is_unwinding() {
                return Ok(false);
            }
            world.suspend(Wake::At(until_ns.min(now_ns + 5_000_000)));
        }
    }
}

/// As kill(2) does, and, where a thread is named, tgkill(2).
pub(crate) fn send(world: &World, pid: u32, tid: Option<u32>, signal: Signal) -> io::Result<()> {
    if !world.kernel.borrow().processes.contains_key(&pid) {
        return Err(error(libc::ESRCH));
    }
    if !world.may_touch(pid) {
        return Err(error(libc::EPERM));
    }
    let from = world.own_pid();
    let (stood, kept) = {
        let kernel = world.kernel.borrow();
        let process = &kernel.processes[&pid];
        let all = process.threads.keys().all(|tid| process.stops_pending_for.contains(tid));
        (process.stopped, process.stop_is_pending || process.stopped && all)
    };
    let sent = match tid.filter(|_| signal == Signal::STOP) {
        Some(tid) => world.kernel.borrow_mut().stop_thread(from, pid, tid),
        None => world.kernel.borrow_mut().signal(from, pid, signal),
    };
    sent.map_err(error)?;
    world.acted(Act::Signalled { to: pid, signal, stood, kept });
    Ok(())
}

#[derive(Debug)]
pub(crate) struct HeldLock {
    pub number: u64,
    pub content: Content,
}

impl Lock for HeldLock {
    fn read(&self) -> io::Result<Vec<u8>> {
        begin_call()?;
        Ok(files::bytes_of(&self.content))
    }

    fn replace(&self, bytes: &[u8]) -> io::Result<()> {
        begin_call()?;
        *self.content.lock().expect("no thread but this one") = Body::Bytes(bytes.to_vec());
        Ok(())
    }
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        if let Some(world) = here() {
            world.kernel.borrow_mut().files.unlock(self.number);
        }
    }
}

#[derive(Debug)]
pub(crate) struct Child {
    pub pid: u32,
    pub start_ticks: u64,
}

impl Started for Child {
    fn pid(&self) -> u32 {
        self.pid
    }

    fn has_ended(&mut self) -> io::Result<bool> {
        let world = begin_call()?;
        let mut kernel = world.kernel.borrow_mut();
        let lives =
            kernel.processes.get(&self.pid).is_some_and(|p| p.start_ticks == self.start_ticks && !p.zombie);
        if !lives {
            kernel.reap(self.pid);
        }
        Ok(!lives)
    }
}

#[derive(Debug)]
pub(crate) struct Task(pub u64);

impl Thread for Task {
    fn is_finished(&self) -> bool {
        here().is_none_or(|world| !world.has_task(self.0))
    }

    fn join(self: Box<Self>) {
        while let Some(world) = here().filter(|world| !world.is_unwinding())
            && world.has_task(self.0)
        {
            let now_ns = world.now_ns();
            world.suspend(Wake::At(now_ns + PAUSE_NS));
        }
    }
}

#[derive(Debug)]
pub(crate) struct Connection {
    number: u64,
    side: usize,
    patience_ns: Mutex<Option<u64>>,
}

impl Connection {
    pub fn new(number: u64, side: usize) -> Box<Connection> {
        Box::new(Connection { number, side, patience_ns: Mutex::new(None) })
    }
}

impl Read for Connection {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let world = begin_call()?;
        let patience_ns = *self.patience_ns.lock().expect("no thread but this one");
        let until_ns = world.now_ns().saturating_add(patience_ns.unwrap_or(u64::MAX));
        loop {
            let read = world.sockets.borrow_mut().read(self.number, self.side, into);
            if let Some(count) = read {
                return Ok(count);
            }
            if world.now_ns() >= until_ns || world.is_unwinding() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            world.suspend(Wake::Poll(until_ns));
        }
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let world = begin_call()?;
        let to = world.sockets.borrow_mut().write(self.number, self.side, bytes);
        world.poke(to.ok_or_else(|| error(libc::EPIPE))?);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Stream for Connection {
    fn set_patience(&self, read: Option<Duration>, _write: Option<Duration>) -> io::Result<()> {
        *self.patience_ns.lock().expect("no thread but this one") = read.map(|read| read.as_nanos() as u64);
        Ok(())
    }

    fn peer_uid(&self) -> io::Result<u32> {
        let world = begin_call()?;
        let pid = world.sockets.borrow().pid_at(self.number, 1 - self.side);
        let kernel = world.kernel.borrow();
        Ok(kernel.processes.get(&pid).map_or(kernel.machine.uid, |process| process.uid))
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(world) = here() {
            let other = world.sockets.borrow().pid_at(self.number, 1 - self.side);
            world.sockets.borrow_mut().close(self.number, self.side);
            world.poke(other);
        }
    }
}

#[derive(Debug)]
pub(crate) struct Door {
    pub path: PathBuf,
    pub number: u64,
}

impl Listener for Door {
    fn accept(&self) -> io::Result<Box<dyn Stream>> {
        let world = begin_call()?;
        let accepted = world.sockets.borrow_mut().accept(&self.path, self.number);
        Ok(Connection::new(accepted.ok_or(io::ErrorKind::WouldBlock)?, 1))
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        if let Some(world) = here() {
            world.sockets.borrow_mut().stop_listening(&self.path, self.number);
        }
    }
}
