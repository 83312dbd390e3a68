//! Everything of a run that is settled before the probe is asked to start.

use super::{RunError, Wanted};
use crate::align;
use crate::config::{Bytes, Settings};
use crate::control::Control;
use crate::learn::Shape;
use crate::memory::Memory;
use crate::received;
use crate::receiver;
use crate::sink::Policy;
use crate::stream::StreamConfig;
use shotline_memory::{Pool, Regions, Sge};
use shotline_store::shot::MAX_LINKS;
use shotline_verbs::ud::stand_in_port;
use shotline_wire::framing::{self, Framing};
use shotline_wire::setup::{Describe, Mode};
use shotline_wire::shot::Geometry;
use std::net::SocketAddr;
use std::sync::Arc;

/// Port of plain-UDP shots, so that no analyser takes them for RoCE.
const PLAIN_UDP_PORT: u16 = 47911;
/// Shots in the queue to the recorder that the pool should at least have room for.
const LEAST_QUEUE: usize = 4;
/// Of shots above so many bytes as few as possible are held: tens of them would be gigabytes.
const LARGE_SHOT: u32 = 8 << 20;
/// A quarter of so many events may wait for links that are behind, however large the pool is.
const MOST_WAITING: usize = 1 << 14;
/// A link's clock is locked when its stamps keep to a line within so much: what software time stamps are good for.
const LOCK_NS: u64 = 50_000;
/// Memory for shot buffers if nobody says.
const DEFAULT_POOL: Bytes = Bytes(256 << 20);
/// The same for each link of a digitizer: about 23 blocks of 64 MiB.
const BLOCKS_POOL: Bytes = Bytes(3 << 29);

/// Where shots come from, in words for the file.
pub(super) struct Instrument {
    pub(super) name: String,
    /// Period of its test patterns, 0 for real samples.
    pub(super) pattern_period: u32,
}

/// Everything of a run that is settled before the first shot.
pub(super) struct Prepared {
    pub(super) framing: &'static dyn Framing,
    pub(super) instrument: Instrument,
    pub(super) geometry: Geometry,
    pub(super) configs: Vec<StreamConfig>,
    pub(super) pool: Arc<Pool>,
    pub(super) regions: Regions,
    pub(super) spare: Sge,
    pub(super) policy: Policy,
    /// Buffers that assembly holds because a device takes receives in their order.
    in_order: usize,
}

/// Refuses settings that contradict what the source says of its samples. `who` names the source in the error.
pub(super) fn check_shape(settings: &Settings, who: &str, told: Shape) -> Result<(), RunError> {
    let Shape { channels, bits, packing, sample_rate_hz } = told;
    let differs = settings.channels.is_some_and(|other| other != channels)
        || settings.bits.is_some_and(|other| other != bits)
        || settings.sample_rate_hz.is_some_and(|other| other != sample_rate_hz)
        || settings.sample_format.as_deref().is_some_and(|other| other != packing.name());
    if !differs {
        return Ok(());
    }
    Err(RunError::Settings(format!(
        "{who} {channels} channels of {bits} bits as {} at {sample_rate_hz} Hz, settings say otherwise: leave --channels, --bits, --sample-format and --sample-rate-hz out",
        packing.name()
    )))
}

/// The framing that settings ask for, among those that set-up and listening share.
pub(super) fn framing_of(settings: &Settings) -> Result<&'static dyn Framing, RunError> {
    let name = settings.framing.as_deref().unwrap_or("ud");
    let known = || framing::ALL.map(|framing| framing.name()).join(", ");
    framing::by_name(name).ok_or_else(|| RunError::Settings(format!("expected a framing of {}, found {name}", known())))
}

impl Prepared {
    /// For a probe that takes set-up: it says what it is.
    pub(super) fn for_probe(settings: &Settings, memory: &Memory, control: &mut Control<'_>) -> Result<Self, RunError> {
        let framing = framing_of(settings)?;
        let describe = control.query()?;
        let links = settings.links.unwrap_or(describe.links);
        let most = describe.links.min(MAX_LINKS as u8);
        if !(1..=most).contains(&links) {
            return Err(RunError::Settings(format!(
                "the probe has {} links, and a run up to {MAX_LINKS}: expected --links from 1 to {most}, found {links}",
                describe.links
            )));
        }
        let geometry = Geometry::new(
            describe.channels,
            settings.samples.unwrap_or(2000.min(describe.max_samples)),
            describe.bits,
            describe.packing,
            describe.sample_rate_hz,
        )?;
        let Describe { channels, bits, packing, sample_rate_hz, .. } = describe;
        check_shape(settings, "the probe says", Shape { channels, bits, packing, sample_rate_hz })?;
        let instrument =
            Instrument { name: describe.model.as_str().to_owned(), pattern_period: describe.pattern_period };
        Self::new(settings, memory, framing, geometry, links, instrument)
    }

