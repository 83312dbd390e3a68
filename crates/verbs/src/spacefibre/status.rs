//! Status of links: what reports show, and what a target sends to those that watch its links.

use super::counters::SpaceFibreCounters;
use super::time_slots::TimeSlots;
use serde::{Deserialize, Serialize};
use shotline_spacefibre::frames::{FrameCounters, FrameLink};
use shotline_spacefibre::link::{ChannelCounters, LinkCounters, MAX_VCS};
use shotline_spacefibre::qos::Share;
use std::net::SocketAddr;

/// Bits of a data word.
const WORD_BITS: f64 = 32.0;

/// Links of an endpoint, and the counters of its packets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinksStatus {
    /// Counters of packets, on all links since the endpoint was created.
    pub packets: SpaceFibreCounters,
    /// Links that have ended.
    pub ended: EndedLinks,
    /// Number of links at present, of which `links` may have a part.
    pub open: u32,
    /// Links.
    pub links: Vec<LinkStatus>,
}

impl LinksStatus {
    /// Adds those of another endpoint.
    pub fn add(&mut self, other: Self) {
        self.packets.add(&other.packets);
        self.ended.add(&other.ended);
        self.open += other.open;
        self.links.extend(other.links);
    }

    /// Returns the counters of all links, of those that have ended and of those in `links`.
    pub fn totals(&self) -> (LinkCounters, FrameCounters) {
        let mut sum = self.ended;
        for link in &self.links {
            sum.add_link(&link.counters, &link.datagrams);
        }
        (sum.counters, sum.datagrams)
    }

    /// Returns a line about what was repaired or lost, if anything was.
    pub fn repairs(&self) -> Option<String> {
        let (link, datagrams) = self.totals();
        let counts = [
            (link.retries, "retries"),
            (link.items_resent, "frames and control words sent again"),
            (link.frames_dropped, "frames dropped"),
            (link.crc16_errors, "CRC-16 errors"),
            (link.crc8_errors, "CRC-8 errors"),
            (datagrams.lost, "datagrams lost"),
            (datagrams.malformed + datagrams.malformed_records, "malformed datagrams"),
            (link.link_resets, "link resets"),
            (self.packets.packets_discarded, "packets discarded"),
        ];
        let words: Vec<_> =
            counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
        (!words.is_empty()).then(|| words.join(", "))
    }
}

/// Links of an endpoint that have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedLinks {
    /// Number of links.
    pub count: u64,
    /// Sum of their counters.
    pub counters: LinkCounters,
    /// Sum of the counters of their datagrams.
    pub datagrams: FrameCounters,
}

impl EndedLinks {
    /// Adds a link that has ended.
    pub(super) fn add_link(&mut self, counters: &LinkCounters, datagrams: &FrameCounters) {
        self.count += 1;
        self.counters.add(counters);
        self.datagrams.add(datagrams);
    }

    fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.counters.add(&other.counters);
        self.datagrams.add(&other.datagrams);
    }
}

/// A link of an endpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkStatus {
    /// Number that identifies it among the present links of its endpoint.
    pub number: u64,
    /// Address of the far end; `None` if it is a process of this machine.
    pub far_end: Option<SocketAddr>,
    /// Number of lanes.
    pub lanes: u8,
    /// Number of lanes of the far end if it differs: the link cannot come up.
    pub far_end_lanes: Option<u8>,
    /// Both ends are initialised.
    pub is_up: bool,
    /// Data frames that are sent are scrambled.
    pub scrambled: bool,
    /// Data frames, FCTs and broadcast frames that are sent and not acknowledged.
    pub unacknowledged: u32,
    /// Counters of the data link layer.
    pub counters: LinkCounters,
    /// Counters of the carrier's datagrams.
    pub datagrams: FrameCounters,
    /// Virtual channels, at most 32.
    pub channels: Vec<ChannelStatus>,
}

