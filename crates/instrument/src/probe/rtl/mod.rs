//! Probe links whose packets are built by the RTL of `hdl/`, compiled with Verilator.
//!
//! ```text
//!  Configure ──► registers (AXI-Lite)     samples ──► 64-byte words (AXI-Stream)
//!                      │                                  │
//!                      ▼                                  ▼
//!                    shotline_roce_ud_tx, compiled with Verilator, one per link
//!                                      │ Ethernet frames (AXI-Stream)
//!                                      ▼
//!                       a ring of frames in one region ──► Link ──► Whole ──► interface, or socket
//! ```
//!
//! The RTL builds the entire packet: headers, sequence number, CRC and end-of-shot record. A raw interface sends its
//! frames unchanged. A socket sends the bytes after the UDP header, including the ICRC, and the kernel rebuilds the
//! outer headers; the ICRC covers them, so a receiver detects any difference.

mod whole;

pub use whole::WholeFrameIo;

use super::clock::TAI_MINUS_UTC_NS;
use super::samples::{Source, SourceReport};
use super::shots::{COPY_RING_BYTES, CopyRing, Payload, ReadError, Route, ShotContext, Shots, Upcoming};
use super::{Config, ProbeError};
use shotline_memory::{Region, RegionId, Regions, Registrar, Sge};
use shotline_rtl::{Config as Registers, Framing, Limits, Sender, Shot};
use shotline_transport::SCRATCH_BYTES;
use shotline_wire::icrc::{Flow, Network};
use shotline_wire::setup::Model;
use shotline_wire::shot::{Geometry, PACKET_BYTES};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

/// Model name in set-up messages.
const MODEL: &str = "Shotline RTL probe (simulated)";
/// Space for a frame in bytes: the longest header, framing `udp` over IPv6, has 94 bytes.
const FRAME_BYTES: u32 = PACKET_BYTES + 128;
/// Period of the RTL's clock in ns, for the times of frames.
const CLOCK_NS: u64 = 5;

/// Callback for each frame that leaves the RTL, with its UTC time in ns.
pub type Tap = Box<dyn FnMut(u64, &[u8]) -> std::io::Result<()>>;

/// Shot source with frames built by the RTL.
pub struct Rtl {
    source: Source,
    region: Arc<Region>,
    id: RegionId,
    links: Vec<LinkHardware>,
    copies: CopyRing,
    next: u64,
    tap: Option<Tap>,
}

/// Hardware of one link.
#[derive(Debug)]
struct LinkHardware {
    sender: Sender,
    route: Option<Route>,
    /// Configuration to write to the registers before the next shot.
    registers: Option<Registers>,
    stream: u32,
    geometry: Geometry,
    /// Sample bytes of each distinct shot; empty before the first [`Shots::prepare`].
    samples: Vec<Vec<u8>>,
    ring: FrameRing,
}

/// Ring of a link's frames until they have been sent.
#[derive(Debug)]
struct FrameRing {
    /// Offset of the first slot.
    offset: u64,
    /// Lengths of the frames in the slots.
    lens: Vec<u32>,
    /// Number of the first shot since the ring was reset, if any.
    first_shot: Option<u64>,
    /// Packets per shot.
    packets: u32,
}

