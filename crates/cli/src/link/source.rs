//! Where readings come from.

use crate::Result;
use shotline_verbs::cm::{Client, ControlAddress, Token};
use shotline_verbs::connect::open_control;
use shotline_verbs::spacefibre::LinksStatus;
use std::time::{Duration, Instant};

/// Maximum time that [`Source::run`] lets pass, because a signal may have set a flag.
pub const MAX_SLEEP: Duration = Duration::from_millis(50);

/// Links that are watched.
pub trait Source {
    /// Returns the status of the links.
    fn status(&mut self) -> Result<LinksStatus>;
    /// Lets time pass: at most until `end`.
    fn run(&mut self, end: Instant) -> Result;
}

/// A running target.
pub struct Target(Client);

impl Target {
    /// Connects to it.
    pub fn connect(to: &ControlAddress, token: Token) -> Result<Self> {
        let client = open_control(&(to.clone(), token), None)?;
        match client.welcome().link {
            Some(_) => Ok(Self(client)),
            None => Err("this target has no SpaceFibre links: start it with --transport spacefibre".into()),
        }
    }
}

impl Source for Target {
    fn status(&mut self) -> Result<LinksStatus> {
        Ok(self.0.links()?)
    }
    fn run(&mut self, end: Instant) -> Result {
        std::thread::sleep(end.saturating_duration_since(Instant::now()).min(MAX_SLEEP));
        Ok(())
    }
}
