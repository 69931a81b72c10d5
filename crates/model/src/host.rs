//! The world's calls, answered by the model.

use std::io;
use std::path::{Path, PathBuf};

use linux::clock::Priority;
use linux::host::{
    FileInfo, FileKind, Host, Listener, Locked, Mapping, Named, OpenFile, OpenProcess, Started, Stream,
    Thread,
};
use rustix::event::PollFd;
use rustix::process::Signal;
use topology::{Allowance, CpuSet, Machine};

use crate::calls::{begin_call, error};
use crate::files;
use crate::handles::{Child, Connection, Door, Handle, HeldLock, Open, Task, send};
use crate::kernel::Act;
use crate::procfs;
use crate::world::{Wake, World, here};

/// Answers for the world of this thread.
#[derive(Debug)]
pub struct ModelHost;

fn proc_parts(path: &Path) -> Option<Vec<&str>> {
    let rest = path.strip_prefix("/proc").ok()?;
    Some(rest.iter().filter_map(|part| part.to_str()).collect())
}

impl ModelHost {
    fn write_file(&self, world: &World, path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
        let uid = world.uid_of_caller();
        if world.now_ns() < world.disk_full_until_ns.get() {
            let part = &bytes[..bytes.len() / 2];
            world.kernel.borrow_mut().files.create(path, part, uid, mode)?;
            return Err(error(libc::ENOSPC));
        }
        world.kernel.borrow_mut().files.create(path, bytes, uid, mode)?;
        world.acted(Act::Wrote(path.to_owned()));
        Ok(())
    }
}

impl Host for ModelHost {
    fn now_ns(&self) -> u64 {
        here().map_or(0, |world| world.now_ns())
    }

    fn sleep_until(&self, deadline_ns: u64) {
        match begin_call() {
            Ok(world) => world.suspend(Wake::At(deadline_ns)),
            // Who is dropped waits for another thread of its process: that one is dropped first.
            Err(_) => {
                if let Some(world) = here() {
                    world.unwind_one();
                }
            }
        }
    }

    fn own_pid(&self) -> u32 {
        here().map_or(0, |world| world.own_pid())
    }

    fn own_uid(&self) -> u32 {
        here().map_or(0, |world| world.uid_of_caller())
    }

    fn raise_priority(&self) -> Priority {
        Priority::Unchanged { why: "this is a model".to_owned() }
    }

