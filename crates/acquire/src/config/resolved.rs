//! Checked settings, with the choices that they make and the defaults that depend on the framing.

use super::choices::{Sender, ShotStart, Sink};
use super::settings::Settings;
use shotline_store::codec::Codec;
use shotline_verbs::ud::QueuePair;
use shotline_wire::framing::Kind;

/// Default size of the buffer pool, in bytes.
const DEFAULT_POOL_BYTES: u64 = 256 << 20;
/// Default size of the buffer pool per link for large shots, in bytes: about 23 blocks of 64 MiB.
const LARGE_SHOT_POOL_BYTES: u64 = 3 << 29;
/// Default number of writes in flight.
const DEFAULT_IN_FLIGHT: u32 = 16;
/// Default number of writes in flight for large shots.
const LARGE_SHOT_IN_FLIGHT: u32 = 4;

/// Result of [`Settings::check`]: valid settings, and the choices that they make.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ResolvedSettings<'a> {
    /// Settings that were checked.
    pub settings: &'a Settings,
    /// Sender of the shots.
    pub sender: Sender,
    /// Framing of the packets; none if the caller supplies it.
    pub framing: Option<Kind>,
    /// Queue pair and Q_Key in the packets of link 0, if settings give them; the next link has the next number.
    pub queue_pair: Option<QueuePair>,
    /// Start condition of a probe's shots.
    pub shot_start: ShotStart,
    /// Destination of the shots.
    pub sink: Sink<'a>,
    /// Codec, if shots are compressed.
    pub codec: Option<Codec>,
    /// Size of the buffer pool, in bytes.
    pub pool_bytes: u64,
    /// Maximum number of writes in flight.
    pub in_flight: u32,
}

impl Settings {
    /// Returns the size of the buffer pool, in bytes.
    pub(super) fn pool_bytes(&self, large_shots: bool) -> u64 {
        let default =
            if large_shots { LARGE_SHOT_POOL_BYTES * u64::from(self.links.unwrap_or(1)) } else { DEFAULT_POOL_BYTES };
        self.pool.map_or(default, |pool| pool.0)
    }

    /// Returns the maximum number of writes in flight.
    pub(super) fn writes_in_flight(&self, large_shots: bool) -> u32 {
        self.in_flight.unwrap_or(if large_shots { LARGE_SHOT_IN_FLIGHT } else { DEFAULT_IN_FLIGHT })
    }
}
