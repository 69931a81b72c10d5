//! Whether the parallel regions of a compiled OpenMP program compute the same with any number of threads.
//!
//! **The problem.** OpenMP lets a runtime give a region fewer threads than it could have where dyn-var is true,
//! but most programs never heard of that: they cut regions by a number that they asked for once, keep a
//! buffer for each thread, add up partial sums whose rounding depends on the division of the work.
//! Whoever changes the size of a team under such a program changes its result without a word.
//!
//! **The rule.** An object (a program or a shared library) is [`Verdict::Independent`] only if its machine code
//! shows that no result can depend on the team: in every region, thread number and team size become
//! bounds of a loop's share and nothing else; all that others can see happens in the iterations of such
//! a share, by one chosen thread, or adds up integers; no thread carries anything from one iteration to
//! the next; nothing outlives a region in thread-local data. What is not understood counts against it.
//!
//! **Terms.** A *share* is the part of a loop's iterations that one thread runs. A *bound* of it is computed
//! by the compiler ([`value`]) or by the runtime ([`runtime`]). *Carried* is what an iteration leaves
//! to the next one of the same thread.
//!
//! **Limits.** x86-64, code of GCC and of clang, with symbols. Races and the order of critical sections
//! are the program's own: with several threads they are as open without us. Inside an
//! iteration calls are not followed, as a function without thread numbers or thread-local data has
//! nothing by which it could know its thread. `docs/resizing.md` lists what is found and what is not.

mod code;
mod image;
mod process;
mod reason;
mod region;
mod runtime;
mod state;
mod step;
mod value;

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};
use serde::{Deserialize, Serialize};

use image::Image;
pub use process::{Because, Examination, Finding, Obstacle, judge};
pub use reason::{Cause, Reason};

/// Instructions before a call among which its arguments are looked for.
const ARGUMENTS_WITHIN: usize = 48;

/// What was found in one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It starts no regions and asks nothing about teams.
    NoRegions,
    /// Its author says that it is independent: it carries the note of `coplace/resizable.h`.
    Declared,
    /// So many regions, none of which depends on the size of its team.
    Independent {
        /// How many parallel regions it has.
        regions: usize,
    },
    /// Not known to be independent.
    Dependent(Reason),
}

/// Analyses an object, given as the content of its file.
pub fn analyse(bytes: &[u8]) -> Verdict {
    match judge_object(bytes) {
        Ok(verdict) => verdict,
        Err(reason) => Verdict::Dependent(reason),
    }
}

/// Whether an object starts regions or asks about teams, from its dynamic symbols alone: quick also for the
/// hundreds of libraries that a Python program loads.
pub fn uses_openmp(file: &std::fs::File) -> bool {
    image::imports(file).iter().any(|name| runtime::is_of_openmp(name))
}

fn whole(cause: Cause) -> Reason {
    Reason { cause, function: None }
}

fn judge_object(bytes: &[u8]) -> Result<Verdict, Reason> {
    let image = Image::read(bytes).map_err(whole)?;
    if !image.imports.iter().any(|name| runtime::is_of_openmp(name)) {
        return Ok(Verdict::NoRegions);
    }
    if image.has_note {
        return Ok(Verdict::Declared);
    }
    if !image.processor_is_analysed {
        return Err(whole(Cause::Processor));
    }
    if image.functions.is_empty() {
        return Err(whole(Cause::Stripped));
    }
    if image.has_thread_local_data {
        return Err(whole(Cause::ThreadLocal));
    }
    if image.imports.iter().any(|name| runtime::ASKS_IDENTITY.contains(&name.as_str())) {
        return Err(whole(Cause::ThreadIdentity));
    }
    check_lookups(&image)?;
    floating_point_state(&image)?;
    let regions = regions(&image)?;
    for (start, is_llvm) in &regions {
        let function = &image.functions[start];
        let named = |cause| Reason { cause, function: Some(function.name.clone()) };
        region::analyse(&image, function, *is_llvm).map_err(named)?;
    }
    asked_elsewhere(&image, &regions)?;
    state_of_threads(&image, &regions)?;
    Ok(Verdict::Independent { regions: regions.len() })
}

/// By names in its data a program can find at run time what it does not import.
fn check_lookups(image: &Image) -> Result<(), Reason> {
    let can = image.imports.iter().any(|name| runtime::LOOKUP_CALLS.contains(&name.as_str()));
    let names = runtime::ASKS_TEAM.iter().chain(&runtime::ASKS_IDENTITY);
    match can && image.names_any_of(names) || image.names_any_of(&["/proc/thread-self"]) {
        true => Err(whole(Cause::ThreadIdentity)),
        false => Ok(()),
    }
}