    pub(super) fn new(
        settings: &Settings,
        memory: &Memory,
        framing: &'static dyn Framing,
        geometry: Geometry,
        links: u8,
        instrument: Instrument,
    ) -> Result<Self, RunError> {
        let packets = u64::from(geometry.packets());
        let large = geometry.slot_bytes() > LARGE_SHOT;
        settings.codec().map_err(RunError::Settings)?;
        if let Some(quorum) = settings.quorum.filter(|quorum| *quorum > usize::from(links)) {
            return Err(RunError::Settings(format!(
                "expected a quorum of at most {links}, the links that there are, found {quorum}: no event would be recorded"
            )));
        }
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
        let this = Self { framing, instrument, geometry, configs, pool, regions, spare, policy, in_order: 0 };
        this.check_pool(settings)?;
        Ok(this)
    }

    /// Refuses a pool that is too small.
    fn check_pool(&self, settings: &Settings) -> Result<(), RunError> {
        let slot_bytes = self.geometry.slot_bytes();
        let least = (reserve(&self.configs, settings) + self.in_order + LEAST_QUEUE * self.configs.len()) as u64;
        // Regions are rounded up to whole huge pages: what counts is what was asked for.
        let pool_bytes = pool_bytes(settings);
        let slots = pool_bytes / u64::from(slot_bytes);
        if slots < least {
            return Err(RunError::Settings(format!(
                "a pool of {pool_bytes} bytes holds {slots} shots of {slot_bytes} bytes, assembly and the queue need {least}: --pool {}MiB",
                (least * u64::from(slot_bytes)).div_ceil(1 << 20),
            )));
        }
        Ok(())
    }

    /// Events that there is room for beside what assembly needs.
    fn spare_events(&self, settings: &Settings) -> usize {
        (self.pool.slots() as usize - reserve(&self.configs, settings) - self.in_order) / self.configs.len()
    }

    /// Of these, events that wait for links that are behind: a quarter.
    fn waiting_events(&self, settings: &Settings) -> usize {
        if self.configs.len() > 1 {
            self.spare_events(settings).saturating_sub(LEAST_QUEUE).min(MOST_WAITING) / 4
        } else {
            0
        }
    }

    /// Events that the queue to the recorder may hold, so that assembly never lacks a buffer.
    pub(super) fn queue_events(&self, settings: &Settings) -> usize {
        self.spare_events(settings) - self.waiting_events(settings)
    }

    /// How links are joined.
    pub(super) fn alignment(&self, settings: &Settings) -> align::Config {
        let (window, timeout_ns) = (self.configs[0].window as usize, self.configs[0].timeout_ns);
        align::Config {
            sources: self.configs.len(),
            by: settings.alignment(),
            // Streams hand on their shots in order.
            disorder: 0,
            patience_ns: settings.align_patience.map_or(timeout_ns.saturating_mul(3), |patience| patience.0),
            quorum: settings.quorum.unwrap_or(1),
            capacity: window + 1 + self.waiting_events(settings),
            lock_ns: LOCK_NS,
        }
    }

    /// Splits that room between the queue and events that are held for a trigger. A room that is known to be too
    /// small is refused.
    pub(super) fn split_for_trigger(&self, settings: &Settings, before_s: f64) -> Result<(usize, usize), RunError> {
        let all = self.queue_events(settings);
        let Mode::FixedRate { millihertz } = self.mode(settings)? else {
            // Nobody knows how many come: the recorder's queue takes a quarter.
            let queue = (all / 4).max(LEAST_QUEUE.min(all));
            return Ok((queue, (all - queue).max(1)));
        };
        let needed = (before_s * millihertz as f64 / 1000.0).ceil() as usize + 1;
        if needed + LEAST_QUEUE > all {
            // Of what is spare a quarter waits for other links, if there are any.
            let spare = needed + LEAST_QUEUE;
            let spare = if self.configs.len() > 1 { spare * 4 / 3 + 2 } else { spare };
            let slots = reserve(&self.configs, settings) + spare * self.configs.len();
            let bytes = slots as u64 * u64::from(self.geometry.slot_bytes());
            return Err(RunError::Settings(format!(
                "{before_s} s before a trigger are {needed} events of {} links, a pool of {} bytes holds {}: --pool {}MiB",
                self.configs.len(),
                pool_bytes(settings),
                all.saturating_sub(LEAST_QUEUE),
                bytes.div_ceil(1 << 20)
            )));
        }
        // What is spare is shared: more queue does no harm, and a rate is not kept to the shot.
        let spare = all - needed - LEAST_QUEUE;
        Ok((LEAST_QUEUE + spare / 2, needed + spare / 2))
    }

    /// What is wanted of a transport at this address.
    pub(super) fn wanted(&self, settings: &Settings, memory: &Memory, bind: SocketAddr) -> Wanted {
        Wanted {
            bind,
            sealed: self.framing.sealed(),
            remainders: self.geometry.trailer().has_record(),
            capacity: receiver::capacity(&self.configs),
            scratch: memory.scratch,
            receive_buffer: receive_buffer(settings),
        }
    }

