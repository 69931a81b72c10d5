//! What one instruction does to a [`State`], and what of it others can see.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};

use crate::image::Image;
use crate::reason::Cause;
use crate::runtime::{self, Call};
use crate::state::{ARGUMENTS, KEPT, Location, RAX, RDX, RSP, State};
use crate::value::Value;

/// What an instruction does beyond its own thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Forbidden(Cause),
    /// Something outside of the thread's frame changes. `at_bound`: where, or with what, depends on
    /// the thread's share.
    Effect {
        at_bound: bool,
    },
}

/// Where a memory operand points.
#[derive(Clone, Copy)]
enum Place {
    Frame(i64),
    Elsewhere(Value),
    /// The stack protector's word.
    Canary,
    Forbidden(Cause),
}

/// A frame whose stack pointer was aligned is taken to lie far below.
const BELOW: i64 = -1 << 32;

pub struct Stepper<'a> {
    pub image: &'a Image,
    info: RefCell<InstructionInfoFactory>,
    touched: RefCell<BTreeMap<u64, Rc<Touched>>>,
}

/// Why such a value must not leave the thread.
fn cause_of(value: Value) -> Option<Cause> {
    match value {
        Value::Stack(_) | Value::Sign => Some(Cause::Private),
        Value::Count | Value::Local | Value::Sum(_) | Value::Total(_) | Value::Carried | Value::MoreWork => {
            Some(Cause::Carried)
        }
        value if value.is_of_team() => Some(Cause::ThreadNumber),
        _ => None,
    }
}