/// Each thread has its own rounding, exceptions and flushing to zero. A program that sets or reads them, beyond what a
/// compiler's start-up code does before there are threads, computes what its number of threads decides.
fn floating_point_state(image: &Image) -> Result<(), Reason> {
    let at_start = |name: &str| name == "set_fast_math";
    if image.imports.iter().any(|name| runtime::is_of_floating_point_state(name)) {
        return Err(whole(Cause::FloatingPointState));
    }
    for instruction in image.all_code() {
        let is_state = [Mnemonic::Ldmxcsr, Mnemonic::Stmxcsr, Mnemonic::Vldmxcsr, Mnemonic::Vstmxcsr]
            .contains(&instruction.mnemonic());
        let function = || image.function_of(instruction.ip()).map(|function| function.name.clone());
        if is_state && !function().is_some_and(|name| at_start(&name)) {
            return Err(Reason { cause: Cause::FloatingPointState, function: function() });
        }
    }
    Ok(())
}

/// Whether anything that the regions call in this object uses state of the thread that runs it. Where a call leads is
/// not known of a pointer; then all that the object imports counts.
fn state_of_threads(image: &Image, regions: &BTreeMap<u64, bool>) -> Result<(), Reason> {
    let is_state = |name: &str| runtime::STATE_OF_THREAD.contains(&name);
    if !image.imports.iter().any(|name| is_state(name)) {
        return Ok(());
    }
    let (mut reached, mut open) = (BTreeSet::new(), regions.keys().copied().collect::<Vec<u64>>());
    while let Some(start) = open.pop() {
        let Some(function) = image.function_of(start) else { continue };
        if !reached.insert(function.start) {
            continue;
        }
        let found = || Err(Reason { cause: Cause::LibraryState, function: Some(function.name.clone()) });
        for instruction in image.code_of(function) {
            match referred(image, &instruction) {
                Some(name) if is_state(name) => return found(),
                Some(_) => continue,
                None => {}
            }
            match instruction.flow_control() {
                FlowControl::IndirectCall | FlowControl::IndirectBranch => return found(),
                FlowControl::Call | FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
                    open.push(instruction.near_branch_target());
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// The functions of all regions that the object starts, and whether LLVM's runtime calls them.
fn regions(image: &Image) -> Result<BTreeMap<u64, bool>, Reason> {
    let mut regions = BTreeMap::new();
    let mut recent: Vec<Instruction> = Vec::new();
    for instruction in image.all_code() {
        let name = referred(image, &instruction);
        if let Some(register) = name.and_then(runtime::starts_region) {
            let is_call = matches!(instruction.mnemonic(), Mnemonic::Call | Mnemonic::Jmp);
            let target = is_call.then(|| argument(&recent, register)).flatten();
            let known = target.filter(|target| image.functions.contains_key(target));
            let within = || image.function_of(instruction.ip()).map(|f| f.name.clone());
            let target = known.ok_or_else(|| Reason { cause: Cause::UnknownRegion, function: within() })?;
            regions.insert(target, register == Register::RDX);
        }
        recent.push(instruction);
        if recent.len() > ARGUMENTS_WITHIN {
            recent.remove(0);
        }
    }
    Ok(regions)
}

/// The imported function that an instruction calls, or whose address it takes.
fn referred<'a>(image: &'a Image, instruction: &Instruction) -> Option<&'a str> {
    match instruction.op0_kind() {
        OpKind::NearBranch64 => image.imported(instruction.near_branch_target()),
        _ if instruction.is_ip_rel_memory_operand() => image.imported(instruction.ip_rel_memory_address()),
        _ => None,
    }
}

/// The address that was put into a register last, if it is a constant.
fn argument(before: &[Instruction], register: Register) -> Option<u64> {
    let mut register = register;
    for instruction in before.iter().rev() {
        if instruction.op_count() == 0 || instruction.op0_kind() != OpKind::Register {
            continue;
        }
        if instruction.op0_register().full_register() != register
            || matches!(instruction.mnemonic(), Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push)
        {
            continue;
        }
        match (instruction.mnemonic(), instruction.op1_kind()) {
            (Mnemonic::Lea, _) if instruction.is_ip_rel_memory_operand() => {
                return Some(instruction.ip_rel_memory_address());
            }
            (Mnemonic::Mov, OpKind::Register) => register = instruction.op1_register().full_register(),
            (Mnemonic::Mov, OpKind::Immediate32 | OpKind::Immediate32to64 | OpKind::Immediate64) => {
                return instruction.try_immediate(1).ok();
            }
            _ => return None,
        }
    }
    None
}

/// Who asks for a thread number or a team's size outside of the regions' own code knows what no region
/// shows.
fn asked_elsewhere(image: &Image, regions: &BTreeMap<u64, bool>) -> Result<(), Reason> {
    for instruction in image.all_code() {
        let asks = referred(image, &instruction).is_some_and(|name| runtime::ASKS_TEAM.contains(&name));
        if !asks {
            continue;
        }
        let function = image.function_of(instruction.ip());
        let is_call = matches!(instruction.mnemonic(), Mnemonic::Call | Mnemonic::Jmp);
        let is_region = function.is_some_and(|f| {
            regions.contains_key(&f.start)
                || regions.keys().any(|start| step::is_part(&image.functions[start].name, &f.name))
        });
        if !is_region || !is_call {
            return Err(Reason { cause: Cause::AskedElsewhere, function: function.map(|f| f.name.clone()) });
        }
    }
    Ok(())
}
