//! Why an object's regions are not known to compute the same with any number of threads.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What stands in the way, and in which function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// What the code does that makes results depend on the team, or may.
    pub cause: Cause,
    /// The region's function, as the compiler named it; absent if the object as a whole is meant.
    pub function: Option<String>,
}

/// One cause each; the sentence is for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// Neither a shared object nor a program in ELF, or damaged.
    NotElf,
    /// Machine code of a processor that is not analysed.
    Processor,
    /// No symbols that say where functions begin and end.
    Stripped,
    /// Thread-local data of its own (threadprivate, thread_local).
    ThreadLocal,
    /// It asks the system which thread or CPU it runs on, or can.
    ThreadIdentity,
    /// It sets or reads rounding, exceptions or other floating-point state, of which each thread has its own.
    FloatingPointState,
    /// Its regions read or set what the C library keeps for each thread, such as errno.
    LibraryState,
    /// The team is asked about outside of a region's own code.
    AskedElsewhere,
    /// A region is started with a function that is not found in the code.
    UnknownRegion,
    /// Code that is not followed: jump tables, system calls, x87, unusual control flow.
    NotFollowed,
    /// An OpenMP construct other than plain worksharing.
    Construct,
    /// A thread number, or the size of the team, is used for more than the bounds of a share.
    ThreadNumber,
    /// Every thread of the team does something, whatever its share of the work is.
    EachThread,
    /// A thread carries something from one iteration to the next.
    Carried,
    /// A reduction whose result depends on how the work was divided (floating point), or may.
    Reduction,
    /// The region keeps data on the stack of each thread, or hands it out.
    Private,
}

impl Cause {
    /// All of them, for documents and tests.
    pub const ALL: [Cause; 16] = [
        Cause::NotElf,
        Cause::Processor,
        Cause::Stripped,
        Cause::ThreadLocal,
        Cause::ThreadIdentity,
        Cause::FloatingPointState,
        Cause::LibraryState,
        Cause::AskedElsewhere,
        Cause::UnknownRegion,
        Cause::NotFollowed,
        Cause::Construct,
        Cause::ThreadNumber,
        Cause::EachThread,
        Cause::Carried,
        Cause::Reduction,
        Cause::Private,
    ];

    /// A clause for people, without its full stop.
    pub fn sentence(self) -> &'static str {
        match self {
            Cause::NotElf => "it is no intact ELF file",
            Cause::Processor => "code for this processor is not analysed",
            Cause::Stripped => "it has no symbols, so its regions cannot be analysed",
            Cause::ThreadLocal => "it keeps data per thread (threadprivate, thread_local)",
            Cause::ThreadIdentity => "it asks which thread or CPU it runs on, or can",
            Cause::FloatingPointState => {
                "it sets or reads rounding, exceptions or flushing to zero, of which each thread has its own"
            }
            Cause::LibraryState => "its regions use what the C library keeps for each thread, such as errno",
            Cause::AskedElsewhere => "code outside its regions asks for the team or the thread number",
            Cause::UnknownRegion => "it starts a region whose code was not found",
            Cause::NotFollowed => "its code could not be followed",
            Cause::Construct => "it uses an OpenMP construct other than plain worksharing",
            Cause::ThreadNumber => {
                "it uses a thread number, or the size of the team, beyond the bounds of a loop"
            }
            Cause::EachThread => "every thread does something there, whatever its share of the work",
            Cause::Carried => "a thread carries a value from one iteration to the next",
            Cause::Reduction => "its reduction depends on how the work was divided, or may",
            Cause::Private => "it keeps data on each thread's stack",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.function {
            Some(function) => write!(f, "{} (in {function})", self.cause.sentence()),
            None => f.write_str(self.cause.sentence()),
        }
    }
}
