//! The probe's links as hardware: packets made by the RTL of `hdl/`, compiled by Verilator.
//!
//! ```text
//!  Configure ──► registers (AXI-Lite)     samples ──► 64-byte words (AXI-Stream)
//!                      │                                  │
//!                      ▼                                  ▼
//!                    shotline_roce_ud_tx, as Verilator has compiled it, one a link
//!                                      │ Ethernet frames (AXI-Stream)
//!                                      ▼
//!                       a ring of frames in one region ──► Link ──► Whole ──► interface, or socket
//! ```
//!
//! Here nothing of a packet is made: no header, no sequence number, no CRC, no end-of-shot record. An interface's raw
//! frames leave as the RTL made them. A socket takes everything behind UDP, the ICRC included, and its kernel makes the
//! headers before that a second time; the ICRC covers them, so a receiver finds out if the two are not the same.

mod whole;

pub use whole::Whole;

use super::clock::TAI_MINUS_UTC_NS;
use super::samples::{Source, SourceReport};
use super::shots::{COPIES_BYTES, Copies, Moment, Payload, ReadError, Shots, Upcoming, Way};
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

/// What the probe calls itself.
const MODEL: &str = "Shotline RTL probe (simulated)";
/// Room for a frame: the longest header is that of framing `udp` over IPv6, 94 bytes.
const FRAME_BYTES: u32 = PACKET_BYTES + 128;
/// Period of the RTL's clock in nanoseconds, for the times of frames.
const CLOCK_NS: u64 = 5;

/// Sees every frame when it has left the RTL, with the time in nanoseconds of UTC.
pub type Tap = Box<dyn FnMut(u64, &[u8]) -> std::io::Result<()>>;

/// Shots that the RTL frames.
pub struct Rtl {
    source: Source,
    region: Arc<Region>,
    id: RegionId,
    links: Vec<Line>,
    copies: Copies,
    next: u64,
    tap: Option<Tap>,
}

/// One link's hardware.
#[derive(Debug)]
struct Line {
    sender: Sender,
    way: Option<Way>,
    /// What is written to its registers before the next shot.
    registers: Option<Registers>,
    stream: u32,
    geometry: Geometry,
    /// Sample bytes of each distinct shot; empty before the first [`Shots::prepare`].
    samples: Vec<Vec<u8>>,
    ring: Ring,
}

/// Where a link's frames lie until they have left: one behind the other, and again from the beginning.
#[derive(Debug)]
struct Ring {
    /// Where it begins.
    at: u64,
    /// Lengths of the frames in it.
    lens: Vec<u32>,
    /// Number of the first shot since it was emptied, if there was one.
    first: Option<u64>,
    /// Packets of each shot.
    packets: u32,
}

impl Rtl {
    /// Opens the samples, and takes the memory for frames on their way. Returns the table of it, too.
    ///
    /// # Errors
    /// As [`super::Probe::new`].
    pub fn new(config: &Config, tap: Option<Tap>) -> Result<(Self, Regions), ProbeError> {
        config.check()?;
        let source = Source::new(config)?;
        let geometry = *source.geometry();
        // A frame may be held back for so many others, while its shot and the next one are made.
        let frames = u32::from(config.faults.reorder_depth) + 3 * geometry.packets();
        let ring = u64::from(frames) * u64::from(FRAME_BYTES);
        let rings_at = u64::from(SCRATCH_BYTES) + COPIES_BYTES;
        let region = Region::host((rings_at + u64::from(config.links) * ring) as usize)?;
        let mut registrar = Registrar::new();
        let id = registrar.add(Arc::clone(&region));
        let line = |link| Line {
            sender: Sender::new(config.seed.unwrap_or_default()),
            way: None,
            registers: None,
            stream: 0,
            geometry,
            samples: Vec::new(),
            ring: Ring {
                at: rings_at + u64::from(link) * ring,
                lens: vec![0; frames as usize],
                first: None,
                packets: geometry.packets(),
            },
        };
        let links = (0..config.links).map(line).collect();
        let copies = Copies::new(Arc::clone(&region), id, SCRATCH_BYTES.into());
        Ok((Self { source, region, id, links, copies, next: config.first_shot, tap }, registrar.finish()))
    }

    /// Writes what is on the ports of the first link's RTL, from now on, into a VCD file.
    ///
    /// # Errors
    /// If there can be no such file.
    pub fn trace(&mut self, path: &Path) -> std::io::Result<()> {
        self.links.first_mut().map_or(Ok(()), |line| line.sender.trace(path))
    }

    /// Memory that a transport may use as its scratch.
    pub fn scratch(&self) -> Sge {
        Sge { region: self.id, offset: 0, len: SCRATCH_BYTES }
    }

    /// The distinct shot that stands for this number.
    fn pattern(&self, shot: u64) -> u32 {
        (shot % u64::from(self.source.period())) as u32
    }
}

