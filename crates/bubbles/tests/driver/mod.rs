//! Processors that work on one hierarchy at the same time without running threads: each takes one,
//! and has it give way, block, end, change its bubble, while bubbles are closed, schedulers exchanged and
//! processors taken away. What holds: nobody is in two processors' hands, and all end.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use coplace_bubbles::hierarchy::{Bubble, Entity, Hierarchy, Kind, Levels, Lists, PRIORITY, World, Yielded};
use coplace_bubbles::schedulers;
use topology::Machine;

pub struct NoWorld;

impl World for NoWorld {
    fn queued(&self, _unit: usize, _count: usize) {}
    fn recalled(&self, _thread: &Entity, _processor: usize, _preempt: bool) {}
    fn emptied(_lists: &Hierarchy<NoWorld>, _bubble: &Bubble) {}
}

#[repr(C)]
pub struct Task {
    entity: Entity,
    turns: AtomicU32,
    held: AtomicBool,
}

pub struct Busy {
    pub lists: Hierarchy<NoWorld>,
    tasks: Vec<Task>,
    bubbles: Vec<Bubble>,
    waiting: Mutex<VecDeque<usize>>,
    ended: AtomicUsize,
    pub done: AtomicUsize,
    /// Also exchanges schedulers and takes processors away.
    changes: bool,
}

impl Busy {
    /// `threads` of `turns` each, dealt to `bubbles` that are nested in a row of pairs.
    pub fn new(
        machine: &str,
        scheduler: &str,
        bubbles: usize,
        threads: usize,
        turns: u32,
        changes: bool,
    ) -> Busy {
        let machine = Machine::synthetic(machine).expect("a machine");
        let levels = Levels::new(&machine, machine.all_cpus(), Lists::Distinct);
        let scheduler = schedulers::by_name(scheduler).expect("it is known");
        let task = || Task {
            entity: Entity::new(Kind::Thread, PRIORITY),
            turns: AtomicU32::new(turns),
            held: AtomicBool::new(false),
        };
        let world = Busy {
            lists: Hierarchy::new(levels, scheduler, NoWorld),
            tasks: (0..threads).map(|_| task()).collect(),
            bubbles: (0..bubbles).map(|_| Bubble::new(PRIORITY)).collect(),
            waiting: Mutex::default(),
            ended: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
            changes,
        };
        for at in 1..bubbles {
            let outer = &world.bubbles[(at - 1) / 2];
            world.lists.insert(outer, &world.bubbles[at].entity).expect("it is in none");
        }
        for (at, task) in world.tasks.iter().enumerate() {
            match bubbles {
                0 => world.lists.wake(&task.entity, 0),
                _ => world.lists.insert(&world.bubbles[at % bubbles], &task.entity).expect("it is in none"),
            }
        }
        if let Some(outermost) = world.bubbles.first() {
            world.lists.wake(&outermost.entity, 0);
        }
        world
    }

    pub fn processors(&self) -> usize {
        self.lists.levels().width()
    }

    /// What one processor does until all have ended. `random` gives a number below its argument.
    pub fn work(&self, processor: usize, random: &mut dyn FnMut(u32) -> u32, pause: &dyn Fn()) {
        while self.ended.load(Ordering::SeqCst) < self.tasks.len() {
            let far = random(8) == 0;
            match self.lists.next(processor, far).or_else(|| self.lists.steal(processor)) {
                Some(thread) => self.runs(thread, processor, random),
                None => {
                    self.wake_one(processor);
                    pause();
                }
            }
        }
    }

    fn wake_one(&self, processor: usize) {
        let waiting = self.waiting.lock().expect("nobody panicked").pop_front();
        if let Some(at) = waiting {
            self.lists.wake(&self.tasks[at].entity, processor);
        }
    }

    fn hold(&self, entity: *const Entity) -> &Task {
        // SAFETY: lists hold tasks, of which the entity is the first field.
        let task = unsafe { &*entity.cast::<Task>() };
        assert!(!task.held.swap(true, Ordering::SeqCst), "two processors have one thread");
        task
    }

    fn runs(&self, thread: *const Entity, processor: usize, random: &mut dyn FnMut(u32) -> u32) {
        let mut task = self.hold(thread);
        loop {
            self.done.fetch_add(1, Ordering::Relaxed);
            let left = task.turns.load(Ordering::Relaxed);
            if left == 0 {
                task.held.store(false, Ordering::SeqCst);
                self.lists.finish(&task.entity);
                self.ended.fetch_add(1, Ordering::SeqCst);
                return;
            }
            task.turns.store(left - 1, Ordering::Relaxed);
            let count = self.bubbles.len() as u32;
            match random(16) {
                0..=6 => {
                    task.held.store(false, Ordering::SeqCst);
                    match self.lists.yield_processor(&task.entity, processor, random(8) == 0) {
                        Yielded::Stay => task = self.hold(&task.entity),
                        Yielded::Next(next) => task = self.hold(next),
                        Yielded::Nothing => return,
                    }
                }
                7..=9 => {
                    let at = self.tasks.iter().position(|other| std::ptr::eq(other, task)).expect("ours");
                    task.held.store(false, Ordering::SeqCst);
                    self.lists.block(&task.entity, processor);
                    self.waiting.lock().expect("nobody panicked").push_back(at);
                    return;
                }
                10 | 11 => self.wake_one(processor),
                12 | 13 if count > 0 => {
                    self.lists.close(&self.bubbles[random(count) as usize]);
                }
                14 if count > 0 => {
                    let other = &self.tasks[random(self.tasks.len() as u32) as usize].entity;
                    // What has ended stays outside.
                    if std::ptr::eq(other, &task.entity) || !other.holder().is_null() {
                        self.lists.remove(other);
                    }
                    if std::ptr::eq(other, &task.entity) {
                        let _ = self.lists.insert(&self.bubbles[random(count) as usize], other);
                    }
                }
                15 if self.changes && random(50) == 0 => {
                    let name = schedulers::NAMES[random(schedulers::NAMES.len() as u32) as usize];
                    self.lists.exchange(0, schedulers::by_name(name).expect("it is known"), processor);
                }
                15 if self.changes && random(50) == 0 => {
                    let kept = random(self.processors() as u32) as usize;
                    let all = random(2) == 0;
                    self.lists.set_processors(&|at| all || at == kept);
                }
                _ => {}
            }
        }
    }
}