    fn spawn(&self, _name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<Box<dyn Thread>> {
        let world = begin_call()?;
        let pid = world.own_pid();
        world.kernel.borrow_mut().start_thread(pid);
        Ok(Box::new(Task(world.start_task(pid, false, body))))
    }

    fn poll(&self, _fds: &mut [PollFd<'_>], timeout_ns: u64) {
        if let Ok(world) = begin_call() {
            let until_ns = world.now_ns().saturating_add(timeout_ns);
            world.suspend(Wake::Poll(until_ns));
        }
    }

    fn own_cpu_ns(&self) -> u64 {
        0
    }

    fn cpu_ns_of(&self, pid: u32) -> Option<u64> {
        let world = begin_call().ok()?;
        let kernel = world.kernel.borrow();
        Some(kernel.processes.get(&pid)?.threads.values().map(|thread| thread.run_ns).sum())
    }

    fn affinity(&self, tid: u32) -> io::Result<CpuSet> {
        let world = begin_call()?;
        let tid = if tid == 0 { world.own_pid() } else { tid };
        let kernel = world.kernel.borrow();
        let (process, thread) = kernel.find_thread(tid).ok_or_else(|| error(libc::ESRCH))?;
        Ok(kernel.effective(process, thread))
    }

    fn set_affinity(&self, tid: u32, mask: &CpuSet) -> io::Result<()> {
        let world = begin_call()?;
        let tid = if tid == 0 { world.own_pid() } else { tid };
        let (owner, had) = {
            let kernel = world.kernel.borrow();
            let (process, _) = kernel.find_thread(tid).ok_or_else(|| error(libc::ESRCH))?;
            (process.pid, kernel.cpus_of(process))
        };
        if !world.may_touch(owner) {
            return Err(error(libc::EPERM));
        }
        let pid = world.kernel.borrow_mut().set_mask(tid, mask).map_err(error)?;
        world.acted(Act::Masked { pid, tid, mask: mask.clone(), had });
        Ok(())
    }

    fn send(&self, pid: u32, signal: Signal) -> io::Result<()> {
        let world = begin_call()?;
        send(&world, pid, None, signal)
    }

    fn send_to_thread(&self, pid: u32, tid: u32, signal: Signal) -> io::Result<()> {
        let world = begin_call()?;
        if world.kernel.borrow().find_thread(tid).is_none_or(|(process, _)| process.pid != pid) {
            return Err(error(libc::ESRCH));
        }
        send(&world, pid, Some(tid), signal)
    }

    fn open_process(&self, pid: u32) -> io::Result<Box<dyn OpenProcess>> {
        let world = begin_call()?;
        let start_ticks = world.kernel.borrow().processes.get(&pid).map(|process| process.start_ticks);
        Ok(Box::new(Handle { pid, start_ticks: start_ticks.ok_or_else(|| error(libc::ESRCH))? }))
    }

    fn own_executable(&self) -> io::Result<PathBuf> {
        Ok(PathBuf::from("/usr/bin/coplace"))
    }

    fn start_guard(&self, _program: &Path, home: &Path) -> io::Result<Box<dyn Started>> {
        let world = begin_call()?;
        let body = world.guard(home).ok_or_else(|| error(libc::ENOENT))?;
        let pid = world.start_process(world.own_pid(), body);
        let mut kernel = world.kernel.borrow_mut();
        let process = kernel.processes.get_mut(&pid).expect("just started");
        process.is_waited_for = true;
        process.session = pid;
        let start_ticks = process.start_ticks;
        drop(kernel);
        world.acted(Act::StartedGuard(pid));
        Ok(Box::new(Child { pid, start_ticks }))
    }

    fn machine(&self) -> Machine {
        let cpus = here().map_or_else(CpuSet::new, |world| world.kernel.borrow().machine.cpus.clone());
        let all = cpus.iter().last().map_or(1, |last| last + 1);
        Machine::synthetic(&format!("core:{all}")).expect("cores alone are a machine").only(&cpus)
    }

    fn allowance(&self, configured: Option<&CpuSet>) -> io::Result<Allowance> {
        let world = begin_call()?;
        let online = world.kernel.borrow().machine.cpus.clone();
        let allowed = configured.map_or_else(|| online.clone(), |configured| online.intersection(configured));
        Ok(Allowance {
            affinity: online.clone(),
            cpuset: None,
            online,
            configured: configured.cloned(),
            allowed,
            quota_milli_cpus: None,
            notes: Vec::new(),
        })
    }

    fn connect(&self, path: &Path) -> io::Result<Box<dyn Stream>> {
        let world = begin_call()?;
        world.kernel.borrow().files.inspect(path)?;
        let own = world.own_pid();
        let connected = world.sockets.borrow_mut().connect(path, own);
        let (number, other) = connected.ok_or_else(|| error(libc::ECONNREFUSED))?;
        world.poke(other);
        Ok(Connection::new(number, 0))
    }

    fn listen(&self, path: &Path, mode: u32) -> io::Result<Box<dyn Listener>> {
        let world = begin_call()?;
        let uid = world.uid_of_caller();
        world.kernel.borrow_mut().files.make_socket(path, uid, mode)?;
        let number = world.sockets.borrow_mut().listen(path, world.own_pid());
        Ok(Box::new(Door { path: path.to_owned(), number }))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let world = begin_call()?;
        if let Some(parts) = proc_parts(path) {
            let own = world.own_pid();
            if let (Some("schedstat"), Some(pid)) =
                (parts.last().copied(), parts.first().and_then(|pid| pid.parse().ok()))
            {
                world.kernel.borrow_mut().touch(pid);
            }
            let read = procfs::read(&world.kernel.borrow(), own, &parts);
            return read.ok_or_else(|| error(libc::ENOENT));
        }
        if let Some(file) = world.group_file(path) {
            return match file.2.is_empty() {
                true => Err(error(libc::EISDIR)),
                false => world.read_group(&file),
            };
        }
        let content = world.kernel.borrow().files.content(path)?;
        Ok(files::bytes_of(&content))
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<usize> {
        let world = begin_call()?;
        if let Some(file) = world.group_file(path).filter(|file| !file.2.is_empty()) {
            world.write_group(&file, &String::from_utf8_lossy(bytes))?;
            return Ok(bytes.len());
        }
        if proc_parts(path).is_some() {
            return Err(error(libc::EACCES));
        }
        world.kernel.borrow().files.content(path)?;
        self.write_file(&world, path, bytes, 0o600)?;
        Ok(bytes.len())
    }

    fn create(&self, path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
        let world = begin_call()?;
        self.write_file(&world, path, bytes, mode)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let world = begin_call()?;
        world.kernel.borrow_mut().files.rename(from, to)?;
        world.acted(Act::Wrote(to.to_owned()));
        Ok(())
    }

    fn names(&self, directory: &Path) -> io::Result<Vec<Named>> {
        let world = begin_call()?;
        let kernel = world.kernel.borrow();
        let plain = |names: Vec<String>| {
            names.into_iter().map(|name| Named { name: name.into(), inode: 0 }).collect()
        };
        if let Some(parts) = proc_parts(directory) {
            return procfs::names(&kernel, &parts).map(plain).ok_or_else(|| error(libc::ENOENT));
        }
        if let Some((hierarchy, group, file)) = kernel.groups.find(directory) {
            return match file.is_empty() {
                true => Ok(plain(kernel.groups.child_names(hierarchy, &group))),
                false => Err(error(libc::ENOTDIR)),
            };
        }
        let names = kernel.files.names(directory)?;
        Ok(names.into_iter().map(|(name, inode)| Named { name: name.into(), inode }).collect())
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        let world = begin_call()?;
        let own = world.own_pid();
        let parts = proc_parts(path).ok_or_else(|| error(libc::EINVAL))?;
        let target = procfs::link(&world.kernel.borrow(), own, &parts);
        target.map(PathBuf::from).ok_or_else(|| error(libc::ENOENT))
    }

    fn inspect(&self, path: &Path) -> io::Result<FileInfo> {
        let world = begin_call()?;
        let kernel = world.kernel.borrow();
        let info = |kind| FileInfo { kind, uid: 0, mode: 0o755, bytes: 0 };
        if let Some(parts) = proc_parts(path) {
            let own = world.own_pid();
            let is_there = procfs::exists(&kernel, own, &parts);
            return is_there.then(|| info(FileKind::Directory)).ok_or_else(|| error(libc::ENOENT));
        }
        if let Some((_, _, file)) = kernel.groups.find(path) {
            return Ok(info(if file.is_empty() { FileKind::Directory } else { FileKind::File }));
        }
        kernel.files.inspect(path)
    }

    fn may_write(&self, path: &Path) -> bool {
        begin_call().is_ok_and(|world| world.group_file(path).is_some() && world.uid_of_caller() == 0)
    }

    fn create_directory(&self, path: &Path, mode: u32) -> io::Result<()> {
        let world = begin_call()?;
        if world.kernel.borrow().groups.is_below_mount(path) {
            if world.uid_of_caller() != 0 {
                return Err(error(libc::EACCES));
            }
            world.kernel.borrow_mut().groups.make(path)?;
            world.acted(Act::MadeGroup(path.to_owned()));
            return Ok(());
        }
        let uid = world.uid_of_caller();
        world.kernel.borrow_mut().files.create_directory(path, uid, mode)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        let world = begin_call()?;
        if let Some((hierarchy, group, file)) = world.group_file(path) {
            let mut kernel = world.kernel.borrow_mut();
            let in_use = !kernel.members(hierarchy, &group).is_empty()
                || kernel.groups.has_children(hierarchy, &group);
            if !file.is_empty() {
                return Err(error(libc::ENOTDIR));
            }
            if in_use {
                return Err(error(libc::EBUSY));
            }
            kernel.groups.remove(hierarchy, &group);
            // What is dead and not waited for stands in no group that is gone.
            for process in kernel.processes.values_mut().filter(|process| process.zombie) {
                if process.groups.get(&hierarchy) == Some(&group) {
                    process.groups.insert(hierarchy, "/".to_owned());
                }
            }
            drop(kernel);
            world.acted(Act::RemovedGroup(path.to_owned()));
            return Ok(());
        }
        if world.kernel.borrow().groups.is_below_mount(path) {
            return Err(error(libc::ENOENT));
        }
        world.kernel.borrow_mut().files.remove_directory(path)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let world = begin_call()?;
        world.kernel.borrow_mut().files.remove_file(path)?;
        world.acted(Act::Removed(path.to_owned()));
        Ok(())
    }

    fn remove_tree(&self, path: &Path) -> io::Result<()> {
        let world = begin_call()?;
        world.kernel.borrow_mut().files.remove_tree(path)
    }

    fn open(&self, path: &Path, _writes: bool) -> io::Result<Box<dyn OpenFile>> {
        let world = begin_call()?;
        if world.group_file(path).is_some_and(|file| !file.2.is_empty()) {
            return Ok(Box::new(Open::Group(path.to_owned())));
        }
        let content = world.kernel.borrow().files.content(path)?;
        Ok(Box::new(Open::Content(content)))
    }

    fn map(&self, path: &Path, bytes: usize) -> io::Result<Option<Mapping>> {
        let world = begin_call()?;
        let content = world.kernel.borrow().files.content(path)?;
        Ok(files::map(&content, bytes).map(Mapping::Model))
    }

    fn lock(&self, path: &Path, shared: bool) -> io::Result<Locked> {
        let world = begin_call()?;
        let (pid, uid) = (world.own_pid(), world.uid_of_caller());
        let (content, number) = world.kernel.borrow_mut().files.lock(path, pid, uid, shared)?;
        Ok(match number {
            Some(number) => Locked::Held(Box::new(HeldLock { number, content })),
            None => Locked::ByAnother(files::bytes_of(&content)),
        })
    }
}