impl Ring {
    /// The place of a packet.
    fn slot(&self, shot: u64, packet: u32) -> usize {
        let since = shot.wrapping_sub(self.first.unwrap_or(shot));
        let frame = since.wrapping_mul(self.packets.into()).wrapping_add(packet.into());
        (frame % self.lens.len() as u64) as usize
    }

    fn offset(&self, slot: usize) -> u64 {
        self.at + slot as u64 * u64::from(FRAME_BYTES)
    }

    /// Where a packet's frame of so many bytes is to be written.
    fn put(&mut self, shot: u64, packet: u32, bytes: usize) -> u64 {
        let slot = self.slot(shot, packet);
        self.lens[slot] = bytes as u32;
        self.offset(slot)
    }
}

impl Line {
    /// Has the RTL make a shot's frames.
    fn frame(&mut self, shot: &Shot, pattern: u32) -> Result<(), ReadError> {
        if let Some(registers) = self.registers.take() {
            self.sender.configure(&registers).map_err(failed)?;
        }
        let packets = self.geometry.packets() as usize;
        self.sender.send(shot, &self.samples[pattern as usize]);
        self.sender.run(Limits { frames: packets, ..Limits::default() });
        let frames = self.sender.frames();
        let (made, longest) = (frames.len(), frames.map(|frame| frame.bytes.len()).max().unwrap_or(0));
        let broken = self.sender.failed_assertions();
        if made != packets || longest > FRAME_BYTES as usize || broken > 0 {
            return Err(failed(format!(
                "the RTL made {made} frames of up to {longest} bytes of a shot of {packets} packets, and {broken} of its assertions failed"
            )));
        }
        Ok(())
    }
}

/// A link's configuration, as set-up messages have told it.
fn registers(way: &Way, geometry: &Geometry) -> Registers {
    let network = match (way.source.ip(), way.destination.ip()) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => Network::V4 { src: src.octets(), dst: dst.octets(), id: 0 },
        (src, dst) => Network::V6 { src: v6(src), dst: v6(dst) },
    };
    let [source_mac, destination_mac] = way.ethernet;
    Registers {
        framing: way.framing.name().parse().ok().and_then(Framing::of).unwrap_or_default(),
        source_mac,
        destination_mac,
        flow: Flow { network, src_port: way.source.port(), dst_port: way.destination.port() },
        link: way.keys,
        geometry: Some(*geometry),
        psn: Some(way.psn),
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
    fn direct(&mut self, link: u8, way: &Way) {
        self.links[usize::from(link)].way = Some(way.clone());
    }

    fn prepare(&mut self, link: u8, stream: u32, geometry: &Geometry) {
        let line = &mut self.links[usize::from(link)];
        let same = (line.stream, line.geometry) == (stream, *geometry) && !line.samples.is_empty();
        (line.stream, line.geometry) = (stream, *geometry);
        (line.ring.first, line.ring.packets) = (None, geometry.packets());
        if !same {
            let mut shot = |pattern| {
                let mut bytes = vec![0; geometry.sample_bytes() as usize];
                self.source.write(link, stream, pattern, geometry, &mut bytes);
                bytes
            };
            line.samples = (0..self.source.period()).map(&mut shot).collect();
        }
        line.registers = line.way.as_ref().map(|way| registers(way, geometry));
    }

    fn begin(&mut self, next: u64) -> u64 {
        next
    }

    fn upcoming(&mut self) -> Upcoming {
        Upcoming::Shot { number: self.next, taken_ns: None }
    }

    fn load(&mut self, moment: &Moment) -> Result<u64, ReadError> {
        let shot = self.next;
        self.next = shot.wrapping_add(1);
        let pattern = self.pattern(shot);
        let begun_ns = moment.stamp.tai_ns.saturating_sub(TAI_MINUS_UTC_NS);
        for line in self.links.iter_mut().filter(|line| !line.samples.is_empty()) {
            let tells = Shot {
                number: shot,
                time: moment.stamp.tai_ns,
                stream: line.stream,
                event: moment.event.map_or(pattern, u32::from),
                flags: u8::from(moment.stamp.locked) | u8::from(moment.triggered) << 1,
            };
            line.frame(&tells, pattern)?;
            line.ring.first.get_or_insert(shot);
            let began = line.sender.frames().next().map_or(0, |frame| frame.clock);
            for (packet, frame) in (0..).zip(line.sender.frames()) {
                self.region.write(line.ring.put(shot, packet, frame.bytes.len()) as usize, frame.bytes);
                if let Some(tap) = &mut self.tap {
                    tap(begun_ns + (frame.clock - began) * CLOCK_NS, frame.bytes).map_err(failed)?;
                }
            }
            line.sender.forget(line.geometry.packets() as usize);
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
    fn copies(&mut self) -> &mut Copies {
        &mut self.copies
    }
}

impl std::fmt::Debug for Rtl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rtl").field("source", &self.source).field("links", &self.links).finish_non_exhaustive()
    }
}