impl<'a> Stepper<'a> {
    pub fn new(image: &'a Image) -> Stepper<'a> {
        Stepper { image, info: RefCell::new(InstructionInfoFactory::new()), touched: RefCell::default() }
    }

    fn place(&self, state: &State, instruction: &Instruction) -> Place {
        if [Register::FS, Register::GS].contains(&instruction.memory_segment()) {
            let plain =
                instruction.memory_base() == Register::None && instruction.memory_index() == Register::None;
            return match plain && instruction.memory_displacement64() == 0x28 {
                true => Place::Canary,
                false => Place::Forbidden(Cause::ThreadLocal),
            };
        }
        if instruction.is_ip_rel_memory_operand() {
            return Place::Elsewhere(Value::Clean);
        }
        match self.sum(state, instruction) {
            Value::Stack(offset) => Place::Frame(offset),
            Value::GlobalAt => Place::Elsewhere(Value::GlobalAt),
            value => match self.is_in_frame(state, instruction) {
                true => Place::Forbidden(Cause::Private),
                false => Place::Elsewhere(value),
            },
        }
    }

    fn is_constant(&self, instruction: &Instruction) -> bool {
        instruction.is_ip_rel_memory_operand() && self.image.is_read_only(instruction.ip_rel_memory_address())
    }

    fn is_in_frame(&self, state: &State, instruction: &Instruction) -> bool {
        let stack =
            |register| Location::of(register).is_some_and(|at| matches!(state.get(at), Value::Stack(_)));
        stack(instruction.memory_base()) || stack(instruction.memory_index())
    }

    /// Base, index and displacement added up.
    fn sum(&self, state: &State, instruction: &Instruction) -> Value {
        let part = |register: Register| Location::of(register).map(|at| state.get(at).used());
        let displacement = Value::Const(instruction.memory_displacement64() as i64);
        let scaled = part(instruction.memory_index())
            .map(|index| index.multiply(Value::Const(i64::from(instruction.memory_index_scale()))));
        let base = part(instruction.memory_base());
        // The displacement may be the address of an array or a step back from the share's bound.
        let sum = match (base, scaled) {
            (Some(base), Some(index)) => base.add(index),
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => return Value::Clean,
        };
        if sum == Value::GlobalAt && displacement == Value::Const(0) { sum } else { sum.add(displacement) }
    }

    fn read(&self, state: &State, instruction: &Instruction, operand: u32) -> Value {
        match instruction.op_kind(operand) {
            OpKind::Register => {
                let register = instruction.op_register(operand);
                let value = Location::of(register).map_or(Value::Clean, |at| state.get(at).used());
                in_register(value, register)
            }
            OpKind::Memory => match self.place(state, instruction) {
                Place::Frame(offset) => {
                    let bytes = instruction.memory_size().size();
                    state.load(offset, bytes).used().narrowed(bytes)
                }
                Place::Elsewhere(Value::GlobalAt) => Value::Global,
                Place::Elsewhere(_) if self.is_constant(instruction) => {
                    Value::Fixed(instruction.ip_rel_memory_address())
                }
                Place::Elsewhere(_) | Place::Canary => Value::Clean,
                Place::Forbidden(_) => Value::Bad,
            },
            _ => instruction.try_immediate(operand).map_or(Value::Clean, |value| Value::Const(value as i64)),
        }
    }

    fn write(
        &self,
        state: &mut State,
        instruction: &Instruction,
        operand: u32,
        value: Value,
        note: &mut dyn FnMut(Event),
    ) {
        match instruction.op_kind(operand) {
            OpKind::Register => {
                let register = instruction.op_register(operand);
                if let Some(at) = Location::of(register) {
                    state.set(at, in_register(value, register));
                }
            }
            OpKind::Memory => self.write_memory(state, instruction, value, note),
            _ => {}
        }
    }

    fn write_memory(
        &self,
        state: &mut State,
        instruction: &Instruction,
        value: Value,
        note: &mut dyn FnMut(Event),
    ) {
        match self.place(state, instruction) {
            Place::Frame(offset) => {
                let bytes = instruction.memory_size().size();
                state.store(offset, bytes, value.narrowed(bytes));
            }
            Place::Elsewhere(address) => {
                if let Some(cause) = cause_of(value) {
                    note(Event::Forbidden(cause));
                }
                note(Event::Effect { at_bound: address == Value::Bound });
            }
            Place::Canary => {}
            Place::Forbidden(cause) => note(Event::Forbidden(cause)),
        }
    }

    /// Follows one instruction.
    pub fn step(&self, state: &mut State, instruction: &Instruction, note: &mut dyn FnMut(Event)) {
        self.check_address(state, instruction, note);
        if instruction.has_lock_prefix() {
            return self.locked(state, instruction, note);
        }
        let second = |stepper: &Self, state: &State| match instruction.op_count() {
            0 | 1 => Value::Const(1),
            _ => stepper.read(state, instruction, 1),
        };
        let first = self.read_first(state, instruction);
        match instruction.mnemonic() {
            Mnemonic::Mov | Mnemonic::Movzx | Mnemonic::Movsx | Mnemonic::Movsxd => {
                let value = self.read(state, instruction, 1);
                self.write(state, instruction, 0, value, note);
            }
            Mnemonic::Lea => {
                let value = match instruction.is_ip_rel_memory_operand() {
                    true => Value::Clean,
                    false => self.sum(state, instruction),
                };
                self.write(state, instruction, 0, value, note);
            }
            Mnemonic::Add | Mnemonic::Inc => {
                self.arithmetic(state, instruction, first.add(second(self, state)), note)
            }
            Mnemonic::Sub | Mnemonic::Dec => {
                let value = match same_register(instruction) {
                    true => Value::Const(0),
                    false => first.sub(second(self, state)),
                };
                self.arithmetic(state, instruction, value, note);
            }
            Mnemonic::Xor if same_register(instruction) => {
                self.arithmetic(state, instruction, Value::Const(0), note)
            }
            Mnemonic::And => self.and(state, instruction, note),
            Mnemonic::Shl | Mnemonic::Sal => {
                let value = first.shift_left(second(self, state));
                self.arithmetic(state, instruction, value, note)
            }
            Mnemonic::Or => {
                let value = first.or(second(self, state));
                self.arithmetic(state, instruction, value, note)
            }
            Mnemonic::Shr => {
                let value = first.shift_right(second(self, state));
                self.arithmetic(state, instruction, value, note)
            }
            Mnemonic::Imul if instruction.op_count() >= 2 => {
                let (a, b) = match instruction.op_count() {
                    2 => (first, second(self, state)),
                    _ => (second(self, state), self.read(state, instruction, 2)),
                };
                self.arithmetic(state, instruction, a.multiply(b), note);
            }
            Mnemonic::Idiv | Mnemonic::Div => self.divide(state, first),
            Mnemonic::Cdq | Mnemonic::Cqo => {
                let of = state.general(RAX).used();
                state.set(Location::General(RDX), if of.is_clean() { Value::Clean } else { Value::Sign });
            }
            Mnemonic::Cdqe | Mnemonic::Cwde => {
                let bytes = if instruction.mnemonic() == Mnemonic::Cdqe { 4 } else { 2 };
                state.set(Location::General(RAX), state.general(RAX).narrowed(bytes));
            }
            Mnemonic::Cmp => state.compared = (first, second(self, state)),
            Mnemonic::Test => {
                let b = second(self, state);
                state.compared = if same_register(instruction) {
                    (first, Value::Const(0))
                } else {
                    (Value::blend([first, b]), Value::Const(0))
                };
            }
            Mnemonic::Push => {
                let value = first;
                self.push(state, value);
            }
            Mnemonic::Pop => {
                let value = self.pop(state);
                self.write(state, instruction, 0, value, note);
            }
            Mnemonic::Leave => {
                state.set(Location::General(RSP), state.general(5));
                let value = self.pop(state);
                state.set(Location::General(5), value);
            }
            Mnemonic::Call => self.call(state, instruction, note),
            Mnemonic::Jmp if self.leaves(instruction) => self.call(state, instruction, note),
            Mnemonic::Jmp
            | Mnemonic::Ret
            | Mnemonic::Nop
            | Mnemonic::Endbr64
            | Mnemonic::Ud2
            | Mnemonic::Pause => {}
            _ if instruction.is_jcc_short_or_near() => check_compared(state, note),
            _ if is_conditional_move(instruction) => {
                check_compared(state, note);
                let value = first.join(self.read(state, instruction, 1));
                self.write(state, instruction, 0, value, note);
            }
            _ => self.other(state, instruction, note),
        }
    }

    /// The first operand as an input, where it is one.
    fn read_first(&self, state: &State, instruction: &Instruction) -> Value {
        match instruction.op_count() {
            0 => Value::Clean,
            _ => self.read(state, instruction, 0),
        }
    }

    fn leaves(&self, instruction: &Instruction) -> bool {
        instruction.is_ip_rel_memory_operand()
            || self.image.function_of(instruction.ip()).is_none_or(|own| {
                let target = instruction.near_branch_target();
                !(own.start..own.end).contains(&target)
                    && self.image.function_of(target).is_none_or(|other| !is_part(&own.name, &other.name))
            })
    }

    fn check_address(&self, state: &State, instruction: &Instruction, note: &mut dyn FnMut(Event)) {
        let has_memory = (0..instruction.op_count()).any(|at| instruction.op_kind(at) == OpKind::Memory);
        if !has_memory || [Mnemonic::Lea, Mnemonic::Nop].contains(&instruction.mnemonic()) {
            return;
        }
        match self.place(state, instruction) {
            Place::Elsewhere(Value::GlobalAt) | Place::Frame(_) | Place::Canary => {}
            Place::Elsewhere(value) => {
                if let Some(cause) = cause_of(value) {
                    note(Event::Forbidden(cause));
                }
            }
            Place::Forbidden(cause) => note(Event::Forbidden(cause)),
        }
    }

    /// Writes the result and takes it for what the flags say.
    fn arithmetic(
        &self,
        state: &mut State,
        instruction: &Instruction,
        value: Value,
        note: &mut dyn FnMut(Event),
    ) {
        self.write(state, instruction, 0, value, note);
        state.compared = (value, Value::Const(0));
    }

    fn and(&self, state: &mut State, instruction: &Instruction, note: &mut dyn FnMut(Event)) {
        let (first, mask) = (self.read(state, instruction, 0), self.read(state, instruction, 1));
        let value = match (first, mask) {
            (Value::Stack(offset), Value::Const(_)) => Value::Stack(offset + BELOW),
            _ => first.and(mask),
        };
        self.arithmetic(state, instruction, value, note);
    }

    fn divide(&self, state: &mut State, divisor: Value) {
        let high = state.general(RDX);
        let dividend = state.general(RAX).used();
        let (quotient, remainder) = match high {
            Value::Sign | Value::Clean | Value::Const(0) => dividend.divide(divisor),
            other => (Value::blend([other, dividend, divisor]), Value::blend([other, dividend, divisor])),
        };
        state.set(Location::General(RAX), quotient);
        state.set(Location::General(RDX), remainder);
    }

    fn push(&self, state: &mut State, value: Value) {
        if let Value::Stack(at) = state.general(RSP) {
            state.set(Location::General(RSP), Value::Stack(at - 8));
            state.store(at - 8, 8, value);
        }
    }

    fn pop(&self, state: &mut State) -> Value {
        let Value::Stack(at) = state.general(RSP) else { return Value::Bad };
        state.set(Location::General(RSP), Value::Stack(at + 8));
        state.load(at, 8).used()
    }

    /// Atomic operations. Adding a thread's sum is the one that needs no share of its own: a thread
    /// without work adds nothing. The sum of all must be no wider than what the thread added up: of a wider
    /// one the upper bytes depend on how often the threads' own sums overflowed.
    fn locked(&self, state: &mut State, instruction: &Instruction, note: &mut dyn FnMut(Event)) {
        let value = match instruction.op_count() {
            2 => self.read(state, instruction, 1),
            _ => Value::Const(1),
        };
        let adds = [Mnemonic::Add, Mnemonic::Sub].contains(&instruction.mnemonic());
        let fits = |bytes: u8| instruction.memory_size().size() <= usize::from(bytes);
        match value {
            Value::Const(0) if adds => return,
            Value::Total(bytes) if adds && fits(bytes) => return,
            _ => {}
        }
        if matches!(value, Value::Sum(_) | Value::Total(_) | Value::Carried | Value::Local) {
            note(Event::Forbidden(Cause::Reduction));
        }
        self.other(state, instruction, note);
    }

    /// An operation without rules of its own: what it writes depends on everything that it reads.
    fn other(&self, state: &mut State, instruction: &Instruction, note: &mut dyn FnMut(Event)) {
        if instruction.is_string_instruction() || NOT_FOLLOWED.contains(&instruction.mnemonic()) {
            note(Event::Forbidden(Cause::NotFollowed));
        }
        let mut inputs = Vec::new();
        if instruction.rflags_read() != 0 {
            check_compared(state, note);
            inputs.extend([state.compared.0, state.compared.1]);
        }
        let mut outputs = Vec::new();
        for used in self.info.borrow_mut().info(instruction).used_registers() {
            let register = used.register();
            if register.is_st() || register.is_mm() || register.is_k() {
                note(Event::Forbidden(Cause::NotFollowed));
            }
            let Some(at) = Location::of(register) else { continue };
            if reads(used.access()) && !is_zeroing(instruction) {
                inputs.push(state.get(at).used());
            }
            if writes(used.access()) {
                outputs.push(at);
            }
        }
        let memory = (0..instruction.op_count()).find(|at| instruction.op_kind(*at) == OpKind::Memory);
        let access = memory.map(|at| self.info.borrow_mut().info(instruction).op_access(at));
        if let (Some(at), true) = (memory, access.is_some_and(reads)) {
            // The address was checked; what stands there is not the address.
            let of_address = |register: Register| Location::of(register).map(|at| state.get(at).used());
            let address = [of_address(instruction.memory_base()), of_address(instruction.memory_index())];
            inputs.retain(|input| !address.contains(&Some(*input)));
            inputs.push(self.read(state, instruction, at));
        } else if memory.is_some() {
            let of_address = |register: Register| Location::of(register).map(|at| state.get(at).used());
            let address = [of_address(instruction.memory_base()), of_address(instruction.memory_index())];
            inputs.retain(|input| !address.contains(&Some(*input)));
        }
        let result = combined(instruction, &inputs);
        for at in outputs {
            state.set(at, result);
        }
        if access.is_some_and(writes) {
            self.write_memory(state, instruction, result, note);
        }
        if instruction.rflags_modified() != 0 {
            state.compared = (result, Value::Const(0));
        }
    }

    /// The imported function that is called or jumped to, if it is one.
    pub fn callee(&self, instruction: &Instruction) -> Option<&'a str> {
        match instruction.op0_kind() {
            OpKind::NearBranch64 => self.image.imported(instruction.near_branch_target()),
            OpKind::Memory if instruction.is_ip_rel_memory_operand() => {
                self.image.imported(instruction.ip_rel_memory_address())
            }
            _ => None,
        }
    }

