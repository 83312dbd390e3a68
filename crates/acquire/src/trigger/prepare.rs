//! Memory for the shots, and their destinations at the probe.

use super::error::TriggerError;
use super::settings::Settings;
use crate::control::Control;
use crate::memory::Memory;
use crate::receiver;
use crate::stream::StreamConfig;
use shotline_backends::ReceiverParameters;
use shotline_memory::Pool;
use shotline_wire::setup::Describe;
use shotline_wire::shot::Geometry;
use std::net::SocketAddr;
use std::sync::Arc;

/// Time without packets after which an incomplete shot is closed.
const SHOT_TIMEOUT_NS: u64 = 200_000_000;
/// Receive buffer in bytes: whole shots of many links.
const RECEIVE_BUFFER: usize = 32 << 20;

/// Memory and shapes of a measurement.
pub(super) struct PreparedMeasurement {
    pub(super) describe: Describe,
    pub(super) geometry: Geometry,
    pub(super) streams: Vec<StreamConfig>,
    pub(super) pool: Arc<Pool>,
    pub(super) memory: Memory,
}

impl PreparedMeasurement {
    pub(super) fn new(settings: &Settings, control: &mut Control<'_>) -> Result<Self, TriggerError> {
        let describe = control.query()?;
        let links = settings.links;
        if links == 0 || links > describe.links {
            let max = describe.links;
            return Err(TriggerError::Settings(format!(
                "the probe has {max} links: expected --links from 1 to {max}, found {links}"
            )));
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
        let slots = receiver::assembly_buffers(&streams) + 2 * streams.len();
        let mut memory = Memory::new(slots as u64 * u64::from(geometry.slot_bytes()))?;
        // No measured latency must include a page fault.
        memory.wait_populated()?;
        let pool = memory.pool(geometry.slot_bytes())?;
        Ok(Self { describe, geometry, streams, pool, memory })
    }

    pub(super) fn receiver_parameters(&self, bind: SocketAddr, sealed: bool) -> ReceiverParameters {
        let capacity = receiver::capacity(&self.streams);
        ReceiverParameters {
            bind,
            sealed,
            remainders: true,
            capacity,
            scratch: self.memory.scratch,
            receive_buffer: RECEIVE_BUFFER,
            in_order: None,
        }
    }
}
