//! What every call begins with, and what several do.

use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::groups::GroupFile;
use crate::kernel::Act;
use crate::world::{World, here};

pub(crate) fn error(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

/// What the dead ask for reaches nothing.
fn process_is_dead() -> io::Error {
    error(libc::EIO)
}

/// Begins a call of the running thread.
pub(crate) fn begin_call() -> io::Result<Rc<World>> {
    let world = here().ok_or_else(process_is_dead)?;
    world.call();
    if world.is_unwinding() { Err(process_is_dead()) } else { Ok(world) }
}

impl World {
    pub(crate) fn own_pid(&self) -> u32 {
        self.caller().unwrap_or(crate::kernel::INIT)
    }

    pub(crate) fn uid_of_caller(&self) -> u32 {
        let kernel = self.kernel.borrow();
        kernel.processes.get(&self.own_pid()).map_or(0, |process| process.uid)
    }

    pub(crate) fn may_touch(&self, pid: u32) -> bool {
        let own = self.uid_of_caller();
        own == 0 || self.kernel.borrow().processes.get(&pid).is_some_and(|process| process.uid == own)
    }

    pub(crate) fn group_file(&self, path: &Path) -> Option<GroupFile> {
        self.kernel.borrow().groups.find(path)
    }

    pub(crate) fn read_group(&self, file: &GroupFile) -> io::Result<Vec<u8>> {
        let kernel = self.kernel.borrow();
        if file.2 == "cgroup.procs" {
            let members = kernel.members(file.0, &file.1);
            return Ok(members.iter().map(|pid| format!("{pid}\n")).collect::<String>().into_bytes());
        }
        Ok(kernel.groups.read(file, kernel.is_populated(file.0, &file.1))?.into_bytes())
    }

    pub(crate) fn write_group(&self, file: &GroupFile, text: &str) -> io::Result<()> {
        let dir = PathBuf::from(file.0.mount()).join(file.1.trim_start_matches('/'));
        if file.2 == "cgroup.procs" {
            let pid: u32 = text.trim().parse().map_err(|_| error(libc::EINVAL))?;
            if !self.may_touch(pid) {
                let there = self.kernel.borrow().processes.contains_key(&pid);
                return Err(error(if there { libc::EACCES } else { libc::ESRCH }));
            }
            self.kernel.borrow().groups.takes(file.0, &file.1)?;
            self.kernel.borrow_mut().move_to(pid, file.0, &file.1).map_err(error)?;
            // Out of a frozen group is a thaw.
            self.kernel.borrow_mut().after_thaw();
            self.acted(Act::Moved { pid, group: dir });
            return Ok(());
        }
        let holds = !self.kernel.borrow().members(file.0, &file.1).is_empty();
        self.kernel.borrow_mut().groups.write(file, text, holds)?;
        let on = matches!(text.trim(), "1" | "FROZEN");
        match file.2.as_str() {
            "cgroup.freeze" | "freezer.state" => {
                self.kernel.borrow_mut().after_thaw();
                self.acted(Act::Froze { group: dir, on });
            }
            "cpu.idle" => {
                self.kernel.borrow_mut().after_thaw();
                self.acted(Act::Idled { group: dir, on });
            }
            "cpuset.cpus" => {
                self.kernel.borrow_mut().after_confining(file.0, &file.1);
                let cpus = text.trim().parse().unwrap_or_default();
                self.acted(Act::Confined { group: dir, cpus });
            }
            _ => {}
        }
        Ok(())
    }
}