    fn call(&self, state: &mut State, instruction: &Instruction, note: &mut dyn FnMut(Event)) {
        let name = self.callee(instruction);
        let returned = match name.map_or(Call::Unknown, runtime::meaning) {
            Call::ThreadNumber => Value::Thread,
            Call::TeamSize => Value::Size,
            Call::GlobalNumber => Value::Global,
            Call::Chunk => {
                self.bounds_written(state, name.unwrap_or_default());
                Value::MoreWork
            }
            Call::StaticShare => {
                if state.general(RDX) != Value::Const(runtime::LLVM_STATIC) {
                    note(Event::Forbidden(Cause::Construct));
                }
                self.bounds_written(state, name.unwrap_or_default());
                // What was handed over on the stack belongs to the function that was called.
                if let Value::Stack(top) = state.general(RSP) {
                    state.forget(top, 24);
                }
                Value::Undefined
            }
            Call::Chooses => Value::Chosen,
            Call::Harmless => Value::Undefined,
            Call::Construct => {
                note(Event::Forbidden(Cause::Construct));
                Value::Undefined
            }
            Call::Asks => {
                note(Event::Forbidden(Cause::ThreadIdentity));
                Value::Undefined
            }
            Call::Unknown => {
                self.called_with(state, instruction, note);
                Value::Returned
            }
        };
        match self.touched_by(instruction) {
            Some(touched) => state.after_call_of(&touched.changed, returned),
            None => state.after_call(returned),
        }
    }

