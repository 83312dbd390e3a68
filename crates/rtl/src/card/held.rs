//! Rules of all ports with `valid` and `ready`.

use std::fmt::Debug;

/// An offer that was not accepted: it must stay.
#[derive(Debug)]
pub(crate) struct Held<T>(Option<T>);

impl<T> Default for Held<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Copy + Debug + PartialEq> Held<T> {
    /// Compares the offer of this clock with that of the clock before.
    pub fn check(&mut self, port: &str, offer: Option<T>, ready: bool) -> Result<(), String> {
        if self.0.is_some() && self.0 != offer {
            return Err(format!("a {port} changed before it was accepted: {:x?} became {offer:x?}", self.0));
        }
        self.0 = offer.filter(|_| !ready);
        Ok(())
    }
}
