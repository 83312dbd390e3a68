//! Memory that initiators make a target take, in one account.

use super::conversation::SessionId;
use super::message::{Cause, Refusal};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A limit, and the option that raises it.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// Most bytes.
    pub bytes: u64,
    /// The option's name, for refusals.
    pub option: &'static str,
}

/// The account of all queue pairs, queues, message buffers and streams that initiators have asked for. Whoever allocates
/// by a peer's word takes a [`Loan`] first. Clones are the same account.
#[derive(Clone, Debug)]
pub struct Account {
    each: Bound,
    all: Bound,
    ledger: Arc<Mutex<Ledger>>,
}

#[derive(Debug, Default)]
struct Ledger {
    held: HashMap<SessionId, u64>,
    sum: u64,
    refused: u64,
}

/// What an account says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct AccountState {
    /// Bytes that initiators hold.
    pub held_bytes: u64,
    /// Bytes that they may hold.
    pub most_bytes: u64,
    /// Requests that were refused because they would have taken more.
    pub refused: u64,
}

/// Bytes on an account; they are given back when it is dropped.
#[derive(Debug)]
pub struct Loan {
    account: Account,
    session: SessionId,
    bytes: u64,
}

impl Account {
    /// With limits for one initiator and for all of them together.
    pub fn new(each: Bound, all: Bound) -> Self {
        Self { each, all, ledger: Arc::default() }
    }

    /// Enters bytes for `what`, or says what was asked for, what there is, and which option raises it.
    pub fn lend(&self, session: SessionId, bytes: u64, what: &str) -> Result<Loan, Refusal> {
        let mut ledger = self.ledger();
        let held = ledger.held.get(&session).copied().unwrap_or(0);
        let sides = [("one initiator", self.each, held), ("all initiators", self.all, ledger.sum)];
        let full = sides.into_iter().find(|(_, bound, held)| bytes > bound.bytes.saturating_sub(*held));
        if let Some((whose, bound, held)) = full {
            ledger.refused += 1;
            let words = format!(
                "{what}: expected at most {} bytes, found {bytes}: {held} of the {} bytes of {whose} are taken; start the \
                 target with a larger {}",
                bound.bytes.saturating_sub(held),
                bound.bytes,
                bound.option
            );
            return Err(Refusal::new(Cause::Limit, words));
        }
        *ledger.held.entry(session).or_default() += bytes;
        ledger.sum += bytes;
        Ok(Loan { account: self.clone(), session, bytes })
    }

    /// What is held and was refused.
    pub fn state(&self) -> AccountState {
        let ledger = self.ledger();
        AccountState { held_bytes: ledger.sum, most_bytes: self.all.bytes, refused: ledger.refused }
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Account {
    /// Half a GiB each, a GiB in sum.
    fn default() -> Self {
        let each = Bound { bytes: 512 << 20, option: "--initiator-memory" };
        Self::new(each, Bound { bytes: 1 << 30, option: "--memory" })
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        let mut ledger = self.account.ledger();
        ledger.sum -= self.bytes;
        if let Some(held) = ledger.held.get_mut(&self.session) {
            *held -= self.bytes;
            if *held == 0 {
                ledger.held.remove(&self.session);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account() -> Account {
        Account::new(Bound { bytes: 100, option: "--one" }, Bound { bytes: 150, option: "--all" })
    }

    #[test]
    fn each_and_all_have_a_limit_and_a_refusal_names_its_option() {
        let account = account();
        let first = account.lend(1, 80, "a queue pair").unwrap();
        let words = account.lend(1, 21, "a queue pair").unwrap_err().words;
        assert!(words.contains("at most 20 bytes, found 21") && words.contains("--one"), "{words}");
        let second = account.lend(2, 70, "messages").unwrap();
        let words = account.lend(2, 1, "messages").unwrap_err().words;
        assert!(words.contains("150 bytes of all") && words.contains("--all"), "{words}");
        drop(first);
        assert_eq!(account.state(), AccountState { held_bytes: 70, most_bytes: 150, refused: 2 });
        assert!(account.clone().lend(2, 30, "messages").is_ok(), "and given back at once");
        drop(second);
        assert_eq!(account.state().held_bytes, 0);
        assert!(account.ledger().held.is_empty(), "who has left is forgotten");
    }

    #[test]
    fn no_number_overflows_the_account() {
        let account = account();
        let _held = account.lend(1, 100, "messages").unwrap();
        assert!(account.lend(1, u64::MAX, "messages").is_err());
        assert!(account.lend(2, u64::MAX, "messages").is_err());
    }
}
