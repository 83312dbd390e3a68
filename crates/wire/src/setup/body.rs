//! Bodies of set-up messages. Byte offsets count from the beginning of the message.

use super::array::ArrayDescription;
use crate::shot::{Geometry, PACKET_BYTES, Packing};
use crate::{ParseError, bytes, framing};
use arrayvec::ArrayString;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Length of every set-up message, in bytes.
pub const LEN: usize = 128;

/// Model name of a probe: up to 32 characters of printable ASCII.
pub type Model = ArrayString<32>;

/// Model and capabilities of a probe: the reply to a Query.
///
/// | byte | field | type |
/// |---|---|---|
/// | 16 | model, printable ASCII padded with zeros | 32 bytes |
/// | 48 | links | u8 |
/// | 49 | resolution of a sample in bits | u8 |
/// | 50 | packing | u8 |
/// | 51 | framings: bit `i` is framing `i` | u8 |
/// | 52 | channels of each link | u16 |
/// | 54 | zeros | 2 bytes |
/// | 56 | sample rate in Hz | u32 |
/// | 60 | maximum samples per channel in a shot | u32 |
/// | 64 | test-pattern period, 0 for real samples | u32 |
/// | 68 | the array ([`ArrayDescription`]), zeros if there is no description | 34 bytes |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Describe {
    /// Model name, for display.
    pub model: Model,
    /// Number of links. They are numbered from 0.
    pub links: u8,
    /// Number of channels of each link.
    pub channels: u16,
    /// Resolution of a sample in bits.
    pub bits: u8,
    /// Packing of the samples.
    pub packing: Packing,
    /// Sample rate in Hz.
    pub sample_rate_hz: u32,
    /// Maximum number of samples per channel in a shot.
    pub max_samples: u32,
    /// Supported framings: bit `i` is the framing with id `i` ([`framing::Kind::with_id`]).
    pub framings: u8,
    /// Period of the test pattern ([`Source::pattern_period`]).
    pub pattern_period: u32,
    /// Ultrasound array, if the probe describes it. Probes with older firmware do not.
    pub array: Option<ArrayDescription>,
}

impl Describe {
    /// Returns `true` if the probe supports the framing with this id.
    pub fn supports(&self, framing: u8) -> bool {
        framing < 8 && self.framings >> framing & 1 == 1
    }

    pub(super) fn parse(body: &mut bytes::Fields<'_>) -> Result<Self, ParseError> {
        let model = model(&body.array()?)?;
        let links = body.u8()?;
        let bits = body.u8()?;
        let packing = packing(body.u8()?)?;
        let framings = body.u8()?;
        let channels = body.u16()?;
        let _reserved = body.u16()?;
        let sample_rate_hz = body.u32()?;
        let max_samples = body.u32()?;
        let pattern_period = body.u32()?;
        let array = ArrayDescription::parse(body)?;
        Ok(Self { model, links, channels, bits, packing, sample_rate_hz, max_samples, framings, pattern_period, array })
    }

    pub(super) fn emit(&self, out: bytes::Header<LEN>) -> bytes::Header<LEN> {
        let out = out
            .put(self.model.as_bytes())
            .zeros(self.model.remaining_capacity())
            .u8(self.links)
            .u8(self.bits)
            .u8(self.packing as u8)
            .u8(self.framings)
            .u16(self.channels)
            .zeros(2)
            .u32(self.sample_rate_hz)
            .u32(self.max_samples)
            .u32(self.pattern_period);
        match &self.array {
            Some(array) => array.emit(out),
            None => out,
        }
    }
}

fn model(field: &[u8; 32]) -> Result<Model, ParseError> {
    let error = ParseError::Text { what: "model" };
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    let (text, padding) = field.split_at_checked(end).ok_or(error)?;
    // The name is shown on a terminal, so control characters are refused.
    if !text.iter().all(|byte| (b' '..=b'~').contains(byte)) || padding.iter().any(|byte| *byte != 0) {
        return Err(error);
    }
    let text = core::str::from_utf8(text).map_err(|_| error)?;
    Model::from(text).map_err(|_| error)
}

