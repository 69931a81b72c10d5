//! What is known of a value while a region's code is followed: not how large it is, but how it depends
//! on the team.
//!
//! A static loop without a chunk, as GCC compiles it, divides its `trips` by the size of the team:
//! `quotient, remainder = trips / size`; threads below `remainder` take one more. A thread's share begins
//! at `thread * quotient + remainder`, so that the shares together are the loop, however many
//! there are. A programmer's own `thread * trips / size` has the same property. Both are [`Value::Bound`];
//! whatever else is made of a thread number is [`Value::Bad`] and may not reach memory.

/// The constants that matter are small; others are kept to recognise masks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// Left over, for example by a call: compiled code does not read it.
    Undefined,
    /// What an unknown call returned, until it is used.
    Returned,
    /// The same whatever the team is, for one iteration.
    Clean,
    Const(i64),
    /// The same wherever it is computed: made of constants alone. The number tells them apart.
    Fixed(u64),
    /// An address in this function's frame, relative to the stack pointer at its entry.
    Stack(i64),
    Thread,
    /// Thread number plus a constant.
    ThreadPlus,
    /// Size of the team.
    Size,
    /// Trips divided by the size of the team …
    Quotient,
    /// … and one more, for the threads below the remainder …
    QuotientPlus,
    /// … and either of them.
    QuotientEither,
    Remainder,
    RemainderOrZero,
    /// Either of them, and something that does not depend on the team.
    RemainderPlus,
    /// Thread number times quotient.
    ThreadQuotient,
    /// Thread number times something that does not depend on the team.
    ThreadProduct,
    /// Whether a division by the size of the team needs 64 bits, as clang asks before it.
    Wide,
    /// Sign of a value that is about to be divided.
    Sign,
    /// A bound of the thread's share, or an address made from one by adding and scaling.
    Bound,
    /// Made from a bound in another way: good for counting the iterations of a share and for nothing else.
    Count,
    /// Starts anew in each share and advances with the iterations: an offset to a bound.
    Local,
    /// The sum of integers so far of a share, which starts at zero, in so many bytes: what was added up is right
    /// modulo a power of two, and beyond these bytes there is what one thread's adding left.
    Sum(u8),
    /// The same when the share is done: what the thread may add to a sum of all that is no wider.
    Total(u8),
    /// Carried from one iteration to the next in another way.
    Carried,
    /// Whether the runtime had another chunk for this thread.
    MoreWork,
    /// Whether this thread is the one that is to do it.
    Chosen,
    /// The number by which LLVM's runtime knows the thread, and where it stands.
    Global,
    GlobalAt,
    /// Depends on the thread or the size of the team.
    Bad,
}

use Value::*;

impl Value {
    /// Derived from the thread number or the size of the team, and no bound.
    pub fn is_of_team(self) -> bool {
        matches!(
            self,
            Thread
                | ThreadPlus
                | Size
                | Quotient
                | QuotientPlus
                | QuotientEither
                | Remainder
                | RemainderOrZero
                | RemainderPlus
                | ThreadQuotient
                | ThreadProduct
                | Wide
                | Global
                | GlobalAt
                | Chosen
                | Bad
        )
    }

    pub fn is_clean(self) -> bool {
        matches!(self, Undefined | Returned | Clean | Const(_) | Fixed(_))
    }

    /// Depends on where a share begins or ends.
    pub fn is_of_share(self) -> bool {
        matches!(self, Bound | Count | Local | MoreWork)
    }

    /// Where two ways through the code meet.
    pub fn join(self, other: Value) -> Value {
        match (self, other) {
            (a, b) if a == b => a,
            // Code never reads what is undefined on one of the ways.
            (Undefined, _) | (_, Undefined) => Undefined,
            (Returned, x) | (x, Returned) => Clean.join(x),
            (Quotient | QuotientPlus | QuotientEither, Quotient | QuotientPlus | QuotientEither) => {
                QuotientEither
            }
            (Remainder | RemainderOrZero, Const(0) | RemainderOrZero)
            | (Const(0) | RemainderOrZero, Remainder | RemainderOrZero) => RemainderOrZero,
            // The share of a thread below the remainder begins at thread * (quotient + 1).
            (ThreadQuotient, Bound) | (Bound, ThreadQuotient) => Bound,
            (a, b) if a.is_of_team() || b.is_of_team() => Bad,
            (Stack(_), _) | (_, Stack(_)) | (Sign, _) | (_, Sign) => Bad,
            (Sum(a), Sum(b)) => Sum(a.min(b)),
            (Total(a), Total(b)) => Total(a.min(b)),
            (Const(0), sum @ (Sum(_) | Total(_))) | (sum @ (Sum(_) | Total(_)), Const(0)) => sum,
            (Sum(_) | Total(_) | Carried, _) | (_, Sum(_) | Total(_) | Carried) => Carried,
            (Count | MoreWork, _) | (_, Count | MoreWork) => Count,
            (Bound, Local) | (Local, Bound) => Count,
            (Bound, _) | (_, Bound) => Bound,
            (Local, _) | (_, Local) => Local,
            _ => Clean,
        }
    }