    /// What a function of this object does with registers, where it is plain to see: its callers keep values in
    /// those that it does not change, whatever the calling convention says. `None`: by the convention.
    fn touched_by(&self, instruction: &Instruction) -> Option<Rc<Touched>> {
        if instruction.op0_kind() != OpKind::NearBranch64 || self.callee(instruction).is_some() {
            return None;
        }
        let target = instruction.near_branch_target();
        if let Some(known) = self.touched.borrow().get(&target) {
            return Some(known.clone());
        }
        let mut touched = Touched::default();
        self.collect_touched(target, &mut BTreeSet::new(), &mut touched);
        let kept = |at: &Location| match at {
            Location::General(register) => !KEPT.contains(register) && *register != RSP,
            _ => true,
        };
        touched.changed.retain(kept);
        let touched = Rc::new(touched);
        self.touched.borrow_mut().insert(target, touched.clone());
        Some(touched)
    }

    fn collect_touched(&self, target: u64, reached: &mut BTreeSet<u64>, touched: &mut Touched) {
        if !reached.insert(target) {
            return;
        }
        let code = self.image.function_of(target).and_then(|function| {
            let bytes = self.image.code_at(function.start)?;
            Some((function, &bytes[..bytes.len().min((function.end - function.start) as usize)]))
        });
        let Some((function, bytes)) = code else { return touched.by_convention() };
        for instruction in crate::image::decode(bytes, function.start) {
            let is_branch = instruction.op0_kind() == OpKind::NearBranch64;
            let leads_out =
                !is_branch || !(function.start..function.end).contains(&instruction.near_branch_target());
            let goes = matches!(instruction.mnemonic(), Mnemonic::Call | Mnemonic::Jmp) || is_branch;
            match goes && leads_out {
                true if is_branch && self.callee(&instruction).is_none() => {
                    self.collect_touched(instruction.near_branch_target(), reached, touched);
                }
                true => touched.by_convention(),
                false => {
                    let mut info = self.info.borrow_mut();
                    for used in info.info(&instruction).used_registers() {
                        let Some(at) = Location::of(used.register()) else { continue };
                        // A register that is saved is given back.
                        if writes(used.access()) && instruction.mnemonic() != Mnemonic::Pop {
                            touched.changed.insert(at);
                        }
                        if reads(used.access()) {
                            touched.read.insert(at);
                        }
                    }
                }
            }
        }
    }