fn packing(value: u8) -> Result<Packing, ParseError> {
    Packing::from_u8(value).ok_or(ParseError::Unknown { what: "packing", found: value.into() })
}

/// Geometry, framing and destination of a link's shots: the request, and its echo in the reply.
///
/// | byte | field | type |
/// |---|---|---|
/// | 16 | link | u8 |
/// | 17 | framing | u8 |
/// | 18 | packing | u8 |
/// | 19 | resolution of a sample in bits | u8 |
/// | 20 | payload bytes of a full packet, 4096 | u16 |
/// | 22 | destination UDP port | u16 |
/// | 24 | destination address; IPv4 as `::ffff:a.b.c.d` | 16 bytes |
/// | 40 | destination queue pair, 24 bits | u32 |
/// | 44 | queue key | u32 |
/// | 48 | stream | u32 |
/// | 52 | channels | u16 |
/// | 54 | zeros | 2 bytes |
/// | 56 | samples per channel | u32 |
/// | 60 | sample rate in Hz, 0 for the probe's own | u32 |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Configure {
    /// Number of the probe's link.
    pub link: u8,
    /// Id of the framing ([`framing::Kind::with_id`]).
    pub framing: u8,
    /// Geometry of the shots.
    pub geometry: Geometry,
    /// Destination address. An IPv4-mapped IPv6 address is parsed as IPv4; scope ids and flow labels are not sent.
    pub destination: SocketAddr,
    /// The receiver's queue pair, 24 bits; not used by framings without queue pairs.
    pub dest_qp: u32,
    /// The receiver's queue key; not used by framings without queue pairs.
    pub q_key: u32,
    /// Stream number, which the end-of-shot record repeats.
    pub stream: u32,
}

impl Configure {
    /// Returns the keys of the probe's packets, for [`framing::Framing`].
    pub fn framing_link(&self, source: &Source) -> framing::Link {
        framing::Link { dest_qp: self.dest_qp, src_qp: source.qp, q_key: self.q_key, stream: self.stream }
    }

    pub(super) fn parse(body: &mut bytes::Fields<'_>) -> Result<Self, ParseError> {
        let link = body.u8()?;
        let framing = body.u8()?;
        let packing = packing(body.u8()?)?;
        let bits = body.u8()?;
        let packet_bytes = u32::from(body.u16()?);
        if packet_bytes != PACKET_BYTES {
            let (expected, found) = (PACKET_BYTES.into(), packet_bytes.into());
            return Err(ParseError::Length { what: "the payload of a full packet", expected, found });
        }
        let port = body.u16()?;
        let destination = address(body.array()?, port);
        let dest_qp = u24("destination queue pair", body.u32()?)?;
        let q_key = body.u32()?;
        let stream = body.u32()?;
        let channels = body.u16()?;
        let _reserved = body.u16()?;
        let samples = body.u32()?;
        let geometry = Geometry::new(channels, samples, bits, packing, body.u32()?)?;
        Ok(Self { link, framing, geometry, destination, dest_qp, q_key, stream })
    }

    pub(super) fn emit(&self, out: bytes::Header<LEN>) -> bytes::Header<LEN> {
        out.u8(self.link)
            .u8(self.framing)
            .u8(self.geometry.packing() as u8)
            .u8(self.geometry.bits())
            .u16(PACKET_BYTES as u16)
            .u16(self.destination.port())
            .put(&octets(self.destination.ip()))
            .zeros(1)
            .u24(self.dest_qp)
            .u32(self.q_key)
            .u32(self.stream)
            .u16(self.geometry.channels())
            .zeros(2)
            .u32(self.geometry.samples())
            .u32(self.geometry.sample_rate_hz())
    }
}

