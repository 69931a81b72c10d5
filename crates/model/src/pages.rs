//! Pages of the preload library, and what the library does at the entry of a parallel region.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use linux::page;

use crate::files;
use crate::kernel::{Kernel, TICK_NS};
use crate::process::{Process, Thread};

impl Kernel {
    pub(crate) fn make_page(&mut self, pid: u32) {
        let Some(process) = self.processes.get(&pid) else { return };
        let Some(directory) = process.variable(page::PAGES_VARIABLE).map(PathBuf::from) else { return };
        if !process.program.as_ref().is_some_and(|program| program.preloaded) {
            return;
        }
        let path = directory.join(pid.to_string());
        let (uid, start_ticks, generation) = (process.uid, process.start_ticks, process.generation);
        if generation > 0 && process.page.is_some() {
            let process = &self.processes[&pid];
            if let Some(words) = &process.page {
                self.put_half(words, "generation", generation);
            }
            return;
        }
        let default = self.files.content(&directory.join("default"));
        let bytes = default.map_or_else(|_| vec![0; page::PAGE_BYTES], |content| files::bytes_of(&content));
        if self.files.create(&path, &bytes, uid, 0o600).is_err() {
            return;
        }
        let content = self.files.content(&path).expect("just made");
        let Some(words) = files::map(&content, page::PAGE_BYTES) else { return };
        self.put_half(&words, "pid", pid);
        self.put_half(&words, "generation", generation);
        self.put_half(&words, "version", page::VERSION);
        words[self.layout["start_time"] / 8].store(start_ticks, Ordering::SeqCst);
        words[self.layout["loaded_ns"] / 8].store(self.now_ns, Ordering::SeqCst);
        self.put_half(&words, "state", page::state::LOADED);
        words[self.layout["magic"] / 8].store(page::MAGIC, Ordering::SeqCst);
        self.processes.get_mut(&pid).expect("just found").page = Some(words);
    }

    pub(crate) fn half(&self, words: &[AtomicU64], field: &str) -> u32 {
        let at = self.layout[field];
        let bytes = words[at / 8].load(Ordering::SeqCst).to_ne_bytes();
        u32::from_ne_bytes(bytes[at % 8..at % 8 + 4].try_into().expect("four bytes"))
    }

    pub(crate) fn put_half(&self, words: &[AtomicU64], field: &str, value: u32) {
        let at = self.layout[field];
        let mut bytes = words[at / 8].load(Ordering::SeqCst).to_ne_bytes();
        bytes[at % 8..at % 8 + 4].copy_from_slice(&value.to_ne_bytes());
        words[at / 8].store(u64::from_ne_bytes(bytes), Ordering::SeqCst);
    }

    /// What the page of a process says, for people.
    pub fn describe_page(&self, process: &Process) -> String {
        let Some(words) = &process.page else { return "no page".to_owned() };
        let half = |field| self.half(words, field);
        format!(
            "target {} requested {} max_team {} resizable {:#x}",
            half("target"),
            half("requested"),
            half("max_team"),
            words[self.layout["resizable"] / 8].load(Ordering::SeqCst)
        )
    }

    fn may_be_resized(&self, words: &[AtomicU64]) -> bool {
        let found = words[self.layout["resizable"] / 8].load(Ordering::SeqCst);
        found == page::RESIZABLE_BY_WORD && self.half(words, "rigid") == 0
    }

    /// Whether its teams follow what it is asked for.
    pub fn follows(&self, process: &Process) -> bool {
        process.page.as_ref().is_some_and(|words| self.may_be_resized(words))
    }

    /// As the preload library does it: the team is what the program wants, or what it is asked for where it may be
    /// resized.
    pub(crate) fn enter_region(&mut self, pid: u32, wide: u32) {
        let Some(process) = self.processes.get(&pid) else { return };
        let Some(program) = &process.program else { return };
        let wanted = if wide == 0 { program.procs } else { wide }.max(1);
        let mut team = wanted;
        if let Some(words) = process.page.clone() {
            let state = self.half(&words, "state") | page::state::RUNTIME_INITIALISED;
            self.put_half(&words, "state", state);
            self.put_half(&words, "runtimes", 1);
            self.put_half(&words, "masters", 1);
            self.put_half(&words, "procs", program.procs);
            self.put_half(&words, "max_team", self.half(&words, "max_team").max(wanted));
            self.put_half(&words, "requested", wanted);
            let target = self.half(&words, "target");
            if target > 0 && self.may_be_resized(&words) {
                team = wanted.min(target);
            }
            self.put_half(&words, "applied_seq", self.half(&words, "target_seq"));
            let lane = self.layout["lane"] / 8;
            words[lane].store(1 << 32 | u64::from(team), Ordering::SeqCst);
            words[lane + 1].store(self.now_ns, Ordering::SeqCst);
            words[lane + 3].fetch_add(1, Ordering::SeqCst);
            if team < wanted {
                words[lane + 4].fetch_add(1, Ordering::SeqCst);
            }
            let size = lane + 8 + 2 * (team as usize - 1).min(page::SIZES);
            words[size].fetch_add(1, Ordering::SeqCst);
        }
        let known = self.processes[&pid].threads.len() as u32;
        for _ in known..team {
            let tid = self.free_pid();
            let process = self.processes.get_mut(&pid).expect("just found");
            let mask = process.threads.get(&pid).map(|thread| thread.mask.clone()).unwrap_or_default();
            let thread = Thread { start_ticks: self.now_ns / TICK_NS, mask, run_ns: 0, wait_ns: 0 };
            process.threads.insert(tid, thread);
        }
        let entered = (self.now_ns, self.cpus_of(&self.processes[&pid]));
        let process = self.processes.get_mut(&pid).expect("just found");
        let program = process.program.as_mut().expect("just found");
        (program.team, program.entered) = (team, entered);
    }
}
