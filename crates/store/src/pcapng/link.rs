//! A link of a capture that is built from shots.

use super::packets::{AddressPair, Packets, framing};
use super::write::{Interface, Statistics};
use crate::info::{LinkInfo, RunInfo};
use crate::shot::StreamRunCounters;
use shotline_wire::framing::Link;
use shotline_wire::shot::DropCause;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Documentation addresses (RFC 5737, RFC 3849) in place of unknown ones.
const SENDER: (Ipv4Addr, Ipv6Addr) = (Ipv4Addr::new(192, 0, 2, 1), Ipv6Addr::new(0x2001, 0xDB8, 0, 0, 0, 0, 0, 1));
const RECEIVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// Source port of link 0.
const SOURCE_PORT: u16 = 49152;
/// Queue pair of link 0.
const QUEUE_PAIR: u32 = 0x100;
/// Queue key of all links. The real one is not recorded.
const Q_KEY: u32 = 0x1111_1111;
/// TAI - UTC in seconds since 2017, for recordings without this information.
const TAI_MINUS_UTC_S: i64 = 37;

/// Known endpoints of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Endpoints {
    /// Address of the sender.
    pub source: Option<SocketAddr>,
    /// Address of the receiver.
    pub destination: Option<SocketAddr>,
    /// Queue pair number of the receiver.
    pub dest_qp: Option<u32>,
}

/// Converts a TAI time to UTC; 0 (unknown) stays 0.
pub(super) fn to_utc(run: &RunInfo, tai_ns: u64) -> u64 {
    let seconds = Some(run.clock.tai_minus_utc_s).filter(|seconds| *seconds != 0).unwrap_or(TAI_MINUS_UTC_S);
    if tai_ns == 0 { 0 } else { tai_ns.saturating_add_signed(-seconds * 1_000_000_000) }
}

/// Returns the comment of a capture. `how` states which parts of its headers are real.
pub(super) fn comment(run: &RunInfo, how: &str) -> String {
    format!(
        "Recorded by {} shot by shot (run {}, {}). Ethernet, IP, UDP and transport headers are rebuilt: {how}. The time \
         of all packets of a shot is that of its first.",
        run.software, run.run_id, run.instrument
    )
}

/// A link of a capture that is being written.
#[derive(Debug)]
pub(super) struct LinkCapture {
    pub(super) interface: Interface,
    pub(super) packets: Packets,
    /// Latest time of a shot, also used for shots without a time.
    pub(super) time_ns: u64,
    start_ns: u64,
    placed: u64,
    drops: [u64; DropCause::ALL.len()],
}

impl LinkCapture {
    /// Creates link `index` of a run whose first shot is number `first`. `stamp` is the number and timestamp of any
    /// shot.
    ///
    /// Returns `None` if the framing is unknown.
    pub(super) fn new(
        (run, link, index): (&RunInfo, &LinkInfo, usize),
        first: u64,
        stamp: (u64, u64),
        endpoints: Endpoints,
    ) -> Option<Self> {
        let kind = run.framing_kind()?;
        let port = kind.description().port_of(index as u16);
        let destination = endpoints.destination.unwrap_or((RECEIVER, port).into());
        let sender: IpAddr = if destination.is_ipv4() { SENDER.0.into() } else { SENDER.1.into() };
        let known = endpoints.source.filter(|source| source.is_ipv4() == destination.is_ipv4());
        let source = known.unwrap_or((sender, SOURCE_PORT + index as u16).into());
        let dest_qp = endpoints.dest_qp.unwrap_or(QUEUE_PAIR + index as u32);
        let keys = Link { dest_qp, src_qp: dest_qp, q_key: Q_KEY, stream: link.stream };
        let framing = framing(kind, &link.geometry, first, stamp);
        let pair = format!(", queue pair {dest_qp:#x}, queue key {Q_KEY:#x}");
        let pair = if framing.has_icrc() { pair.as_str() } else { "" };
        Some(Self {
            interface: Interface {
                name: format!("link{index}"),
                description: format!("{}: stream {}, framing {}{pair}", link.name, link.stream, run.framing),
                filter: format!("udp and src port {} and dst port {}", source.port(), destination.port()),
                hardware: "none: headers rebuilt from shots".into(),
            },
            packets: Packets::new(framing, keys, AddressPair { source, destination }, link.geometry, first),
            time_ns: 0,
            start_ns: 0,
            placed: 0,
            drops: [0; DropCause::ALL.len()],
        })
    }

    /// Adds a shot to the statistics.
    pub(super) fn count_shot(&mut self, utc_ns: u64, placed: u32, drops: impl Iterator<Item = (DropCause, u64)>) {
        if utc_ns > 0 {
            self.time_ns = utc_ns;
        }
        if self.start_ns == 0 {
            self.start_ns = self.time_ns;
        }
        self.placed += u64::from(placed);
        for (cause, count) in drops {
            self.drops[cause as usize] += count;
        }
    }

    /// Returns the statistics of the link, from its counters, or from the shots if the run has not ended. `unassigned`
    /// are counters of packets that belong to no link.
    pub(super) fn statistics(&self, counters: Option<&StreamRunCounters>, unassigned: &[(String, u64)]) -> Statistics {
        let drop =
            |cause: DropCause| counters.map_or(self.drops[cause as usize], |counters| counters.packet_drops.get(cause));
        let missing = counters.and_then(|counters| counters.more.iter().find(|(name, _)| name == "missing_packets"));
        let missing = missing.map_or(self.drops[DropCause::WireGap as usize], |(_, count)| *count);
        let arrived = DropCause::ALL.into_iter().filter(|cause| cause.has_arrived());
        let named: Vec<_> = arrived.map(|cause| (cause, drop(cause))).filter(|(_, count)| *count > 0).collect();
        let dropped_after_arrival: u64 = named.iter().map(|(_, count)| count).sum();
        let mut comment = format!("packets that never arrived: {missing}");
        for (cause, count) in named {
            comment += &format!("; arrived and dropped, {cause}: {count}");
        }
        for cause in DropCause::ALL {
            let name = format!("packets_{cause}");
            if let Some((_, count)) = unassigned.iter().find(|(other, count)| *other == name && *count > 0) {
                comment += &format!("; arrived for no link, {cause}: {count}");
            }
        }
        Statistics {
            start_ns: self.start_ns,
            end_ns: self.time_ns,
            received: counters.map_or(self.placed + dropped_after_arrival, |counters| counters.packets_in),
            dropped: missing,
            accepted: self.placed,
            os_dropped: drop(DropCause::Overrun),
            comment,
        }
    }
}
