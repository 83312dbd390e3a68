//! A notice to the user of an accelerator.

use std::sync::{Mutex, PoisonError};

/// The first reason for which an accelerator does not compute as expected. Later ones are ignored.
#[derive(Debug, Default)]
pub(crate) struct Notice(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    is_given: bool,
    text: Option<String>,
}

impl Notice {
    /// Gives a notice, if it is the first one.
    pub(crate) fn give(&self, text: String) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::replace(&mut state.is_given, true) {
            state.text = Some(text);
        }
    }

    /// Returns the notice, once.
    pub(crate) fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).text.take()
    }
}