    /// What an operation without rules of its own makes of what it reads.
    pub fn blend(inputs: impl IntoIterator<Item = Value>) -> Value {
        let mut result = Clean;
        for input in inputs {
            result = match (result, input) {
                (Bad, _) => Bad,
                (_, Stack(_) | Sign) => Bad,
                // As many iterations as the share has.
                (Clean | Count, QuotientEither) => Count,
                (_, x) if x.is_of_team() => Bad,
                (Carried, _) | (_, Sum(_) | Total(_) | Carried) => Carried,
                (Count, _) | (_, Bound | Count | Local | MoreWork) => Count,
                _ => Clean,
            };
        }
        result
    }

    pub fn add(self, other: Value) -> Value {
        match (self, other) {
            (Const(a), Const(b)) => Const(a.wrapping_add(b)),
            (Stack(a), Const(b)) | (Const(b), Stack(a)) => Stack(a.wrapping_add(b)),
            (x, Const(0)) | (Const(0), x) => x.used(),
            (Thread | ThreadPlus, Const(_)) | (Const(_), Thread | ThreadPlus) => ThreadPlus,
            (Quotient, Const(1)) | (Const(1), Quotient) => QuotientPlus,
            (ThreadQuotient, Remainder | RemainderOrZero | RemainderPlus)
            | (Remainder | RemainderOrZero | RemainderPlus, ThreadQuotient) => Bound,
            (Remainder | RemainderOrZero | RemainderPlus, x)
            | (x, Remainder | RemainderOrZero | RemainderPlus)
                if x.is_clean() =>
            {
                RemainderPlus
            }
            (Bound, Quotient | QuotientPlus | QuotientEither)
            | (Quotient | QuotientPlus | QuotientEither, Bound) => Bound,
            (ThreadProduct, x) | (x, ThreadProduct) if x.is_clean() => ThreadProduct,
            (Sum(bytes), x) | (x, Sum(bytes)) if x.is_clean() || x == Bound => Sum(bytes),
            (Bound, Local | Bound) | (Local, Bound) => Bound,
            (Bound, x) | (x, Bound) if x.is_clean() => Bound,
            (Local, x) | (x, Local) if x.is_clean() => Local,
            (a, b) => Value::blend([a, b]),
        }
    }

    pub fn sub(self, other: Value) -> Value {
        match (self, other) {
            (Const(a), Const(b)) => Const(a.wrapping_sub(b)),
            (Stack(a), Const(b)) => Stack(a.wrapping_sub(b)),
            (Stack(a), Stack(b)) => Const(a.wrapping_sub(b)),
            (Thread | ThreadPlus, Const(_)) => ThreadPlus,
            (Sum(bytes), x) if x.is_clean() || x == Bound => Sum(bytes),
            (Bound, Bound) => Bound,
            (Bound, x) | (x, Bound) if x.is_clean() => Bound,
            (Local, x) if x.is_clean() => Local,
            (a, b) => Value::blend([a, b]),
        }
    }

    pub fn multiply(self, other: Value) -> Value {
        match (self, other) {
            (Const(a), Const(b)) => Const(a.wrapping_mul(b)),
            (x, Const(1)) | (Const(1), x) => x.used(),
            (Thread, Quotient | QuotientPlus | QuotientEither)
            | (Quotient | QuotientPlus | QuotientEither, Thread) => ThreadQuotient,
            (Thread | ThreadPlus, x) | (x, Thread | ThreadPlus) if x.is_clean() => ThreadProduct,
            (Bound, x) | (x, Bound) if x.is_clean() => Bound,
            (Local, x) | (x, Local) if x.is_clean() => Local,
            (a, b) => Value::blend([a, b]),
        }
    }