/// Source of a link's packets: follows the echo in the reply to a Configure.
///
/// | byte | field | type |
/// |---|---|---|
/// | 64 | source address; IPv4 as `::ffff:a.b.c.d` | 16 bytes |
/// | 80 | source UDP port | u16 |
/// | 82 | zeros | 2 bytes |
/// | 84 | source queue pair, 24 bits | u32 |
/// | 88 | sequence number of the first packet, 24 bits | u32 |
/// | 92 | test-pattern period, 0 for real samples | u32 |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// Source address and port of the packets.
    pub address: SocketAddr,
    /// The probe's queue pair, 24 bits.
    pub qp: u32,
    /// Packet sequence number of the first packet after the next Start, 24 bits.
    pub first_psn: u32,
    /// Period of the test pattern; 0 for real samples. Otherwise the samples of a shot are test pattern number
    /// `shot % pattern_period`, so that a receiver can check each of them.
    pub pattern_period: u32,
}

impl Source {
    pub(super) fn parse(body: &mut bytes::Fields<'_>) -> Result<Self, ParseError> {
        let ip = body.array()?;
        let address = address(ip, body.u16()?);
        let _reserved = body.u16()?;
        let qp = u24("source queue pair", body.u32()?)?;
        let first_psn = u24("first packet sequence number", body.u32()?)?;
        Ok(Self { address, qp, first_psn, pattern_period: body.u32()? })
    }

    pub(super) fn emit(&self, out: bytes::Header<LEN>) -> bytes::Header<LEN> {
        out.put(&octets(self.address.ip()))
            .u16(self.address.port())
            .zeros(3)
            .u24(self.qp)
            .zeros(1)
            .u24(self.first_psn)
            .u32(self.pattern_period)
    }
}

/// Start mode and number of shots of a run.
///
/// | byte | field | type |
/// |---|---|---|
/// | 16 | mode: 0 free-running, 1 fixed rate, 2 external trigger | u8 |
/// | 17 | zeros | 7 bytes |
/// | 24 | rate in shots per 1000 s (millihertz), 1 to 10^12; 0 unless the mode is 1 | u64 |
/// | 32 | shots to send, 0 for unlimited | u64 |
///
/// The reply has the number of the first shot, u64, at 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Start {
    /// What starts a shot.
    pub mode: Mode,
    /// Number of shots to send; 0 for unlimited.
    pub shots: u64,
}

/// What starts a shot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The end of the previous shot: as fast as the link allows.
    FreeRunning,
    /// A clock.
    FixedRate {
        /// Shots per 1000 seconds, 1 to [`Mode::MAX_MILLIHERTZ`].
        millihertz: u64,
    },
    /// A [`super::Trigger`], or the probe's trigger input.
    ExternalTrigger,
}

impl Mode {
    /// Maximum fixed rate: one shot per nanosecond, the resolution of timestamps.
    pub const MAX_MILLIHERTZ: u64 = 1_000_000_000_000;
}

impl Start {
    pub(super) fn parse(body: &mut bytes::Fields<'_>) -> Result<Self, ParseError> {
        let mode = body.u8()?;
        let _reserved: [u8; 7] = body.array()?;
        let millihertz = body.u64()?;
        let shots = body.u64()?;
        let mode = match (mode, millihertz) {
            (0, 0) => Mode::FreeRunning,
            (1, 1..=Mode::MAX_MILLIHERTZ) => Mode::FixedRate { millihertz },
            (1, found) => {
                let max = Mode::MAX_MILLIHERTZ;
                return Err(ParseError::Range { what: "rate in millihertz", min: 1, max, found });
            }
            (2, 0) => Mode::ExternalTrigger,
            (0 | 2, found) => {
                return Err(ParseError::Value { what: "rate without a fixed-rate mode", expected: 0, found });
            }
            _ => return Err(ParseError::Unknown { what: "start mode", found: mode.into() }),
        };
        Ok(Self { mode, shots })
    }

