//! Limit of the memory that initiators make a target allocate.

use super::conversation::SessionId;
use super::message::{Cause, Refusal};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Memory limit, and the option that raises it.
#[derive(Clone, Copy, Debug)]
pub struct MemoryLimit {
    /// Limit in bytes.
    pub bytes: u64,
    /// Name of the option, for refusals.
    pub option: &'static str,
}

/// Budget of the memory for queue pairs, queues, message buffers and streams that initiators request. Code that
/// allocates memory whose size a peer determines makes a [`Reservation`] first. Clones share the same budget.
#[derive(Clone, Debug)]
pub struct MemoryBudget {
    each: MemoryLimit,
    all: MemoryLimit,
    ledger: Arc<Mutex<Ledger>>,
}

/// Reserved bytes of each session and of all of them, and the number of refusals.
#[derive(Debug, Default)]
struct Ledger {
    reserved: HashMap<SessionId, u64>,
    sum: u64,
    refused: u64,
}

/// State of the budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct MemoryBudgetState {
    /// Bytes reserved by initiators.
    pub used_bytes: u64,
    /// Limit in bytes.
    pub max_bytes: u64,
    /// Requests refused because of the limit.
    pub refused: u64,
}

/// Reserved bytes; dropping it releases them.
#[derive(Debug)]
pub struct Reservation {
    budget: MemoryBudget,
    session: SessionId,
    bytes: u64,
}

impl MemoryBudget {
    /// Creates a budget with limits for one initiator and for all of them together.
    pub fn new(each: MemoryLimit, all: MemoryLimit) -> Self {
        Self { each, all, ledger: Arc::default() }
    }

    /// Reserves bytes for `what`.
    ///
    /// # Errors
    /// [`Cause::Limit`] if a limit would be exceeded, with the requested and the available bytes and the option that
    /// raises the limit.
    pub fn reserve(&self, session: SessionId, bytes: u64, what: &str) -> Result<Reservation, Refusal> {
        let mut ledger = self.ledger();
        let reserved = ledger.reserved.get(&session).copied().unwrap_or(0);
        let limits = [("one initiator", self.each, reserved), ("all initiators", self.all, ledger.sum)];
        let full = limits.into_iter().find(|(_, limit, reserved)| bytes > limit.bytes.saturating_sub(*reserved));
        if let Some((scope, limit, reserved)) = full {
            ledger.refused += 1;
            let message = format!(
                "{what}: expected at most {} bytes, found {bytes}: {reserved} of the {} bytes of {scope} are in use; \
                 start the target with a larger {}",
                limit.bytes.saturating_sub(reserved),
                limit.bytes,
                limit.option
            );
            return Err(Refusal::new(Cause::Limit, message));
        }
        *ledger.reserved.entry(session).or_default() += bytes;
        ledger.sum += bytes;
        Ok(Reservation { budget: self.clone(), session, bytes })
    }

    /// Returns the reserved bytes, the limit and the number of refusals.
    pub fn state(&self) -> MemoryBudgetState {
        let ledger = self.ledger();
        MemoryBudgetState { used_bytes: ledger.sum, max_bytes: self.all.bytes, refused: ledger.refused }
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemoryBudget {
    /// 512 MiB per initiator, 1 GiB in total.
    fn default() -> Self {
        let each = MemoryLimit { bytes: 512 << 20, option: "--initiator-memory" };
        Self::new(each, MemoryLimit { bytes: 1 << 30, option: "--memory" })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut ledger = self.budget.ledger();
        ledger.sum -= self.bytes;
        if let Some(reserved) = ledger.reserved.get_mut(&self.session) {
            *reserved -= self.bytes;
            if *reserved == 0 {
                ledger.reserved.remove(&self.session);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget() -> MemoryBudget {
        MemoryBudget::new(MemoryLimit { bytes: 100, option: "--one" }, MemoryLimit { bytes: 150, option: "--all" })
    }

    #[test]
    fn limits_apply_per_initiator_and_in_total() {
        let budget = budget();
        let first = budget.reserve(1, 80, "a queue pair").unwrap();
        let message = budget.reserve(1, 21, "a queue pair").unwrap_err().message;
        assert!(message.contains("at most 20 bytes, found 21") && message.contains("--one"), "{message}");
        let second = budget.reserve(2, 70, "messages").unwrap();
        let message = budget.reserve(2, 1, "messages").unwrap_err().message;
        assert!(message.contains("150 bytes of all") && message.contains("--all"), "{message}");
        drop(first);
        assert_eq!(budget.state(), MemoryBudgetState { used_bytes: 70, max_bytes: 150, refused: 2 });
        assert!(budget.clone().reserve(2, 30, "messages").is_ok(), "released bytes are available at once");
        drop(second);
        assert_eq!(budget.state().used_bytes, 0);
        assert!(budget.ledger().reserved.is_empty(), "sessions without reservations are removed");
    }

    #[test]
    fn reservation_does_not_overflow() {
        let budget = budget();
        let _reserved = budget.reserve(1, 100, "messages").unwrap();
        assert!(budget.reserve(1, u64::MAX, "messages").is_err());
        assert!(budget.reserve(2, u64::MAX, "messages").is_err());
    }
}
