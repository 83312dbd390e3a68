//! State of a run before its first shot, with and without set-up.

use super::budget::PoolBudget;
use super::error::RunError;
use crate::align;
use crate::clock::Clock;
use crate::config::{Bytes, ResolvedSettings, Settings, Sink};
use crate::control::Control;
use crate::learn::Shape;
use crate::live::{About, Live};
use crate::memory::Memory;
use crate::receiver;
use crate::sink::Policy;
use crate::stream::StreamConfig;
use shotline_backends::{PacketShape, ReceiverParameters};
use shotline_memory::{Pool, RegionKind, Regions, Sge};
use shotline_transport::PacketIo;
use shotline_wire::framing::Framing;
use shotline_wire::setup::{ArrayDescription, Mode};
use shotline_wire::shot::{Geometry, Packetization};
use std::net::SocketAddr;
use std::sync::Arc;

/// Size of a large shot in bytes: as few of these as possible are kept, because tens of them would need gigabytes.
const LARGE_SHOT_BYTES: u32 = 8 << 20;
/// Maximum residual of a link's locked clock in ns: the accuracy of software timestamps.
const LOCK_NS: u64 = 50_000;
/// Part of the queue to the recorder that a program beside it gets: one event in this many.
const BESIDE_PART: usize = 4;
/// Default receive buffer to request.
const RECEIVE_BUFFER: Bytes = Bytes(256 << 20);

/// Description of the source of the shots, for the file.
pub(super) struct Instrument {
    pub(super) name: String,
    /// Period of its test patterns, 0 for real samples.
    pub(super) pattern_period: u32,
    /// Ultrasound array, if it describes one.
    pub(super) array: Option<ArrayDescription>,
}

/// Connection of a run to its sender.
pub(super) struct Origin<'a> {
    /// Connection to the probe, if the sender has set-up.
    pub(super) control: Option<Control<'a>>,
    /// Local address of the packets.
    pub(super) local: SocketAddr,
    /// Receive buffer that was granted, in bytes.
    pub(super) receive_buffer: usize,
    /// Description of a learned sender.
    pub(super) learned: Option<String>,
}

/// State of a run before its first shot.
pub(super) struct PreparedRun<'a> {
    /// Choices made by the settings.
    pub(super) resolved: ResolvedSettings<'a>,
    pub(super) framing: Arc<dyn Framing>,
    pub(super) instrument: Instrument,
    pub(super) geometry: Geometry,
    pub(super) configs: Vec<StreamConfig>,
    pub(super) pool: Arc<Pool>,
    pub(super) regions: Regions,
    pub(super) spare: Sge,
    pub(super) policy: Policy,
    /// Buffers that assembly holds for a device that consumes receives in order.
    pub(super) in_order: usize,
    /// Number of events whose buffers may be lent to an observer.
    pub(super) lent_events: usize,
    /// Number of events that a program may hold in addition to those of the queue to the recorder.
    pub(super) consumer_events: usize,
}

impl<'a> PreparedRun<'a> {
    /// Prepares for shots of this shape on `links` links.
    ///
    /// # Errors
    /// If the pool is too small for them, or the quorum larger than `links`.
    pub(super) fn new(
        resolved: ResolvedSettings<'a>,
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
        let (in_order, lent_events, consumer_events) = (0, 0, 0);
        let this = Self {
            resolved,
            framing,
            instrument,
            geometry,
            configs,
            pool,
            regions,
            spare,
            policy,
            in_order,
            lent_events,
            consumer_events,
        };
        this.budget().check()?;
        Ok(this)
    }