impl Rtl {
    /// Opens the sample source and allocates memory for frames in flight. Also returns its region table.
    ///
    /// # Errors
    /// As [`super::Probe::new`].
    pub fn new(config: &Config, tap: Option<Tap>) -> Result<(Self, Regions), ProbeError> {
        config.check()?;
        let source = Source::new(config)?;
        let geometry = *source.geometry();
        // A frame may be held back for `reorder_depth` others while its shot and the next one are built.
        let frames = u32::from(config.faults.reorder_depth) + 3 * geometry.packets();
        let ring = u64::from(frames) * u64::from(FRAME_BYTES);
        let rings_offset = u64::from(SCRATCH_BYTES) + COPY_RING_BYTES;
        let region = Region::host((rings_offset + u64::from(config.links) * ring) as usize)?;
        let mut registrar = Registrar::new();
        let id = registrar.add(Arc::clone(&region));
        let hardware = |link| LinkHardware {
            sender: Sender::new(config.seed.unwrap_or_default()),
            route: None,
            registers: None,
            stream: 0,
            geometry,
            samples: Vec::new(),
            ring: FrameRing {
                offset: rings_offset + u64::from(link) * ring,
                lens: vec![0; frames as usize],
                first_shot: None,
                packets: geometry.packets(),
            },
        };
        let links = (0..config.links).map(hardware).collect();
        let copies = CopyRing::new(Arc::clone(&region), id, SCRATCH_BYTES.into());
        Ok((Self { source, region, id, links, copies, next: config.first_shot, tap }, registrar.finish()))
    }

    /// Starts tracing the ports of the first link's RTL to a VCD file.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub fn trace(&mut self, path: &Path) -> std::io::Result<()> {
        self.links.first_mut().map_or(Ok(()), |hardware| hardware.sender.trace(path))
    }

    /// Returns memory that a transport may use as scratch space.
    pub fn scratch(&self) -> Sge {
        Sge { region: self.id, offset: 0, len: SCRATCH_BYTES }
    }

    /// Returns the index of the distinct shot that a shot number carries.
    fn pattern(&self, shot: u64) -> u32 {
        (shot % u64::from(self.source.period())) as u32
    }
}

impl FrameRing {
    /// Returns the slot of a packet.
    fn slot(&self, shot: u64, packet: u32) -> usize {
        let since = shot.wrapping_sub(self.first_shot.unwrap_or(shot));
        let frame = since.wrapping_mul(self.packets.into()).wrapping_add(packet.into());
        (frame % self.lens.len() as u64) as usize
    }

    fn offset(&self, slot: usize) -> u64 {
        self.offset + slot as u64 * u64::from(FRAME_BYTES)
    }

    /// Reserves the slot of a packet for a frame of `bytes` bytes and returns the slot's offset.
    fn reserve(&mut self, shot: u64, packet: u32, bytes: usize) -> u64 {
        let slot = self.slot(shot, packet);
        self.lens[slot] = bytes as u32;
        self.offset(slot)
    }
}

impl LinkHardware {
    /// Builds a shot's frames with the RTL.
    fn frame(&mut self, shot: &Shot, pattern: u32) -> Result<(), ReadError> {
        if let Some(registers) = self.registers.take() {
            self.sender.configure(&registers).map_err(failed)?;
        }
        let packets = self.geometry.packets() as usize;
        self.sender.send(shot, &self.samples[pattern as usize]);
        self.sender.run(Limits { frames: packets, ..Limits::default() });
        let frames = self.sender.frames();
        let (count, longest) = (frames.len(), frames.map(|frame| frame.bytes.len()).max().unwrap_or(0));
        let failed_assertions = self.sender.failed_assertions();
        if count != packets || longest > FRAME_BYTES as usize || failed_assertions > 0 {
            return Err(failed(format!(
                "expected {packets} frames from the RTL, found {count} of up to {longest} bytes; {failed_assertions} assertions failed"
            )));
        }
        Ok(())
    }
}

/// Returns the register configuration for a link's route and geometry.
fn registers(route: &Route, geometry: &Geometry) -> Registers {
    let network = match (route.source.ip(), route.destination.ip()) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => Network::V4 { src: src.octets(), dst: dst.octets(), id: 0 },
        (src, dst) => Network::V6 { src: v6(src), dst: v6(dst) },
    };
    let [source_mac, destination_mac] = route.ethernet;
    Registers {
        framing: route.framing.name().parse().ok().and_then(Framing::of).unwrap_or_default(),
        source_mac,
        destination_mac,
        flow: Flow { network, src_port: route.source.port(), dst_port: route.destination.port() },
        link: route.keys,
        geometry: Some(*geometry),
        psn: Some(route.psn),
        ..Registers::default()
    }
}