    /// The runtime writes the bounds of a share through pointers into the frame.
    fn bounds_written(&self, state: &mut State, name: &str) {
        let bytes = if name.ends_with("_4") || name.ends_with("_4u") { 4 } else { 8 };
        let [_, rsi, rdx, rcx, r8, r9] = ARGUMENTS;
        let rdi = ARGUMENTS[0];
        // LLVM's first pointer is to a flag of four bytes, whether the share is the last one.
        let pointers: &[(u8, usize)] = match name {
            _ if name.starts_with("__kmpc_for_static") => &[(rcx, 4), (r8, bytes), (r9, bytes)],
            _ if name.starts_with("__kmpc_dispatch") => &[(rdx, 4), (rcx, bytes), (r8, bytes), (r9, bytes)],
            _ => &[(rdi, 8), (rsi, 8), (rcx, 8), (r8, 8), (r9, 8)],
        };
        let mut offsets: Vec<(i64, usize)> = pointers
            .iter()
            .filter_map(|(register, bytes)| match state.general(*register) {
                Value::Stack(at) => Some((at, *bytes)),
                _ => None,
            })
            .collect();
        // What does not fit into registers.
        if let (Value::Stack(top), false) = (state.general(RSP), name.ends_with("_next"))
            && let Value::Stack(at) = state.load(top, 8)
        {
            offsets.push((at, bytes));
        }
        for (at, bytes) in offsets {
            state.store(at, bytes, Value::Bound);
        }
    }

    /// Registers in which a call may be given something.
    fn arguments(&self, state: &State, instruction: &Instruction) -> impl Iterator<Item = Location> {
        let general = ARGUMENTS.iter().map(|register| Location::General(*register));
        let touched = self.touched_by(instruction);
        let is_read = |at: &Location| touched.as_ref().is_none_or(|touched| touched.read.contains(at));
        let is_set = |at: &Location| !matches!(state.get(*at), Value::Undefined | Value::Returned);
        let arguments: Vec<Location> =
            general.chain((0..8).map(Location::Vector)).filter(is_set).filter(is_read).collect();
        arguments.into_iter()
    }

