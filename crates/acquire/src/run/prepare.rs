//! What of a run is settled before the first shot, with and without set-up.

use super::error::RunError;
use super::room::Room;
use crate::align;
use crate::config::{Bytes, Resolved, Settings};
use crate::control::Control;
use crate::learn::Shape;
use crate::memory::Memory;
use crate::receiver;
use crate::sink::Policy;
use crate::stream::StreamConfig;
use shotline_backends::Wanted;
use shotline_memory::{Pool, Regions, Sge};
use shotline_wire::framing::Framing;
use shotline_wire::setup::Mode;
use shotline_wire::shot::Geometry;
use std::net::SocketAddr;
use std::sync::Arc;

/// Of shots above this size in bytes as few as possible are held: tens of them would be gigabytes.
const LARGE_SHOT: u32 = 8 << 20;
/// A link's clock is locked when its stamps keep to a line within this many ns: what software time stamps are good for.
const LOCK_NS: u64 = 50_000;
/// Default receive buffer to ask for.
const RECEIVE_BUFFER: Bytes = Bytes(256 << 20);

/// Where shots come from, in words for the file.
pub(super) struct Instrument {
    pub(super) name: String,
    /// Period of its test patterns, 0 for real samples.
    pub(super) pattern_period: u32,
}

/// How a run reaches its sender.
pub(super) struct Origin<'a> {
    /// The conversation with the probe, if it takes set-up.
    pub(super) control: Option<Control<'a>>,
    /// Where packets come to.
    pub(super) local: SocketAddr,
    /// Receive buffer that was granted, in bytes.
    pub(super) receive_buffer: usize,
    /// What was learned of a sender that takes no set-up, in words.
    pub(super) learned: Option<String>,
}

/// What of a run is settled before the first shot.
pub(super) struct Prepared<'a> {
    /// What the settings choose.
    pub(super) resolved: Resolved<'a>,
    pub(super) framing: Arc<dyn Framing>,
    pub(super) instrument: Instrument,
    pub(super) geometry: Geometry,
    pub(super) configs: Vec<StreamConfig>,
    pub(super) pool: Arc<Pool>,
    pub(super) regions: Regions,
    pub(super) spare: Sge,
    pub(super) policy: Policy,
    /// Buffers that assembly holds because a device takes receives in their order.
    pub(super) in_order: usize,
}

impl<'a> Prepared<'a> {
    /// Prepares for shots of this shape on `links` links.
    ///
    /// # Errors
    /// If the pool is too small for them, or the quorum larger than `links`.
    pub(super) fn new(
        resolved: Resolved<'a>,
        memory: &Memory,
        framing: Arc<dyn Framing>,
        geometry: Geometry,
        links: u8,
        instrument: Instrument,
    ) -> Result<Self, RunError> {
        let settings = resolved.settings;
        settings.check_quorum(links)?;
        let packets = u64::from(geometry.packets());
        let large = is_large(&geometry);
        let config = |stream: u8| StreamConfig {
            stream: stream.into(),
            key: 0,
            geometry,
            source: None,
            first_shot: None,
            first_psn: None,
            window: settings.window.unwrap_or(if large { 2 } else { 128_u64.div_ceil(packets).max(4) }),
            timeout_ns: settings.timeout_ms.unwrap_or(100) * 1_000_000,
        };
        let configs: Vec<_> = (0..links).map(config).collect();
        let pool = memory.pool(geometry.slot_bytes())?;
        let policy = settings.policy.unwrap_or_default();
        let (regions, spare) = (memory.regions.clone(), memory.spare);
        let in_order = 0;
        let this = Self { resolved, framing, instrument, geometry, configs, pool, regions, spare, policy, in_order };
        this.room().check()?;
        Ok(this)
    }

    /// How the pool is shared.
    pub(super) fn room(&self) -> Room<'_> {
        let (resolved, configs, in_order) = (self.resolved, &self.configs, self.in_order);
        Room { resolved, configs, slot_bytes: self.geometry.slot_bytes(), in_order }
    }

    /// Events that the queue to the recorder may hold, and the events that are held `before_s` seconds for a trigger if
    /// there is one.
    pub(super) fn queues(&self, before_s: Option<f64>) -> Result<(usize, usize), RunError> {
        let (room, slots) = (self.room(), self.pool.slots());
        match before_s {
            None => Ok((room.queue_events(slots), 0)),
            Some(before_s) => room.split_for_trigger(slots, self.mode()?, before_s),
        }
    }

    /// How links are joined.
    pub(super) fn alignment(&self) -> align::Config {
        let (window, timeout_ns) = (self.configs[0].window as usize, self.configs[0].timeout_ns);
        let settings = self.resolved.settings;
        align::Config {
            sources: self.configs.len(),
            by: settings.alignment(),
            // Streams hand on their shots in order.
            disorder: 0,
            patience_ns: settings.align_patience.map_or(timeout_ns.saturating_mul(3), |patience| patience.0),
            quorum: settings.quorum.unwrap_or(1),
            capacity: window + 1 + self.room().waiting_events(self.pool.slots()),
            lock_ns: LOCK_NS,
        }
    }

    /// What is wanted of a transport at this address.
    pub(super) fn wanted(&self, memory: &Memory, bind: SocketAddr) -> Wanted {
        Wanted {
            bind,
            sealed: self.framing.sealed(),
            remainders: self.geometry.trailer().has_record(),
            capacity: receiver::capacity(&self.configs),
            scratch: memory.scratch,
            receive_buffer: receive_buffer(self.resolved.settings),
        }
    }

    /// What begins a shot.
    pub(super) fn mode(&self) -> Result<Mode, RunError> {
        let shot_bits = f64::from(self.geometry.shot_bytes()) * 8.0 * self.configs.len() as f64;
        Ok(self.resolved.begin.mode(shot_bits)?)
    }
}

/// Refuses settings that contradict what the source says of its samples. `who` names the source in the error.
pub(super) fn check_shape(settings: &Settings, who: &str, told: Shape) -> Result<(), RunError> {
    let Shape { channels, bits, packing, sample_rate_hz } = told;
    let differs = settings.channels.is_some_and(|other| other != channels)
        || settings.bits.is_some_and(|other| other != bits)
        || settings.sample_rate_hz.is_some_and(|other| other != sample_rate_hz)
        || settings.sample_format.is_some_and(|other| other != packing);
    if !differs {
        return Ok(());
    }
    Err(RunError::Settings(format!(
        "{who} {channels} channels of {bits} bits as {} at {sample_rate_hz} Hz, settings say otherwise: leave --channels, --bits, --sample-format and --sample-rate-hz out",
        packing.name()
    )))
}

/// Whether as few shots as possible are held.
pub(super) fn is_large(geometry: &Geometry) -> bool {
    geometry.slot_bytes() > LARGE_SHOT
}

/// Receive buffer to ask for, in bytes.
pub(super) fn receive_buffer(settings: &Settings) -> usize {
    settings.receive_buffer.unwrap_or(RECEIVE_BUFFER).0 as usize
}
