//! What registers and the function's own frame hold at one point of the code.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::Register;

use crate::value::Value;

/// A place that keeps a value from one instruction to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Location {
    General(u8),
    Vector(u8),
    /// Four bytes of the frame, by their offset from the stack pointer at the entry.
    Frame(i64),
}

impl Location {
    /// The whole register; `None` for flags, segments and others.
    pub fn of(register: Register) -> Option<Location> {
        let full = register.full_register();
        if full.is_gpr64() {
            Some(Location::General(full.number() as u8))
        } else if full.is_zmm() || full.is_ymm() || full.is_xmm() {
            Some(Location::Vector(full.number() as u8))
        } else {
            None
        }
    }

    /// The parts of the frame that so many bytes touch.
    pub fn frame(offset: i64, bytes: usize) -> impl Iterator<Item = Location> {
        let first = offset.div_euclid(4);
        let last = (offset + bytes.max(1) as i64 - 1).div_euclid(4);
        (first..=last).map(|at| Location::Frame(at * 4))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    bytes: usize,
    value: Value,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    general: [Value; 16],
    vector: [Value; 32],
    slots: BTreeMap<i64, Slot>,
    /// What the flags came from.
    pub compared: (Value, Value),
}

/// Numbers of the registers by the calling convention.
pub const RAX: u8 = 0;
pub const RDX: u8 = 2;
pub const RSP: u8 = 4;
pub const ARGUMENTS: [u8; 6] = [7, 6, 2, 1, 8, 9];
pub const KEPT: [u8; 6] = [3, 5, 12, 13, 14, 15];

impl State {
    /// At the entry of a function: arguments are in their registers, and the stack pointer points to
    /// the return address.
    pub fn at_entry() -> State {
        let mut state = State {
            general: [Value::Undefined; 16],
            vector: [Value::Undefined; 32],
            slots: BTreeMap::new(),
            compared: (Value::Undefined, Value::Undefined),
        };
        for register in ARGUMENTS.iter().chain(&KEPT) {
            state.general[usize::from(*register)] = Value::Clean;
        }
        state.general[usize::from(RSP)] = Value::Stack(0);
        state
    }

    pub fn get(&self, location: Location) -> Value {
        match location {
            Location::General(register) => self.general[usize::from(register)],
            Location::Vector(register) => self.vector[usize::from(register)],
            Location::Frame(offset) => self.load(offset, 4),
        }
    }

    /// Of a part of the frame only where a slot begins there.
    pub fn set(&mut self, location: Location, value: Value) {
        match location {
            Location::General(register) => self.general[usize::from(register)] = value,
            Location::Vector(register) => self.vector[usize::from(register)] = value,
            Location::Frame(offset) => {
                if let Some(slot) = self.slots.get_mut(&offset) {
                    slot.value = value;
                }
            }
        }
    }

    pub fn general(&self, register: u8) -> Value {
        self.general[usize::from(register)]
    }

    pub fn begins_slot(&self, offset: i64) -> bool {
        self.slots.contains_key(&offset)
    }

    fn overlapping(&self, offset: i64, bytes: usize) -> impl Iterator<Item = (i64, Slot)> + '_ {
        let end = offset + bytes as i64;
        let from = offset - 64; // no slot is wider
        self.slots
            .range(from..end)
            .map(|(at, slot)| (*at, *slot))
            .filter(move |(at, slot)| at + slot.bytes as i64 > offset)
    }

    pub fn load(&self, offset: i64, bytes: usize) -> Value {
        if let Some(slot) = self.slots.get(&offset).filter(|slot| slot.bytes >= bytes) {
            return slot.value;
        }
        let mut parts = self.overlapping(offset, bytes).map(|(_, slot)| slot.value).peekable();
        match parts.peek() {
            Some(_) => Value::blend(parts),
            // The return address and what the caller passed on the stack.
            None if offset >= 0 => Value::Clean,
            None => Value::Undefined,
        }
    }

    pub fn store(&mut self, offset: i64, bytes: usize, value: Value) {
        let touched: Vec<(i64, Slot)> = self.overlapping(offset, bytes).collect();
        for (at, slot) in touched {
            let inside = at >= offset && at + slot.bytes as i64 <= offset + bytes as i64;
            if inside {
                self.slots.remove(&at);
            } else if let Some(wider) = self.slots.get_mut(&at) {
                wider.value = Value::blend([slot.value, value]);
            }
        }
        self.slots.insert(offset, Slot { bytes, value });
    }

    pub fn forget(&mut self, offset: i64, bytes: usize) {
        let touched: Vec<i64> = self.overlapping(offset, bytes).map(|(at, _)| at).collect();
        for at in touched {
            self.slots.remove(&at);
        }
    }

    /// Registers that a call may change hold nothing afterwards but what it returns.
    pub fn after_call(&mut self, returned: Value) {
        for register in (0..16_u8).filter(|at| !KEPT.contains(at) && *at != RSP) {
            self.general[usize::from(register)] = Value::Undefined;
        }
        self.vector = [Value::Undefined; 32];
        self.general[usize::from(RAX)] = returned;
        self.vector[0] = Value::Returned;
        self.compared = (Value::Undefined, Value::Undefined);
    }

    /// The same for a function that is known to change only these registers.
    pub fn after_call_of(&mut self, changed: &BTreeSet<Location>, returned: Value) {
        for at in changed {
            self.set(*at, Value::Undefined);
        }
        for at in [Location::General(RAX), Location::Vector(0)] {
            if changed.contains(&at) {
                self.set(at, returned);
            }
        }
        self.compared = (Value::Undefined, Value::Undefined);
    }

    /// A loop over the thread's share is left.
    pub fn leave_share(&mut self) {
        let slots = self.slots.values_mut().map(|slot| &mut slot.value);
        for value in self.general.iter_mut().chain(&mut self.vector).chain(slots) {
            *value = value.done();
        }
        self.compared = (self.compared.0.done(), self.compared.1.done());
    }

    /// Whether anything changed.
    pub fn join(&mut self, other: &State) -> bool {
        let before = self.clone();
        for (mine, theirs) in self.general.iter_mut().zip(other.general) {
            *mine = mine.join(theirs);
        }
        for (mine, theirs) in self.vector.iter_mut().zip(other.vector) {
            *mine = mine.join(theirs);
        }
        // What is in the frame on one way only is read on that way only.
        let offsets: Vec<i64> = self.slots.keys().copied().collect();
        for offset in offsets {
            let mine = self.slots[&offset];
            match other.slots.get(&offset) {
                Some(theirs) if theirs.bytes == mine.bytes => {
                    let value = mine.value.join(theirs.value);
                    self.slots.insert(offset, Slot { bytes: mine.bytes, value });
                }
                Some(theirs) => {
                    let bytes = mine.bytes.max(theirs.bytes);
                    let value = Value::blend([mine.value, theirs.value]);
                    self.slots.insert(offset, Slot { bytes, value });
                }
                None if other.overlapping(offset, mine.bytes).next().is_some() => {
                    let value = Value::blend(
                        other.overlapping(offset, mine.bytes).map(|(_, slot)| slot.value).chain([mine.value]),
                    );
                    self.slots.insert(offset, Slot { bytes: mine.bytes, value });
                }
                None => {
                    self.slots.remove(&offset);
                }
            }
        }
        self.compared = (self.compared.0.join(other.compared.0), self.compared.1.join(other.compared.1));
        *self != before
    }
}