    pub(super) fn emit(&self, out: bytes::Header<LEN>) -> bytes::Header<LEN> {
        let (mode, millihertz) = match self.mode {
            Mode::FreeRunning => (0, 0),
            Mode::FixedRate { millihertz } => (1, millihertz),
            Mode::ExternalTrigger => (2, 0),
        };
        out.u8(mode).zeros(7).u64(millihertz).u64(self.shots)
    }
}

/// State and counters of a link: the reply to Stop and Status.
///
/// | byte | field | type |
/// |---|---|---|
/// | 16 | link | u8 |
/// | 17 | running: 0 or 1 | u8 |
/// | 18 | 1 if another receiver than the requester controls the probe, else 0 | u8 |
/// | 19 | zeros | 1 byte |
/// | 20 | ms since the last message of the owner, at least 1; 0 if unknown | u32 |
/// | 24 | number of the next shot | u64 |
/// | 32 | shots sent | u64 |
/// | 40 | packets sent | u64 |
/// | 48 | triggers missed | u64 |
/// | 56 | packets deliberately dropped | u32 |
/// | 60 | packets deliberately sent twice | u32 |
/// | 64 | packets deliberately sent out of order | u32 |
/// | 68 | packets deliberately corrupted | u32 |
///
/// Counts are since the last Start. Only emulated probes inject faults; a real probe reports zeros.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Report {
    /// Number of the link.
    pub link: u8,
    /// `true` while shots are being sent.
    pub running: bool,
    /// `true` if another receiver than the requester controls the probe.
    pub is_owned_by_other: bool,
    /// Time since the last message of the probe's owner, in ms; 0 if unknown.
    pub owner_silent_ms: u32,
    /// Number of the next shot.
    pub next_shot: u64,
    /// Number of shots sent.
    pub shots_sent: u64,
    /// Number of packets sent, duplicates of injected faults included.
    pub packets_sent: u64,
    /// Number of triggers that arrived while the probe could not acquire a shot.
    pub triggers_missed: u64,
    /// Number of packets deliberately dropped.
    pub lost: u32,
    /// Number of packets deliberately sent twice.
    pub duplicated: u32,
    /// Number of packets deliberately sent out of order.
    pub reordered: u32,
    /// Number of packets with a deliberately changed bit.
    pub corrupted: u32,
}

impl Report {
    pub(super) fn parse(body: &mut bytes::Fields<'_>) -> Result<Self, ParseError> {
        let link = body.u8()?;
        let running = match body.u8()? {
            0 => false,
            1 => true,
            found => return Err(ParseError::Range { what: "running", min: 0, max: 1, found: found.into() }),
        };
        let is_owned_by_other = body.u8()? == 1;
        let _reserved = body.u8()?;
        Ok(Self {
            link,
            running,
            is_owned_by_other,
            owner_silent_ms: body.u32()?,
            next_shot: body.u64()?,
            shots_sent: body.u64()?,
            packets_sent: body.u64()?,
            triggers_missed: body.u64()?,
            lost: body.u32()?,
            duplicated: body.u32()?,
            reordered: body.u32()?,
            corrupted: body.u32()?,
        })
    }

    pub(super) fn emit(&self, out: bytes::Header<LEN>) -> bytes::Header<LEN> {
        out.u8(self.link)
            .u8(self.running.into())
            .u8(self.is_owned_by_other.into())
            .zeros(1)
            .u32(self.owner_silent_ms)
            .u64(self.next_shot)
            .u64(self.shots_sent)
            .u64(self.packets_sent)
            .u64(self.triggers_missed)
            .u32(self.lost)
            .u32(self.duplicated)
            .u32(self.reordered)
            .u32(self.corrupted)
    }
}

fn address(ip: [u8; 16], port: u16) -> SocketAddr {
    SocketAddr::new(Ipv6Addr::from(ip).to_canonical(), port)
}

fn octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

fn u24(what: &'static str, value: u32) -> Result<u32, ParseError> {
    if value >> 24 != 0 {
        return Err(ParseError::Range { what, min: 0, max: 0xFF_FFFF, found: value.into() });
    }
    Ok(value)
}