/// A virtual channel of a link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChannelStatus {
    /// Priority level from 0, the highest, to 15.
    pub priority: u8,
    /// Reserved share of the link, from 0 to 1.
    pub share: f64,
    /// Time-slots; `None` if it may not send in any.
    pub slots: Option<TimeSlots>,
    /// Words that the far end has space for.
    pub credit: u32,
    /// Words that the far end may still send.
    pub granted: u32,
    /// Capacity of the input buffer of this end, in words: the maximum of `granted`.
    pub input_words: u32,
    /// Bandwidth credit, in words.
    pub bandwidth_credit: i32,
    /// It sends more than its share.
    pub over_use: bool,
    /// It sends less than its share.
    pub under_use: bool,
    /// Counters.
    #[serde(flatten)]
    pub counters: ChannelCounters,
}

impl LinkStatus {
    /// Returns the status of a link. An address of the far end with port 0 stands for none.
    pub fn of(number: u64, far_end: SocketAddr, link: &FrameLink) -> Self {
        let channel = |vc| {
            let status = link.channel(vc)?;
            let share = f64::from(status.qos.share.parts()) / f64::from(Share::WHOLE.parts());
            Some(ChannelStatus {
                priority: status.qos.priority,
                share,
                slots: TimeSlots::new(status.qos.slots),
                credit: status.credit,
                granted: status.granted,
                input_words: status.input_words,
                bandwidth_credit: status.bandwidth.credit,
                over_use: status.bandwidth.over_use,
                under_use: status.bandwidth.under_use,
                counters: status.counters,
            })
        };
        Self {
            number,
            far_end: Some(far_end).filter(|address| address.port() != 0),
            lanes: link.lanes(),
            far_end_lanes: link.other_lanes(),
            is_up: link.is_up(),
            scrambled: link.is_scrambled(),
            unacknowledged: link.unacknowledged() as u32,
            counters: *link.link_counters(),
            datagrams: *link.counters(),
            channels: (0..MAX_VCS as u8).map_while(channel).collect(),
        }
    }

    /// Returns the reason why the link cannot come up, and what to do, if the far end has another number of lanes.
    pub fn mismatch(&self) -> Option<String> {
        let found = self.far_end_lanes.filter(|_| !self.is_up)?;
        let lanes = self.lanes;
        Some(format!("expected {lanes} lanes, found {found} at the far end: use the same lanes=N at both ends"))
    }

    /// Returns the rates since an earlier status, `seconds` ago; `None` if that was of another link.
    pub fn rates_since(&self, before: &Self, seconds: f64) -> Option<LinkRates> {
        let is_same = self.number == before.number
            && self.far_end == before.far_end
            && self.channels.len() == before.channels.len()
            && self.datagrams.datagrams_out >= before.datagrams.datagrams_out;
        let difference = |now: &ChannelCounters, then: &ChannelCounters| {
            Some([now.words_out.checked_sub(then.words_out)?, now.words_in.checked_sub(then.words_in)?])
        };
        let words = |(now, then): (&ChannelStatus, &ChannelStatus)| difference(&now.counters, &then.counters);
        let words: Vec<_> = self.channels.iter().zip(&before.channels).map(words).collect::<Option<_>>()?;
        if !is_same || seconds <= 0.0 {
            return None;
        }
        let gbps = |words: u64| words as f64 * WORD_BITS * 1e-9 / seconds;
        let sum = |direction: usize| words.iter().map(|words| words[direction]).fold(0, u64::saturating_add);
        let [all_out, all_in] = [0, 1].map(sum);
        let channel = |[words_out, words_in]: &[u64; 2]| ChannelRates {
            out_gbps: gbps(*words_out),
            in_gbps: gbps(*words_in),
            used: if all_out > 0 { *words_out as f64 / all_out as f64 } else { 0.0 },
        };
        let channels = words.iter().map(channel).collect();
        Some(LinkRates { out_gbps: gbps(all_out), in_gbps: gbps(all_in), channels })
    }
}

/// Rates of a link over an interval, in Gbit/s of data words, without repetitions and frames' own words.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkRates {
    /// Sent.
    pub out_gbps: f64,
    /// Received.
    pub in_gbps: f64,
    /// Rates of each virtual channel.
    pub channels: Vec<ChannelRates>,
}

/// Rates of a virtual channel over an interval, in Gbit/s of data words.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ChannelRates {
    /// Sent.
    pub out_gbps: f64,
    /// Received.
    pub in_gbps: f64,
    /// Share of the data words that the link has sent, from 0 to 1.
    pub used: f64,
}
