//! Settings that were checked, with what they choose and the defaults that depend on the framing.

use super::choices::{Begin, Sender, Sink};
use super::settings::Settings;
use shotline_store::codec::Codec;
use shotline_verbs::ud::QueuePair;
use shotline_wire::framing::Kind;

/// Default memory for shot buffers, in bytes.
const POOL: u64 = 256 << 20;
/// The same for each link where shots are large: about 23 blocks of 64 MiB.
const POOL_OF_LARGE_SHOTS: u64 = 3 << 29;
/// Default number of writes under way at once.
const IN_FLIGHT: u32 = 16;
/// The same where shots are large.
const IN_FLIGHT_OF_LARGE_SHOTS: u32 = 4;

/// What [`Settings::check`] returns: settings that a run can have, and what they choose.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Resolved<'a> {
    /// The settings.
    pub settings: &'a Settings,
    /// Who sends the shots.
    pub sender: Sender,
    /// How packets name their places; none if by a framing of the caller's own.
    pub framing: Option<Kind>,
    /// Queue pair and Q_Key that packets of link 0 carry, where settings tell them; the next link has the next number.
    pub queue_pair: Option<QueuePair>,
    /// What begins a shot of a probe.
    pub begin: Begin,
    /// Where shots go.
    pub sink: Sink<'a>,
    /// How shots are compressed, if they are.
    pub codec: Option<Codec>,
    /// Memory for shot buffers, in bytes.
    pub pool_bytes: u64,
    /// Writes under way at once.
    pub in_flight: u32,
}

impl Settings {
    /// Memory for shot buffers, in bytes.
    pub(super) fn pool_bytes(&self, large_shots: bool) -> u64 {
        let default = if large_shots { POOL_OF_LARGE_SHOTS * u64::from(self.links.unwrap_or(1)) } else { POOL };
        self.pool.map_or(default, |pool| pool.0)
    }

    /// Writes under way at once.
    pub(super) fn writes_in_flight(&self, large_shots: bool) -> u32 {
        self.in_flight.unwrap_or(if large_shots { IN_FLIGHT_OF_LARGE_SHOTS } else { IN_FLIGHT })
    }
}
