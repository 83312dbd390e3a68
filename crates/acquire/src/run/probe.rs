//! Runs with a probe as sender.

use super::error::RunError;
use super::outcome::Outcome;
use super::phases::receive;
use super::prepare::{Instrument, Origin, PreparedRun, check_shape};
use crate::completion;
use crate::config::{ResolvedSettings, Settings};
use crate::control::Control;
use crate::learn::Shape;
use crate::live::Live;
use crate::memory::Memory;
use crate::receiver;
use shotline_backends::{OpenedReceiver, ReceiverParameters};
use shotline_memory::Regions;
use shotline_store::shot::MAX_LINKS;
use shotline_transport::{IoError, PacketIo};
use shotline_verbs::ud::{Ud, substitute_port};
use shotline_wire::framing::{Kind, NoSetUp};
use shotline_wire::setup::{Describe, Sequence};
use shotline_wire::shot::Geometry;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;

/// Default number of samples of a shot.
const SAMPLES: u32 = 2000;

/// Sets up the probe, opens the transport, and receives.
pub(super) fn run<P: PacketIo>(
    resolved: ResolvedSettings<'_>,
    mut memory: Memory,
    kind: Kind,
    stop: &AtomicBool,
    live: &Live,
    open: impl FnOnce(&ReceiverParameters, &Regions) -> Result<OpenedReceiver<P>, IoError>,
) -> Result<Outcome, RunError> {
    memory.wait_populated()?;
    let settings = resolved.settings;
    let mut control = Control::open(resolved.sender.address(), settings.take_over.unwrap_or(false))?;
    control.set_cancel_flag(Some(stop));
    let mut prepared = describe(resolved, &memory, kind, &mut control)?;
    let bind = match settings.bind {
        Some(bind) => bind,
        None => SocketAddr::new(control.local_ip()?, kind.description().port),
    };
    let OpenedReceiver { io, local, receive_buffer } =
        open(&prepared.receiver_parameters(&memory, bind), &memory.regions)?;
    let origin = |control| Origin { control: Some(control), local, receive_buffer, learned: None };
    if let Some(queue_pair) = io.queue_pair() {
        prepared.check_written_by_device()?;
        configure_device(&mut prepared, &mut control, kind, local, queue_pair)?;
        sequence(settings, &mut control)?;
        receive(prepared, origin(control), io, stop, live)
    } else if prepared.framing.has_icrc() {
        prepared.use_in_order(&io)?;
        let mut io = Ud::new(io);
        for link in 0..prepared.configs.len() {
            let pair = io.create()?;
            configure(&mut prepared, &mut control, (link, kind), local, (pair.number, pair.q_key))?;
            prepared.configs[link].key = pair.number;
        }
        sequence(settings, &mut control)?;
        receive(prepared, origin(control), io, stop, live)
    } else {
        for link in 0..prepared.configs.len() {
            configure(&mut prepared, &mut control, (link, kind), local, (0, 0))?;
            prepared.configs[link].key = prepared.configs[link].stream;
        }
        sequence(settings, &mut control)?;
        receive(prepared, origin(control), io, stop, live)
    }
}

/// Queries the description of the probe.
fn describe<'a>(
    resolved: ResolvedSettings<'a>,
    memory: &Memory,
    kind: Kind,
    control: &mut Control<'_>,
) -> Result<PreparedRun<'a>, RunError> {
    let settings = resolved.settings;
    let framing = receiver::framing(kind).ok_or_else(|| RunError::Settings(NoSetUp(kind).to_string()))?;
    let describe = control.query()?;
    let links = settings.links.unwrap_or(describe.links);
    let max = describe.links.min(MAX_LINKS as u8);
    if !(1..=max).contains(&links) {
        return Err(RunError::Settings(format!(
            "the probe has {} links, and a run supports up to {MAX_LINKS}: expected --links from 1 to {max}, found {links}",
            describe.links
        )));
    }
    let samples = settings.samples.unwrap_or(SAMPLES.min(describe.max_samples));
    if samples > describe.max_samples {
        let max = describe.max_samples;
        return Err(RunError::Settings(format!(
            "the probe acquires up to {max} samples per channel and shot: expected --samples from 1 to {max}, found {samples}"
        )));
    }
    let geometry = Geometry::new(describe.channels, samples, describe.bits, describe.packing, describe.sample_rate_hz)?;
    let Describe { channels, bits, packing, sample_rate_hz, .. } = describe;
    check_shape(settings, "the probe has", Shape { channels, bits, packing, sample_rate_hz })?;
    let name = describe.model.as_str().to_owned();
    let instrument = Instrument { name, pattern_period: describe.pattern_period, array: describe.array };
    PreparedRun::new(resolved, memory, framing, geometry, links, instrument)
}

/// Configures the destination of one link's shots at the probe, and stores their source.
fn configure(
    prepared: &mut PreparedRun<'_>,
    control: &mut Control<'_>,
    (link, kind): (usize, Kind),
    local: SocketAddr,
    queue_pair: (u32, u32),
) -> Result<(), RunError> {
    let stream = &mut prepared.configs[link];
    let source = control.configure_stream(link as u8, kind, stream, local, queue_pair)?;
    prepared.instrument.pattern_period = source.pattern_period;
    Ok(())
}

/// Configures the only link for a device's own queue pair, whose completions have less information than packets.
fn configure_device(
    prepared: &mut PreparedRun<'_>,
    control: &mut Control<'_>,
    kind: Kind,
    local: SocketAddr,
    queue_pair: (u32, u32),
) -> Result<(), RunError> {
    if prepared.configs.len() > 1 {
        return Err(RunError::Settings(
            "a device's queue pair receives one link: run one receiver for each, with --links 1".into(),
        ));
    }
    let completions = completion::completion_framing(kind).ok_or_else(|| {
        RunError::Settings(format!("an RDMA device receives datagrams (--framing ud or counted), not {kind}"))
    })?;
    prepared.in_order = receiver::in_order_buffers(&prepared.configs[0]);
    prepared.budget().check()?;
    let stream = &mut prepared.configs[0];
    let source = control.configure_stream(0, kind, stream, local, queue_pair)?;
    prepared.instrument.pattern_period = source.pattern_period;
    stream.source = stream.source.map(|address| SocketAddr::new(address.ip(), substitute_port(source.qp)));
    stream.key = queue_pair.0;
    prepared.framing = completions;
    Ok(())
}

/// Sets the transmit events at the probe, once this receiver owns it.
fn sequence(settings: &Settings, control: &mut Control<'_>) -> Result<(), RunError> {
    let Some(events) = &settings.transmit_sequence else { return Ok(()) };
    let sequence = Sequence::new(events).map_err(|error| RunError::Settings(error.to_string()))?;
    control.sequence(sequence)?;
    Ok(())
}
