//! Control of a probe.

use crate::error::Error;
use crate::process::Owner;
use shotline_acquire::control::Control;
use shotline_wire::setup::{Describe, Report};
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

/// Name of the handle in messages.
const WHAT: &str = "probe";

/// A probe that takes set-up, real or emulated. Each request is repeated until it is answered, for at most 6.3 s.
pub struct Probe {
    owner: Owner,
    address: SocketAddr,
    control: Mutex<Control<'static>>,
}

impl Probe {
    /// Opens a socket for requests to a probe, which gets none yet. With `take_over` they override another receiver.
    ///
    /// # Errors
    /// If the socket cannot be opened.
    pub fn open(address: SocketAddr, take_over: bool) -> Result<Self, Error> {
        let control = Mutex::new(Control::open(address, take_over)?);
        Ok(Self { owner: Owner::this(), address, control })
    }

    /// Returns the address of the probe's set-up port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Queries the properties of the probe.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn describe(&self) -> Result<Describe, Error> {
        self.with(|control| Ok(control.query()?))
    }

    /// Queries the state and the counters of a link.
    ///
    /// # Errors
    /// If the probe does not answer, or has no such link.
    pub fn status(&self, link: u8) -> Result<Report, Error> {
        self.with(|control| Ok(control.status(link)?))
    }

    /// Stops sending after the shot in progress. Returns the report of each link.
    ///
    /// # Errors
    /// If the probe does not answer, or another receiver controls it.
    pub fn stop(&self) -> Result<Vec<Report>, Error> {
        self.with(|control| {
            let links = control.query()?.links;
            Ok((0..links).map(|link| control.stop(link)).collect::<Result<_, _>>()?)
        })
    }

    /// Sends a trigger command, and returns the number of its shot. With `command_only` the probe only checks it.
    ///
    /// # Errors
    /// If the probe does not answer, or does not accept it.
    pub fn trigger(&self, command_only: bool) -> Result<u64, Error> {
        self.with(|control| Ok(control.trigger_shot(None, command_only)?))
    }

    fn with<T>(&self, request: impl FnOnce(&mut Control<'static>) -> Result<T, Error>) -> Result<T, Error> {
        self.owner.check(WHAT)?;
        request(&mut self.control.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Probe").field("address", &self.address).finish_non_exhaustive()
    }
}
