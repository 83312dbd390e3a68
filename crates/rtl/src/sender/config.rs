//! Configuration of a sender, and the register writes for it.

use crate::registers::sender as register;
use shotline_wire::framing::{self, Link};
use shotline_wire::icrc::{Flow, Network};
use shotline_wire::shot::Geometry;
use shotline_wire::{bth, udp};

/// Packet format, which encodes the destination of a payload (`docs/wire-formats.md`, section 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Framing {
    /// RoCEv2 with an immediate.
    #[default]
    Ud = 0,
    /// RoCEv2 without an immediate.
    Counted = 1,
    /// Plain UDP with Shotline's own header.
    Udp = 2,
}

impl Framing {
    /// All framings, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Ud, Self::Counted, Self::Udp];

    /// Returns the corresponding framing of `shotline_wire`.
    pub fn wire_framing(self) -> &'static dyn framing::Framing {
        match self {
            Self::Ud => &framing::Ud,
            Self::Counted => &framing::Counted,
            Self::Udp => &framing::Udp,
        }
    }

    /// Returns the sender's number of a framing, `None` if the sender does not support it.
    pub fn of(kind: framing::Kind) -> Option<Self> {
        use framing::Kind;
        match kind {
            Kind::Ud => Some(Self::Ud),
            Kind::Counted => Some(Self::Counted),
            Kind::Udp => Some(Self::Udp),
            Kind::Digitizer | Kind::Vita49 | Kind::Spead | Kind::Hsb => None,
        }
    }
}

/// Metadata of a shot, passed with its first word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Shot {
    /// Shot number.
    pub number: u64,
    /// TAI nanoseconds of the first sample.
    pub time: u64,
    /// Stream, unless the configuration has one.
    pub stream: u32,
    /// Transmit event.
    pub event: u32,
    /// The record's flags: bit 0 clock locked, bit 1 triggered.
    pub flags: u8,
}

/// Configuration of the sender of one link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Framing.
    pub framing: Framing,
    /// Each input frame is one packet, of 1 to `mtu` bytes; otherwise it is a shot.
    pub packet_mode: bool,
    /// Payload bytes of a full packet: a multiple of 64 from 64 to 4096.
    pub mtu: u32,
    /// Receiver's Ethernet address.
    pub destination_mac: [u8; 6],
    /// Sender's Ethernet address.
    pub source_mac: [u8; 6],
    /// Type of service, or traffic class.
    pub class: u8,
    /// Time to live, or hop limit.
    pub hop_limit: u8,
    /// IP addresses and UDP ports. The IPv4 identification is always sent as 0.
    pub flow: Flow,
    /// Queue pairs and queue key. [`Link::stream`] is not used.
    pub link: Link,
    /// Partition key.
    pub partition_key: u16,
    /// Stream of all shots; if `None`, [`Shot::stream`] is sent.
    pub stream: Option<u32>,
    /// Shape of all shots, for the record; not needed in packet mode.
    pub geometry: Option<Geometry>,
    /// Sequence number of the next packet; if `None`, the sequence continues.
    pub psn: Option<u32>,
    /// Payload is accepted.
    pub enable: bool,
}

impl Default for Config {
    /// Framing `ud` over IPv4, with all addresses 0.
    fn default() -> Self {
        let network = Network::V4 { src: [0; 4], dst: [0; 4], id: 0 };
        Self {
            framing: Framing::Ud,
            packet_mode: false,
            mtu: shotline_wire::shot::PACKET_BYTES,
            destination_mac: [0; 6],
            source_mac: [0; 6],
            class: 0,
            hop_limit: 64,
            flow: Flow { network, src_port: 0xC000, dst_port: udp::ROCE_PORT },
            link: Link::default(),
            partition_key: bth::DEFAULT_P_KEY,
            stream: None,
            geometry: None,
            psn: None,
            enable: true,
        }
    }
}

impl Config {
    /// Returns `true` if the link uses IPv6.
    pub fn is_ipv6(&self) -> bool {
        matches!(self.flow.network, Network::V6 { .. })
    }

