//! Everything of a run that is settled before the probe is asked to start.

use super::{RunError, Wanted};
use crate::config::{Bytes, Settings};
use crate::control::Control;
use crate::receiver::{self, SPARE_BYTES};
use crate::sink::Policy;
use crate::stream::StreamConfig;
use shotline_memory::{MemoryError, Pool, Region, Regions, Registrar, Sge};
use shotline_transport::SCRATCH_BYTES;
use shotline_wire::framing::{self, Framing};
use shotline_wire::setup::{Configure, Describe, Mode, Source};
use shotline_wire::shot::Geometry;
use std::net::SocketAddr;
use std::sync::Arc;

/// Port of plain-UDP shots, so that no analyser takes them for RoCE.
const PLAIN_UDP_PORT: u16 = 47911;
/// Shots in the queue to the recorder that the pool should at least have room for.
const LEAST_QUEUE: usize = 4;

/// Everything of a run that is settled before the probe is asked to start.
pub(super) struct Prepared {
    pub(super) framing: &'static dyn Framing,
    pub(super) describe: Describe,
    pub(super) geometry: Geometry,
    pub(super) configs: Vec<StreamConfig>,
    pub(super) pool: Arc<Pool>,
    pub(super) regions: Regions,
    pub(super) scratch: Sge,
    pub(super) spare: Sge,
    pub(super) bind: SocketAddr,
    pub(super) policy: Policy,
}

impl Prepared {
    pub(super) fn new(settings: &Settings, control: &mut Control) -> Result<Self, RunError> {
        let name = settings.framing.as_deref().unwrap_or("ud");
        let known = || framing::ALL.map(|framing| framing.name()).join(", ");
        let framing = framing::by_name(name)
            .ok_or_else(|| RunError::Settings(format!("expected a framing of {}, found {name}", known())))?;
        let describe = control.query()?;
        let links = settings.links.unwrap_or(describe.links);
        if links == 0 || links > describe.links || usize::from(links) > shotline_store::shot::MAX_LINKS {
            return Err(RunError::Settings(format!("the probe has {} links, cannot record {links}", describe.links)));
        }
        let geometry = Geometry::new(
            describe.channels,
            settings.samples.unwrap_or(2000.min(describe.max_samples)),
            describe.bits,
            describe.packing,
            describe.sample_rate_hz,
        )?;
        let packets = u64::from(geometry.packets());
        let config = |stream: u8| StreamConfig {
            stream: stream.into(),
            key: 0,
            geometry,
            source: None,
            first_shot: None,
            first_psn: None,
            window: settings.window.unwrap_or_else(|| 128_u64.div_ceil(packets).max(4)).max(1),
            timeout_ns: settings.timeout_ms.unwrap_or(100).max(1) * 1_000_000,
        };
        let configs: Vec<_> = (0..links).map(config).collect();

        let mut registrar = Registrar::new();
        let pool_bytes = settings.pool.unwrap_or(Bytes(256 << 20)).0;
        let slots = pool_bytes / u64::from(geometry.slot_bytes());
        let least = (reserve(&configs, settings) + LEAST_QUEUE * configs.len()) as u64;
        if slots < least {
            return Err(RunError::Settings(format!(
                "a pool of {pool_bytes} bytes holds {slots} shots of {} bytes, assembly and the queue need {least}: --pool {}MiB",
                geometry.slot_bytes(),
                (least * u64::from(geometry.slot_bytes())).div_ceil(1 << 20),
            )));
        }
        let pool = Pool::new(&mut registrar, slots.min(1 << 24) as u32, geometry.slot_bytes())?;
        let mut element = |len: u32| {
            let region = registrar.add(Region::host(len as usize)?);
            Ok::<_, MemoryError>(Sge { region, offset: 0, len })
        };
        let (scratch, spare) = (element(SCRATCH_BYTES)?, element(SPARE_BYTES)?);
        let port = if framing.sealed() { shotline_wire::udp::ROCE_PORT } else { PLAIN_UDP_PORT };
        let bind = match settings.bind {
            Some(bind) => bind,
            None => SocketAddr::new(control.local_ip()?, port),
        };
        let policy = settings.policy.unwrap_or_default();
        Ok(Self {
            framing,
            describe,
            geometry,
            configs,
            pool,
            regions: registrar.finish(),
            scratch,
            spare,
            bind,
            policy,
        })
    }

    /// Events that the queue to the recorder may hold, so that assembly never lacks a buffer.
    pub(super) fn queue_events(&self, settings: &Settings) -> usize {
        (self.pool.slots() as usize - reserve(&self.configs, settings)) / self.configs.len()
    }

    /// What is wanted of a transport.
    pub(super) fn wanted(&self, settings: &Settings) -> Wanted {
        Wanted {
            bind: self.bind,
            sealed: self.framing.sealed(),
            capacity: receiver::capacity(&self.configs),
            scratch: self.scratch,
            receive_buffer: settings.receive_buffer.unwrap_or(Bytes(256 << 20)).0 as usize,
        }
    }

    /// Tells the probe where one link's shots are to go, and learns where they come from.
    pub(super) fn configure(
        &mut self,
        control: &mut Control,
        link: usize,
        local: SocketAddr,
        dest_qp: u32,
        q_key: u32,
    ) -> Result<(), RunError> {
        let stream = self.configs[link].stream;
        let source: Source = control.configure(Configure {
            link: link as u8,
            framing: framing::id_of(self.framing.name()).unwrap_or(0),
            geometry: self.geometry,
            destination: local,
            dest_qp,
            q_key,
            stream,
        })?;
        let config = &mut self.configs[link];
        // A probe that does not know its own address (it sends from "any") is known by its first packet.
        config.source = Some(source.address).filter(|address| !address.ip().is_unspecified() && address.port() != 0);
        config.first_psn = Some(source.first_psn);
        self.describe.pattern_period = source.pattern_period;
        Ok(())
    }

    /// What starts a shot.
    pub(super) fn mode(&self, settings: &Settings) -> Result<Mode, RunError> {
        let shot_bits = f64::from(self.geometry.shot_bytes()) * 8.0 * self.configs.len() as f64;
        let hz = match (settings.rate_hz, settings.gbps, settings.external_trigger.unwrap_or(false)) {
            (None, None, false) => return Ok(Mode::FreeRunning),
            (None, None, true) => return Ok(Mode::ExternalTrigger),
            (Some(hz), None, false) => hz,
            (None, Some(gbps), false) => gbps * 1e9 / shot_bits,
            _ => return Err(RunError::Settings("give one of --rate-hz, --gbps and --external-trigger".into())),
        };
        if hz.is_finite() && (0.001..=1e9).contains(&hz) {
            Ok(Mode::FixedRate { millihertz: (hz * 1000.0).round() as u64 })
        } else {
            Err(RunError::Settings(format!("expected 0.001 to 1e9 shots/s, found {hz}")))
        }
    }
}

/// Buffers that are neither free nor in the queue when everything is busy: under assembly, waiting for the other
/// links' shots of their events, on their way into the file.
fn reserve(configs: &[StreamConfig], settings: &Settings) -> usize {
    let joining: usize = configs.iter().map(|config| config.window as usize + 1).sum();
    let writing = if settings.discard == Some(true) { 0 } else { in_flight(settings) as usize + configs.len() };
    receiver::held(configs) + joining + writing
}

/// Writes under way at once.
pub(super) fn in_flight(settings: &Settings) -> u32 {
    settings.in_flight.unwrap_or(16)
}