    fn called_with(&self, state: &State, instruction: &Instruction, note: &mut dyn FnMut(Event)) {
        let arguments: Vec<Value> = self.arguments(state, instruction).map(|at| state.get(at)).collect();
        for cause in arguments.iter().filter_map(|value| cause_of(*value)) {
            note(Event::Forbidden(cause));
        }
        if let Value::Stack(top) = state.general(RSP) {
            let begun = (0..4).map(|at| top + 8 * at).filter(|at| state.begins_slot(*at));
            let on_stack = begun.map(|at| state.load(at, 8));
            for value in on_stack.filter(|value| value.is_of_team() || matches!(value, Value::Stack(_))) {
                note(Event::Forbidden(cause_of(value).unwrap_or(Cause::Private)));
            }
        }
        let target = match instruction.op0_kind() {
            OpKind::Register | OpKind::Memory => self.read(state, instruction, 0),
            _ => Value::Clean,
        };
        if let Some(cause) = cause_of(target) {
            note(Event::Forbidden(cause));
        }
        note(Event::Effect { at_bound: arguments.contains(&Value::Bound) });
    }

    /// What an instruction reads and writes, for the question what lives from one iteration to the next.
    /// A call reads the registers that somebody has put arguments into.
    pub fn accesses(&self, state: &State, instruction: &Instruction) -> Accesses {
        let mut accesses = Accesses::default();
        let is_call = instruction.mnemonic() == Mnemonic::Call
            || (instruction.mnemonic() == Mnemonic::Jmp && self.leaves(instruction));
        if is_call {
            if self.callee(instruction).map_or(Call::Unknown, runtime::meaning) == Call::Unknown {
                accesses.reads.extend(self.arguments(state, instruction));
            }
            match self.touched_by(instruction) {
                Some(touched) => accesses.clobbers.extend(&touched.changed),
                None => {
                    let mut touched = Touched::default();
                    touched.by_convention();
                    accesses.clobbers.extend(touched.changed);
                }
            }
            let returns = [Location::General(RAX), Location::Vector(0)];
            accesses.writes.extend(returns.iter().filter(|at| accesses.clobbers.contains(at)));
            accesses.clobbers.retain(|at| !returns.contains(at));
            return accesses;
        }
        for used in self.info.borrow_mut().info(instruction).used_registers() {
            let Some(at) = Location::of(used.register()) else { continue };
            if at == Location::General(RSP) {
                continue;
            }
            if reads(used.access()) && !is_zeroing(instruction) {
                accesses.reads.push(at);
            }
            if writes(used.access()) {
                accesses.writes.push(at);
            }
        }
        let top = state.general(RSP);
        let implied = match (instruction.mnemonic(), top) {
            (Mnemonic::Push, Value::Stack(at)) => Some((at - 8, false)),
            (Mnemonic::Pop, Value::Stack(at)) => Some((at, true)),
            _ => None,
        };
        if let Some((offset, is_read)) = implied {
            let touched = Location::frame(offset, 8);
            if is_read { accesses.reads.extend(touched) } else { accesses.writes.extend(touched) }
        }
        let memory = (0..instruction.op_count()).find(|at| instruction.op_kind(*at) == OpKind::Memory);
        if let Some(operand) = memory.filter(|_| instruction.mnemonic() != Mnemonic::Lea)
            && let Place::Frame(offset) = self.place(state, instruction)
        {
            let access = self.info.borrow_mut().info(instruction).op_access(operand);
            let touched: Vec<Location> = Location::frame(offset, instruction.memory_size().size()).collect();
            if reads(access) {
                accesses.reads.extend(&touched);
            }
            if writes(access) {
                accesses.writes.extend(&touched);
            }
        }
        accesses
    }