fn v6(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

fn failed(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ReadError {
    ReadError(error.into())
}

impl Shots for Rtl {
    fn model(&self) -> Model {
        Model::from(MODEL).unwrap_or_default()
    }
    fn report(&self) -> SourceReport {
        self.source.report()
    }
    fn pattern_period(&self) -> u32 {
        self.source.pattern_period()
    }
    fn geometry(&self) -> &Geometry {
        self.source.geometry()
    }
    fn is_live(&self) -> bool {
        true
    }
    fn are_framed(&self) -> bool {
        true
    }
    fn set_route(&mut self, link: u8, route: &Route) {
        self.links[usize::from(link)].route = Some(route.clone());
    }

    fn prepare(&mut self, link: u8, stream: u32, geometry: &Geometry) {
        let hardware = &mut self.links[usize::from(link)];
        let same = (hardware.stream, hardware.geometry) == (stream, *geometry) && !hardware.samples.is_empty();
        (hardware.stream, hardware.geometry) = (stream, *geometry);
        (hardware.ring.first_shot, hardware.ring.packets) = (None, geometry.packets());
        if !same {
            let mut shot = |pattern| {
                let mut bytes = vec![0; geometry.sample_bytes() as usize];
                self.source.write(link, stream, pattern, geometry, &mut bytes);
                bytes
            };
            hardware.samples = (0..self.source.period()).map(&mut shot).collect();
        }
        hardware.registers = hardware.route.as_ref().map(|route| registers(route, geometry));
    }

    fn begin(&mut self, next: u64) -> u64 {
        next
    }

    fn upcoming(&mut self) -> Upcoming {
        Upcoming::Shot { number: self.next, recorded_ns: None }
    }

    fn load(&mut self, context: &ShotContext) -> Result<u64, ReadError> {
        let shot = self.next;
        self.next = shot.wrapping_add(1);
        let pattern = self.pattern(shot);
        let start_ns = context.stamp.tai_ns.saturating_sub(TAI_MINUS_UTC_NS);
        for hardware in self.links.iter_mut().filter(|hardware| !hardware.samples.is_empty()) {
            let metadata = Shot {
                number: shot,
                time: context.stamp.tai_ns,
                stream: hardware.stream,
                event: context.event.map_or(pattern, u32::from),
                flags: u8::from(context.stamp.locked) | u8::from(context.triggered) << 1,
            };
            hardware.frame(&metadata, pattern)?;
            hardware.ring.first_shot.get_or_insert(shot);
            let first_clock = hardware.sender.frames().next().map_or(0, |frame| frame.clock);
            for (packet, frame) in (0..).zip(hardware.sender.frames()) {
                self.region.write(hardware.ring.reserve(shot, packet, frame.bytes.len()) as usize, frame.bytes);
                if let Some(tap) = &mut self.tap {
                    tap(start_ns + (frame.clock - first_clock) * CLOCK_NS, frame.bytes).map_err(failed)?;
                }
            }
            hardware.sender.discard(hardware.geometry.packets() as usize);
        }
        Ok(shot)
    }

    fn geometry_of(&self, link: u8) -> &Geometry {
        &self.links[usize::from(link)].geometry
    }
    fn contains(&self, _link: u8, _packet: u16) -> bool {
        true
    }
    fn payload(&self, link: u8, shot: u64, packet: u16) -> Payload {
        let ring = &self.links[usize::from(link)].ring;
        let slot = ring.slot(shot, packet.into());
        let frame = Sge { region: self.id, offset: ring.offset(slot), len: ring.lens[slot] };
        Payload { gather: [frame, Sge::EMPTY], remainder: 0 }
    }
    fn copies(&mut self) -> &mut CopyRing {
        &mut self.copies
    }
}

impl std::fmt::Debug for Rtl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rtl").field("source", &self.source).field("links", &self.links).finish_non_exhaustive()
    }
}