    /// Shifted left by a constant, or by a number that does not depend on the team.
    pub fn shift_left(self, by: Value) -> Value {
        match (self, by) {
            (Const(a), Const(b)) => Const(a.wrapping_shl(b as u32)),
            (a, Const(b)) if (0..64).contains(&b) => a.multiply(Const(1_i64 << b)),
            (a, b) => Value::blend([a, b]),
        }
    }

    pub fn and(self, mask: Value) -> Value {
        match (self, mask) {
            (Const(a), Const(b)) => Const(a & b),
            // Rounded down to a power of two: how far the vectors of a share reach.
            (Bound | QuotientEither, Const(b)) if b < 0 && b.wrapping_neg().count_ones() == 1 => self,
            (a, b) => Value::blend([a, b]),
        }
    }

    pub fn or(self, other: Value) -> Value {
        match (self, other) {
            (ThreadProduct, Size) | (Size, ThreadProduct) => Wide,
            (a, Size) | (Size, a) if a.is_clean() => Wide,
            (a, b) => Value::blend([a, b]),
        }
    }

    pub fn shift_right(self, by: Value) -> Value {
        match (self, by) {
            (Wide, Const(32)) => Wide,
            (a, b) => Value::blend([a, b]),
        }
    }

    /// Quotient and remainder.
    pub fn divide(self, divisor: Value) -> (Value, Value) {
        match (self, divisor) {
            (x, Size) if x.is_clean() => (Quotient, Remainder),
            (ThreadProduct, Size) => (Bound, Bad),
            (a, b) => (Value::blend([a, b]), Value::blend([a, b])),
        }
    }

    /// As so many of its lowest bytes.
    pub fn narrowed(self, bytes: usize) -> Value {
        let bytes = u8::try_from(bytes).unwrap_or(u8::MAX);
        match self {
            Sum(own) => Sum(own.min(bytes)),
            Total(own) => Total(own.min(bytes)),
            other => other,
        }
    }

    /// When the loop over the share is left: what is added from here on every thread would add.
    pub fn done(self) -> Value {
        match self {
            Sum(bytes) => Total(bytes),
            other => other,
        }
    }

    /// Read by an instruction.
    pub fn used(self) -> Value {
        match self {
            Undefined | Returned => Clean,
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_static_share_as_gcc_computes_it_is_a_bound() {
        let (quotient, remainder) = Clean.divide(Size);
        let quotient = quotient.join(quotient.add(Const(1)));
        let remainder = remainder.join(Const(0));
        let first = Thread.multiply(quotient).add(remainder);
        assert_eq!(first, Bound);
        assert_eq!(first.add(quotient), Bound);
    }

    #[test]
    fn a_share_by_multiplying_first_is_a_bound() {
        let product = Thread.multiply(Clean);
        assert_eq!(product.divide(Size).0, Bound);
        assert_eq!(product.add(Clean).divide(Size).0, Bound);
        assert_eq!(Thread.add(Const(1)).multiply(Clean).divide(Size).0, Bound);
    }

    #[test]
    fn shares_that_leave_the_remainder_are_none() {
        let (quotient, _) = Clean.divide(Size);
        let first = Thread.multiply(quotient);
        assert!(first.is_of_team());
        assert!(first.add(quotient).is_of_team());
        assert!(first.add(Clean).is_of_team());
    }

    #[test]
    fn a_chunk_of_a_former_team_makes_no_share() {
        assert!(Thread.multiply(Clean).add(Clean).is_of_team());
        assert!(Thread.multiply(Const(64)).is_of_team());
    }

    #[test]
    fn joining_is_commutative_and_idempotent() {
        let all = [
            Undefined,
            Returned,
            Clean,
            Const(0),
            Const(1),
            Fixed(1),
            Stack(8),
            Thread,
            ThreadPlus,
            Size,
            Quotient,
            QuotientPlus,
            QuotientEither,
            Remainder,
            RemainderOrZero,
            RemainderPlus,
            ThreadQuotient,
            ThreadProduct,
            Wide,
            Sign,
            Bound,
            Count,
            Local,
            Sum(4),
            Sum(8),
            Total(4),
            Total(8),
            Carried,
            MoreWork,
            Chosen,
            Global,
            GlobalAt,
            Bad,
        ];
        for a in all {
            assert_eq!(a.join(a), a);
            for b in all {
                assert_eq!(a.join(b), b.join(a), "{a:?} {b:?}");
            }
        }
    }
}