    /// How an instruction moves a value on by a fixed step: from where, to where, and by how much.
    pub fn advance(&self, state: &State, instruction: &Instruction) -> Option<Advance> {
        let operand = |at: u32| match instruction.op_kind(at) {
            OpKind::Register => Location::of(instruction.op_register(at)),
            OpKind::Memory => match self.place(state, instruction) {
                Place::Frame(offset) => Some(Location::Frame(offset)),
                _ => None,
            },
            _ => None,
        };
        let constant = |at: u32| match instruction.op_kind(at) {
            OpKind::Register | OpKind::Memory => None,
            _ => instruction.try_immediate(at).ok().map(|value| value as i64),
        };
        let to = (instruction.op_count() > 0).then(|| operand(0)).flatten()?;
        let from_itself = |by| Some(Advance { to, from: to, by });
        match instruction.mnemonic() {
            Mnemonic::Mov | Mnemonic::Movsxd | Mnemonic::Movsx | Mnemonic::Movzx => {
                Some(Advance { to, from: operand(1)?, by: By::Constant(0) })
            }
            Mnemonic::Inc => from_itself(By::Constant(1)),
            Mnemonic::Dec => from_itself(By::Constant(-1)),
            Mnemonic::Add | Mnemonic::Sub => match (constant(1), operand(1)) {
                (Some(by), _) if instruction.mnemonic() == Mnemonic::Sub => from_itself(By::Constant(-by)),
                (Some(by), _) => from_itself(By::Constant(by)),
                (None, Some(other)) => from_itself(By::Location(other)),
                (None, None) => None,
            },
            Mnemonic::Paddd | Mnemonic::Paddq => from_itself(By::Location(operand(1)?)),
            Mnemonic::Vpaddd | Mnemonic::Vpaddq => {
                Some(Advance { to, from: operand(1)?, by: By::Location(operand(2)?) })
            }
            Mnemonic::Movdqa | Mnemonic::Movapd | Mnemonic::Movaps | Mnemonic::Vmovdqa => {
                Some(Advance { to, from: operand(1)?, by: By::Constant(0) })
            }
            Mnemonic::Lea => {
                let base = Location::of(instruction.memory_base())?;
                let displacement = instruction.memory_displacement64() as i64;
                match Location::of(instruction.memory_index()) {
                    None => Some(Advance { to, from: base, by: By::Constant(displacement) }),
                    Some(index) => Some(Advance { to, from: base, by: By::Location(index) }),
                }
            }
            _ => None,
        }
    }
}

/// What an operation without rules of its own makes of its inputs.
fn combined(instruction: &Instruction, inputs: &[Value]) -> Value {
    if let ([Value::Fixed(_)], true) = (inputs, MOVES.contains(&instruction.mnemonic())) {
        return inputs[0];
    }
    if inputs.iter().all(|input| matches!(input, Value::Const(_) | Value::Fixed(_))) {
        let mut hasher = DefaultHasher::new();
        (instruction.code() as usize).hash(&mut hasher);
        for operand in 0..instruction.op_count() {
            instruction.try_immediate(operand).ok().hash(&mut hasher);
        }
        for input in inputs {
            match input {
                Value::Const(number) => number.hash(&mut hasher),
                Value::Fixed(number) => (number, "fixed").hash(&mut hasher),
                _ => {}
            }
        }
        return Value::Fixed(hasher.finish());
    }
    let result = match LANES.contains(&instruction.mnemonic()) {
        true => inputs.iter().copied().reduce(Value::add).unwrap_or(Value::Clean),
        false => Value::blend(inputs.iter().copied()),
    };
    match (result, instruction.mnemonic()) {
        (Value::Sum(_) | Value::Total(_), Mnemonic::Movd | Mnemonic::Vmovd) => result.narrowed(4),
        (Value::Sum(_) | Value::Total(_), Mnemonic::Movq | Mnemonic::Vmovq) => result.narrowed(8),
        // In which lanes it stands is not followed.
        (Value::Sum(_) | Value::Total(_), _) => Value::Carried,
        _ => result,
    }
}

/// What a register of that size holds of a value.
fn in_register(value: Value, register: Register) -> Value {
    let is_second_byte = [Register::AH, Register::BH, Register::CH, Register::DH].contains(&register);
    match value {
        Value::Sum(_) | Value::Total(_) if is_second_byte => Value::Carried,
        _ => value.narrowed(register.size()),
    }
}

/// What was constant before is the same constant afterwards.
const MOVES: [Mnemonic; 12] = [
    Mnemonic::Movsd,
    Mnemonic::Movss,
    Mnemonic::Movq,
    Mnemonic::Movapd,
    Mnemonic::Movaps,
    Mnemonic::Movdqa,
    Mnemonic::Vmovsd,
    Mnemonic::Vmovss,
    Mnemonic::Vmovq,
    Mnemonic::Vmovapd,
    Mnemonic::Vmovaps,
    Mnemonic::Vmovdqa,
];

/// Move integers into the lanes of a vector, or add them there.
const LANES: [Mnemonic; 22] = [
    Mnemonic::Movq,
    Mnemonic::Movd,
    Mnemonic::Movdqa,
    Mnemonic::Movapd,
    Mnemonic::Movaps,
    Mnemonic::Pshufd,
    Mnemonic::Punpckldq,
    Mnemonic::Punpcklqdq,
    Mnemonic::Paddd,
    Mnemonic::Paddq,
    Mnemonic::Shufps,
    Mnemonic::Unpcklpd,
    Mnemonic::Vmovq,
    Mnemonic::Vmovd,
    Mnemonic::Vmovdqa,
    Mnemonic::Vpshufd,
    Mnemonic::Vpunpckldq,
    Mnemonic::Vpunpcklqdq,
    Mnemonic::Vpaddd,
    Mnemonic::Vpaddq,
    Mnemonic::Vpbroadcastd,
    Mnemonic::Vpbroadcastq,
];