    /// Returns the division of the pool.
    pub(super) fn budget(&self) -> PoolBudget<'_> {
        let (resolved, configs, in_order) = (self.resolved, &self.configs, self.in_order);
        let lent = (self.lent_events + self.consumer_events) * configs.len();
        PoolBudget { resolved, configs, slot_bytes: self.geometry.slot_bytes(), in_order, lent }
    }

    /// Returns the capacity of the queue to the recorder, and the number of events to buffer for `before_s` seconds
    /// before a trigger, 0 without triggers.
    ///
    /// # Errors
    /// Those of [`PoolBudget::split_for_trigger`].
    pub(super) fn queues(&self, before_s: Option<f64>) -> Result<(usize, usize), RunError> {
        let (budget, slots) = (self.budget(), self.pool.slots());
        match before_s {
            None => Ok((budget.queue_events(slots), 0)),
            Some(before_s) => budget.split_for_trigger(slots, self.mode()?, before_s),
        }
    }

    /// Sets buffers aside for an observer and for a program beside the recorder, if there are any. They are missing in the
    /// queue to the recorder, so that assembly never lacks a buffer because of them.
    pub(super) fn lend_to(&mut self, live: &Live) {
        let slots = self.pool.slots();
        self.lent_events = if live.tap().is_observed() { self.budget().lent_events(slots) } else { 0 };
        // Without a recorder the program has the whole queue.
        let is_beside = live.consumer().is_some() && self.resolved.sink != Sink::Discard;
        self.consumer_events = if is_beside { self.budget().queue_events(slots) / BESIDE_PART } else { 0 };
    }

    /// Returns what the run receives, for observers.
    pub(super) fn about(&self, local: SocketAddr, capacity_rows: Option<u64>, clock: &Clock) -> About {
        About {
            instrument: self.instrument.name.clone(),
            framing: self.framing.name(),
            geometry: self.geometry,
            links: self.configs.len(),
            queue_pairs: self.configs.iter().filter(|_| self.framing.has_icrc()).map(|config| config.key).collect(),
            local,
            pattern_period: self.instrument.pattern_period,
            array: self.instrument.array,
            capacity_rows,
            tai_minus_utc_s: clock.refresh().tai_minus_utc_s,
        }
    }

    /// Returns the configuration for joining links.
    pub(super) fn alignment(&self) -> align::Config {
        let (window, timeout_ns) = (self.configs[0].window as usize, self.configs[0].timeout_ns);
        let settings = self.resolved.settings;
        align::Config {
            sources: self.configs.len(),
            by: settings.alignment(),
            // Streams emit their shots in order.
            disorder: 0,
            timeout_ns: settings.align_timeout.map_or(timeout_ns.saturating_mul(3), |timeout| timeout.0),
            quorum: settings.quorum.unwrap_or(1),
            capacity: window + 1 + self.budget().waiting_events(self.pool.slots()),
            lock_ns: LOCK_NS,
        }
    }

    /// Returns the requirements on a transport at this address.
    pub(super) fn receiver_parameters(&self, memory: &Memory, bind: SocketAddr) -> ReceiverParameters {
        ReceiverParameters {
            bind,
            sealed: self.framing.has_icrc(),
            remainders: self.geometry.trailer().has_record(),
            capacity: receiver::capacity(&self.configs),
            scratch: memory.scratch,
            receive_buffer: receive_buffer(self.resolved.settings),
            in_order: self.packet_shape(),
        }
    }

    /// Returns the shape of the packets if a device may fill receives in order: those of one sealed stream, of one
    /// length, because a longer one in a shorter one's receive would reach into the next.
    fn packet_shape(&self) -> Option<PacketShape> {
        let header = u16::try_from(self.framing.header_len(&[])).ok()?;
        let Packetization { first, rest, separate_trailer } = self.geometry.packetization();
        let is_suitable = self.framing.has_icrc() && self.configs.len() == 1 && first == rest && !separate_trailer;
        is_suitable.then_some(PacketShape { header, payload: rest })
    }

    /// Divides the pool for a transport that fills receives in order, if it does.
    ///
    /// # Errors
    /// If the pool is too small for it, or in memory that it cannot write.
    pub(super) fn use_in_order(&mut self, io: &impl PacketIo) -> Result<(), RunError> {
        if io.capabilities().steers {
            return Ok(());
        }
        self.check_written_by_device()?;
        self.in_order = receiver::in_order_buffers(&self.configs[0]);
        self.budget().check()
    }

    /// Checks that a device can write the pool.
    ///
    /// # Errors
    /// If the pool is in memory of another device.
    pub(super) fn check_written_by_device(&self) -> Result<(), RunError> {
        if self.pool.region().is_mapped() {
            return Ok(());
        }
        Err(RunError::Settings(format!(
            "with this transport a device writes the shots, for which the pool must be mapped into this process: expected \
             --pool-memory {}, or --transport udp",
            RegionKind::mapped_forms()
        )))
    }

    /// Returns the start condition of shots.
    pub(super) fn mode(&self) -> Result<Mode, RunError> {
        let shot_bits = f64::from(self.geometry.shot_bytes()) * 8.0 * self.configs.len() as f64;
        Ok(self.resolved.shot_start.mode(shot_bits)?)
    }
}

/// Refuses settings that contradict the source's description of its samples. `source` names the source in the error.
pub(super) fn check_shape(settings: &Settings, source: &str, reported: Shape) -> Result<(), RunError> {
    let Shape { channels, bits, packing, sample_rate_hz } = reported;
    let differs = settings.channels.is_some_and(|other| other != channels)
        || settings.bits.is_some_and(|other| other != bits)
        || settings.sample_rate_hz.is_some_and(|other| other != sample_rate_hz)
        || settings.sample_format.is_some_and(|other| other != packing);
    if !differs {
        return Ok(());
    }
    Err(RunError::Settings(format!(
        "{source} {channels} channels of {bits} bits as {} at {sample_rate_hz} Hz, the settings differ: omit --channels, --bits, --sample-format and --sample-rate-hz",
        packing.name()
    )))
}

/// Returns `true` if as few shots as possible are kept.
pub(super) fn is_large(geometry: &Geometry) -> bool {
    geometry.slot_bytes() > LARGE_SHOT_BYTES
}

/// Returns the receive buffer to request, in bytes.
pub(super) fn receive_buffer(settings: &Settings) -> usize {
    settings.receive_buffer.unwrap_or(RECEIVE_BUFFER).0 as usize
}
