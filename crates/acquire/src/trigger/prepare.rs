//! Memory for the shots, and where the probe is to send them.

use super::{Settings, TriggerError};
use crate::control::Control;
use crate::receiver::{self, SPARE_BYTES};
use crate::run::Wanted;
use crate::stream::StreamConfig;
use shotline_memory::{MemoryError, Pool, Region, Regions, Registrar, Sge};
use shotline_transport::SCRATCH_BYTES;
use shotline_wire::framing;
use shotline_wire::setup::{Configure, Describe};
use shotline_wire::shot::Geometry;
use std::net::SocketAddr;
use std::sync::Arc;

/// An incomplete shot is closed when nothing of it has come for so long.
const SHOT_TIMEOUT_NS: u64 = 200_000_000;
/// Room for whole shots of many links.
const RECEIVE_BUFFER: usize = 32 << 20;

/// Memory and shapes.
pub(super) struct Prepared {
    pub(super) describe: Describe,
    pub(super) geometry: Geometry,
    pub(super) streams: Vec<StreamConfig>,
    pub(super) pool: Arc<Pool>,
    pub(super) regions: Regions,
    scratch: Sge,
    pub(super) spare: Sge,
}

impl Prepared {
    pub(super) fn new(settings: &Settings, control: &mut Control) -> Result<Self, TriggerError> {
        let describe = control.query()?;
        let links = settings.links;
        if links == 0 || links > describe.links {
            let found = describe.links;
            return Err(TriggerError::Settings(format!("the probe has {found} links, cannot measure {links}")));
        }
        let Describe { channels, bits, packing, sample_rate_hz, .. } = describe;
        let geometry = Geometry::new(channels, settings.samples, bits, packing, sample_rate_hz)?;
        let stream = |stream: u8| StreamConfig {
            stream: stream.into(),
            key: stream.into(),
            geometry,
            source: None,
            first_shot: None,
            first_psn: None,
            window: 4,
            timeout_ns: SHOT_TIMEOUT_NS,
        };
        let streams: Vec<_> = (0..links).map(stream).collect();
        let mut registrar = Registrar::new();
        let slots = receiver::held(&streams) + 2 * streams.len();
        let pool = Pool::new(&mut registrar, slots as u32, geometry.slot_bytes())?;
        let mut element = |len: u32| {
            let region = registrar.add(Region::host(len as usize)?);
            Ok::<_, MemoryError>(Sge { region, offset: 0, len })
        };
        let (scratch, spare) = (element(SCRATCH_BYTES)?, element(SPARE_BYTES)?);
        Ok(Self { describe, geometry, streams, pool, regions: registrar.finish(), scratch, spare })
    }

    pub(super) fn wanted(&self, bind: SocketAddr, sealed: bool) -> Wanted {
        let capacity = receiver::capacity(&self.streams);
        Wanted { bind, sealed, remainders: true, capacity, scratch: self.scratch, receive_buffer: RECEIVE_BUFFER }
    }

    pub(super) fn configure(
        &mut self,
        settings: &Settings,
        control: &mut Control,
        index: usize,
        destination: SocketAddr,
        (dest_qp, q_key): (u32, u32),
    ) -> Result<(), TriggerError> {
        let config = &mut self.streams[index];
        let source = control.configure(Configure {
            link: index as u8,
            framing: framing::id_of(settings.framing.name()).unwrap_or(0),
            geometry: self.geometry,
            destination,
            dest_qp,
            q_key,
            stream: config.stream,
        })?;
        config.source = Some(source.address).filter(|address| !address.ip().is_unspecified() && address.port() != 0);
        config.first_psn = Some(source.first_psn);
        Ok(())
    }
}
