//! The part of an endpoint that differs from link to link: its packets and how they are sent and received.

use super::core::Core;
use crate::api::{Description, VerbsError};
use crate::engine::Nanos;
use rustix::fd::BorrowedFd;
use shotline_memory::Regions;
use shotline_transport::IoError;
use std::net::SocketAddr;
use std::time::Duration;

/// Moves packets between the queue pairs' engines and a link. Implemented by this crate's providers in software; the
/// methods of [`Core`] are private to them.
///
/// An [`Endpoint`](super::Endpoint) calls it from one thread. Only [`Self::wait`] blocks. No method has a default.
pub trait Datapath {
    /// The provider's entry in the registry. Queue pairs of transport services that it lacks are refused.
    const DESCRIPTION: &'static Description;

    /// Replaces the table of regions that payloads may lie in. Called before the first packet that refers to a new
    /// region.
    fn register(&mut self, regions: &Regions);

    /// Prepares the path of a queue pair to its peer, and returns the number of the send queue from which its packets
    /// are taken. Called before the queue pair enters the state
    /// [`QpState::ReadyToReceive`](crate::api::QpState::ReadyToReceive); each call is followed by one of
    /// [`Self::disconnect`].
    ///
    /// # Errors
    /// If the peer cannot be reached over this link, or it has no such service level. The queue pair's state remains as
    /// it is.
    fn connect(&mut self, peer: SocketAddr, service_level: u8) -> Result<u32, VerbsError>;

    /// Ends the use of a path by one queue pair, which was reset or destroyed.
    fn disconnect(&mut self, queue: u32);

    /// Sends packets of the queue pairs that are scheduled, and those that the link did not accept before. Returns
    /// `true` if the link accepted any.
    fn transmit(&mut self, core: &mut Core) -> bool;

    /// Receives packets that have arrived and passes them to their queue pairs' engines. Returns `true` if there were
    /// any.
    ///
    /// # Errors
    /// If the link has failed.
    fn receive(&mut self, core: &mut Core) -> Result<bool, IoError>;

    /// Returns the time of the next call that is necessary although nothing arrives and nothing is posted: packets wait
    /// for the link, or one of its timers runs.
    fn deadline(&self, now: Nanos) -> Option<Nanos>;

    /// Returns a file descriptor that is readable while packets wait to be received; `None` if the link has none. It is
    /// the same during the life of the datapath.
    fn fd(&self) -> Option<BorrowedFd<'_>>;

    /// Waits until a packet arrives, at most for `timeout`.
    ///
    /// # Errors
    /// If the link has failed.
    fn wait(&mut self, timeout: Duration) -> Result<(), IoError>;
}