    /// Returns the bytes of a frame before its payload.
    pub fn header_len(&self) -> usize {
        let ip = if self.is_ipv6() { 40 } else { 20 };
        14 + ip + 8 + self.framing.wire_framing().header_len(&[])
    }

    /// Returns the bytes of the frame of a packet with `payload` bytes, without FCS.
    pub fn frame_len(&self, payload: usize) -> usize {
        let sealed = self.framing.wire_framing().has_icrc();
        let padded = if sealed { payload.next_multiple_of(4) + 4 } else { payload };
        self.header_len() + padded
    }

    /// Returns the 64-byte words of this frame, headers, padding and ICRC included. It is also the number of clocks,
    /// because a frame has no gap.
    pub fn frame_words(&self, payload: usize) -> usize {
        self.frame_len(payload).div_ceil(64)
    }

    /// Returns the register writes for this configuration, in order: address on the AXI4-Lite port, and value. The last
    /// one applies them all, as soon as the frames in flight have left.
    pub fn writes(&self) -> Vec<(u16, u32)> {
        let flag = |set: bool, bit: u32| if set { bit } else { 0 };
        let format = self.framing as u32
            | flag(self.is_ipv6(), register::FORMAT_IPV6)
            | flag(self.packet_mode, register::FORMAT_PACKET_MODE)
            | flag(self.stream.is_some(), register::FORMAT_STREAM_OVERRIDE)
            | flag(self.enable, register::FORMAT_ENABLE);
        let (source, destination) = match self.flow.network {
            Network::V4 { src, dst, .. } => ([0, 0, 0, u32::from_be_bytes(src)], [0, 0, 0, u32::from_be_bytes(dst)]),
            Network::V6 { src, dst } => (words(src), words(dst)),
        };
        let [destination_high, destination_low] = mac(self.destination_mac);
        let [source_high, source_low] = mac(self.source_mac);
        let mut writes = vec![
            (register::FORMAT, format),
            (register::MTU, self.mtu),
            (register::DESTINATION_MAC_HIGH, destination_high),
            (register::DESTINATION_MAC_LOW, destination_low),
            (register::SOURCE_MAC_HIGH, source_high),
            (register::SOURCE_MAC_LOW, source_low),
            (register::PORTS, u32::from(self.flow.src_port) << 16 | u32::from(self.flow.dst_port)),
            (register::IP_CLASS_HOP, u32::from(self.class) << 8 | u32::from(self.hop_limit)),
            (register::DESTINATION_QP, self.link.dest_qp),
            (register::SOURCE_QP, self.link.src_qp),
            (register::QUEUE_KEY, self.link.q_key),
            (register::PARTITION, self.partition_key.into()),
            (register::STREAM, self.stream.unwrap_or(0)),
        ];
        writes.extend(register::DESTINATION_IP.into_iter().zip(destination));
        writes.extend(register::SOURCE_IP.into_iter().zip(source));
        if let Some(g) = self.geometry {
            let shape = u32::from(g.channels()) << 16 | u32::from(g.bits()) << 8 | g.packing() as u32;
            writes.extend([
                (register::SHAPE, shape),
                (register::SAMPLES, g.samples()),
                (register::SAMPLE_RATE, g.sample_rate_hz()),
                (register::SAMPLE_BYTES, g.sample_bytes()),
            ]);
        }
        if let Some(psn) = self.psn {
            writes.push((register::PSN, psn & register::PSN_NUMBER));
        }
        writes
            .push((register::CONTROL, register::CONTROL_APPLY | flag(self.psn.is_some(), register::CONTROL_LOAD_PSN)));
        writes
    }
}

/// Returns an Ethernet address as two registers.
fn mac([a, b, c, d, e, f]: [u8; 6]) -> [u32; 2] {
    [u32::from_be_bytes([0, 0, a, b]), u32::from_be_bytes([c, d, e, f])]
}

/// Returns an IPv6 address as four registers.
fn words(address: [u8; 16]) -> [u32; 4] {
    let value = u128::from_be_bytes(address);
    [96, 64, 32, 0].map(|shift| (value >> shift) as u32)
}
