//! For how long somebody who finds no scheduler goes on trying: a leader ends with its program, so that
//! whoever comes just then meets one that is leaving, or another that is about to lead.

use linux::clock::now_ns;

use super::{JoinError, SHORTEST_PAUSE_NS};
use crate::home::{Home, LockError};
use crate::identity;
use crate::lease::Lease;

/// A scheduler that lives without acting is not waited for any longer.
const HANGING_NS: u64 = 3_000_000_000;
/// One that acts, or is just beginning, may be slow on a busy machine.
const SLOW_NS: u64 = 10_000_000_000;

/// What the lease tells of a scheduler that did not take us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    /// There is none, it has ended, or it beats.
    Passing,
    /// It lives and does not beat.
    Hangs,
}

/// Attempts since a moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retry {
    since_ns: u64,
}

impl Retry {
    pub fn now() -> Retry {
        Retry { since_ns: now_ns() }
    }

    pub fn since(since_ns: u64) -> Retry {
        Retry { since_ns }
    }

    /// Waits a moment before the next attempt; the error comes back where there is to be none.
    pub fn wait_before_next(&self, error: JoinError, home: &Home) -> Result<(), JoinError> {
        if !is_passing(&error) || self.is_over(home) {
            return Err(error);
        }
        linux::clock::sleep_until(now_ns() + SHORTEST_PAUSE_NS);
        Ok(())
    }

    /// Whether nobody is to be waited for any more.
    pub fn is_over(&self, home: &Home) -> bool {
        let now = now_ns();
        let waited_ns = now.saturating_sub(self.since_ns);
        let sign = || match Lease::read(home) {
            Some(lease) if !lease.is_fresh(now) && identity::is_alive(lease.holder) => Sign::Hangs,
            _ => Sign::Passing,
        };
        waited_ns >= HANGING_NS && is_enough(waited_ns, sign())
    }
}

fn is_enough(waited_ns: u64, sign: Sign) -> bool {
    match sign {
        Sign::Passing => waited_ns >= SLOW_NS,
        Sign::Hangs => waited_ns >= HANGING_NS,
    }
}

/// Whether another attempt may find what this one did not: a scheduler that has taken the lock and does not
/// listen yet, one that went while we spoke to it, one that was too busy to answer.
fn is_passing(error: &JoinError) -> bool {
    match error {
        JoinError::Client(error) => error.is_lost(),
        JoinError::Lost(error) => is_passing(error),
        JoinError::Lock(LockError::Held { .. }) | JoinError::Nobody(_) => true,
        JoinError::Lock(LockError::Io { .. }) | JoinError::Start(_) | JoinError::Home(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::NoSchedulerReason;
    use protocol::ClientError;
    use std::io;

    const S: u64 = 1_000_000_000;

    #[test]
    fn a_hanging_scheduler_is_waited_for_less_than_a_slow_one() {
        assert!(!is_enough(3 * S - 1, Sign::Hangs) && is_enough(3 * S, Sign::Hangs));
        assert!(!is_enough(10 * S - 1, Sign::Passing) && is_enough(10 * S, Sign::Passing));
    }

    #[test]
    fn a_lost_scheduler_is_tried_again_and_a_refusing_one_is_not() {
        let home = Home::at(tempfile::tempdir().unwrap().path()).unwrap();
        let reset = io::Error::from(io::ErrorKind::ConnectionReset);
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        let late = io::Error::from(io::ErrorKind::TimedOut);
        let held = LockError::Held { home: home.path().into(), pid: None, role: None };
        for error in [
            ClientError::Ended.into(),
            ClientError::Line(protocol::LineError::Io(reset)).into(),
            ClientError::Line(protocol::LineError::Io(late)).into(),
            ClientError::NotThere { path: "socket".into(), error: refused }.into(),
            held.into(),
            JoinError::Nobody(NoSchedulerReason::NotTried),
        ] {
            assert!(Retry::now().wait_before_next(error, &home).is_ok());
        }
        for error in [
            JoinError::from(ClientError::Refused("not yours".into())),
            ClientError::Version { theirs: 0 }.into(),
            ClientError::GreetingRefused("use one coplace for both".into()).into(),
            ClientError::Unexpected.into(),
            LockError::Io { path: home.lock(), error: io::ErrorKind::PermissionDenied.into() }.into(),
        ] {
            assert!(Retry::now().wait_before_next(error, &home).is_err());
        }
        let long_ago = now_ns().saturating_sub(11 * S);
        assert!(Retry::since(long_ago).wait_before_next(ClientError::Ended.into(), &home).is_err());
    }
}