    /// Tells the probe where one link's shots are to go, and learns where they come from.
    pub(super) fn configure(
        &mut self,
        control: &mut Control<'_>,
        link: usize,
        local: SocketAddr,
        queue_pair: (u32, u32),
    ) -> Result<(), RunError> {
        let stream = &mut self.configs[link];
        let source = control.configure_stream(link as u8, self.framing, stream, local, queue_pair)?;
        self.instrument.pattern_period = source.pattern_period;
        Ok(())
    }

    /// The same where a device's own queue pair receives the only link: its completions say less than packets do.
    pub(super) fn configure_device(
        &mut self,
        settings: &Settings,
        control: &mut Control<'_>,
        local: SocketAddr,
        queue_pair: (u32, u32),
    ) -> Result<(), RunError> {
        if self.configs.len() > 1 {
            return Err(RunError::Settings(
                "a device's queue pair receives one link: run one receiver for each, with --links 1".into(),
            ));
        }
        let name = self.framing.name();
        let received = received::of(self.framing).ok_or_else(|| {
            RunError::Settings(format!("an RDMA device receives datagrams (--framing ud or counted), not {name}"))
        })?;
        self.in_order = receiver::held_in_order(&self.configs[0]);
        self.check_pool(settings)?;
        let stream = &mut self.configs[0];
        let source = control.configure_stream(0, self.framing, stream, local, queue_pair)?;
        self.instrument.pattern_period = source.pattern_period;
        stream.source = stream.source.map(|address| SocketAddr::new(address.ip(), stand_in_port(source.qp)));
        stream.key = queue_pair.0;
        self.framing = received;
        Ok(())
    }

    /// What starts a shot.
    pub(super) fn mode(&self, settings: &Settings) -> Result<Mode, RunError> {
        let shot_bits = f64::from(self.geometry.shot_bytes()) * 8.0 * self.configs.len() as f64;
        let (hz, found) = match (settings.rate_hz, settings.gbps, settings.external_trigger.unwrap_or(false)) {
            (None, None, false) => return Ok(Mode::FreeRunning),
            (None, None, true) => return Ok(Mode::ExternalTrigger),
            (Some(hz), None, false) => (hz, format!("--rate-hz {hz}")),
            (None, Some(gbps), false) => {
                let hz = gbps * 1e9 / shot_bits;
                (hz, format!("--gbps {gbps}, which is {hz} shots/s"))
            }
            _ => return Err(RunError::Settings("give one of --rate-hz, --gbps and --external-trigger".into())),
        };
        if hz.is_finite() && (0.001..=1e9).contains(&hz) {
            Ok(Mode::FixedRate { millihertz: (hz * 1000.0).round() as u64 })
        } else {
            Err(RunError::Settings(format!("expected 0.001 to 1e9 shots/s, found {found}")))
        }
    }
}

/// Buffers that are neither free nor in the queue when everything is busy: under assembly, waiting for the other
/// links' shots of their events, on their way into the file.
fn reserve(configs: &[StreamConfig], settings: &Settings) -> usize {
    let joining: usize = configs.iter().map(|config| config.window as usize + 1).sum();
    let writing = if settings.discard == Some(true) {
        0
    } else {
        // Where files follow one another, one may still be writing when the next begins.
        let recorders = settings.out.as_ref().map_or(1, Vec::len) * if rolls(settings) { 2 } else { 1 };
        let compressing = if matches!(settings.codec(), Ok(Some(_))) { compressing(settings) } else { 0 };
        recorders * (in_flight(settings) as usize + compressing) + configs.len()
    };
    receiver::held(configs) + joining + writing
}

/// Shots that compression holds at most.
fn compressing(settings: &Settings) -> usize {
    shotline_store::codec::held(settings.compress_threads.unwrap_or_else(shotline_store::recorder::default_threads))
}

/// Whether the run has files that follow one another.
pub(super) fn rolls(settings: &Settings) -> bool {
    let sizes = [settings.roll_size, settings.keep].iter().any(Option::is_some);
    sizes || settings.roll_seconds.is_some() || settings.roll_shots.is_some()
}

/// Whether shots are a digitizer's blocks, of tens of megabytes each.
pub(super) fn blocks(settings: &Settings) -> bool {
    matches!(settings.framing.as_deref(), Some("digitizer" | "vita49"))
}

/// Memory for shot buffers.
pub(super) fn pool_bytes(settings: &Settings) -> u64 {
    let default =
        if blocks(settings) { BLOCKS_POOL.0 * u64::from(settings.links.unwrap_or(1)) } else { DEFAULT_POOL.0 };
    settings.pool.map_or(default, |pool| pool.0)
}

/// Receive buffer to ask for.
pub(super) fn receive_buffer(settings: &Settings) -> usize {
    settings.receive_buffer.unwrap_or(Bytes(256 << 20)).0 as usize
}

/// The port that packets come to if nobody says: that of RoCE, or one of our own.
pub(super) fn default_port(sealed: bool) -> u16 {
    if sealed { shotline_wire::udp::ROCE_PORT } else { PLAIN_UDP_PORT }
}

/// Writes under way at once.
pub(super) fn in_flight(settings: &Settings) -> u32 {
    settings.in_flight.unwrap_or(if blocks(settings) { 4 } else { 16 })
}