/// Registers that a function changes, and those that it reads.
#[derive(Default)]
struct Touched {
    changed: BTreeSet<Location>,
    read: BTreeSet<Location>,
}

impl Touched {
    fn by_convention(&mut self) {
        let general = (0..16).filter(|at| !KEPT.contains(at) && *at != RSP).map(Location::General);
        self.changed.extend(general.chain((0..32).map(Location::Vector)));
        self.read.extend(ARGUMENTS.iter().map(|at| Location::General(*at)));
        self.read.extend((0..8).map(Location::Vector));
    }
}

#[derive(Default)]
pub struct Accesses {
    pub reads: Vec<Location>,
    pub writes: Vec<Location>,
    /// Hold nothing afterwards.
    pub clobbers: Vec<Location>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    Constant(i64),
    /// By what stands there.
    Location(Location),
}

#[derive(Clone, Copy, Debug)]
pub struct Advance {
    pub to: Location,
    pub from: Location,
    pub by: By,
}

/// Ask the processor or the kernel, or compute by approximations that differ between a vector and its rest.
const NOT_FOLLOWED: [Mnemonic; 14] = [
    Mnemonic::Syscall,
    Mnemonic::Sysenter,
    Mnemonic::Int,
    Mnemonic::Cpuid,
    Mnemonic::Rdtsc,
    Mnemonic::Rdtscp,
    Mnemonic::Rdpid,
    Mnemonic::Rdfsbase,
    Mnemonic::Rdgsbase,
    Mnemonic::Rcpps,
    Mnemonic::Rsqrtps,
    Mnemonic::Vrcpps,
    Mnemonic::Vrsqrtps,
    Mnemonic::Xlatb,
];

fn reads(access: OpAccess) -> bool {
    matches!(
        access,
        OpAccess::Read
            | OpAccess::CondRead
            | OpAccess::ReadWrite
            | OpAccess::ReadCondWrite
            | OpAccess::CondWrite
    )
}

fn writes(access: OpAccess) -> bool {
    matches!(access, OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
}

fn same_register(instruction: &Instruction) -> bool {
    instruction.op_count() >= 2
        && instruction.op_kind(0) == OpKind::Register
        && instruction.op_kind(1) == OpKind::Register
        && instruction.op_register(0) == instruction.op_register(1)
}

/// The result does not depend on what the register held.
fn is_zeroing(instruction: &Instruction) -> bool {
    const ZEROING: [Mnemonic; 6] =
        [Mnemonic::Xor, Mnemonic::Sub, Mnemonic::Pxor, Mnemonic::Xorps, Mnemonic::Xorpd, Mnemonic::Pcmpeqd];
    same_register(instruction) && ZEROING.contains(&instruction.mnemonic())
}

fn is_conditional_move(instruction: &Instruction) -> bool {
    instruction.condition_code() != iced_x86::ConditionCode::None
        && instruction.op_count() == 2
        && instruction.op_kind(0) == OpKind::Register
}

/// GCC puts unlikely parts of a function under another name.
pub fn is_part(name: &str, other: &str) -> bool {
    let base = |name: &str| name.split(".cold").next().map(str::to_owned);
    base(name) == base(other)
}

/// Decisions may be taken on anything but the thread and what it carries along; comparing the thread
/// number with the remainder is how a share is dealt, and with zero how one thread is chosen.
fn check_compared(state: &State, note: &mut dyn FnMut(Event)) {
    let pair = state.compared;
    let dealt = matches!(
        pair,
        (Value::Thread, Value::Remainder | Value::Const(0))
            | (Value::Remainder | Value::Const(0), Value::Thread)
            | (Value::Chosen, Value::Const(_))
            | (Value::Wide, Value::Const(0))
    ) || matches!(pair, (Value::QuotientEither, other) | (other, Value::QuotientEither)
        if other == Value::QuotientEither || other.is_clean() || other.is_of_share());
    if dealt {
        return;
    }
    for value in [pair.0, pair.1] {
        if value.is_of_team() {
            note(Event::Forbidden(Cause::ThreadNumber));
        } else if matches!(value, Value::Sum(_) | Value::Total(_) | Value::Carried) {
            note(Event::Forbidden(Cause::Carried));
        }
    }
}
