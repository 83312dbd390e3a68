//! What the page shows of links.

use super::reading::{LinkReading, Reading};
use crate::serve::metrics::numbers;
use shotline_dashboard::status::{Family, FamilyKind, Phase, Rate, Sample, Status, Table};
use shotline_verbs::spacefibre::{ChannelRates, ChannelStatus, LinkStatus, LinksStatus};

/// Bytes of a word.
const WORD_BYTES: u64 = 4;
/// Label of the sum over the links that have ended.
const ENDED: &str = "ended";

/// Returns the state of links at a reading. `status` is that of the reading.
pub(super) fn status(reading: &Reading, status: &LinksStatus, progress: Option<f64>) -> Status {
    let any_up = status.links.iter().any(|link| link.is_up);
    let mut families = families(status);
    families.push(used(reading));
    families.retain(|family| !family.samples.is_empty());
    Status {
        phase: if any_up { Phase::Running } else { Phase::Waiting },
        progress,
        families,
        tables: vec![links(reading), channels(reading)],
        ..Status::default()
    }
}

/// Returns the metrics of links.
pub fn families(status: &LinksStatus) -> Vec<Family> {
    let LinksStatus { packets, ended, open, links } = status;
    let each_link = |value: fn(&LinkStatus) -> f64| links.iter().map(move |link| of_link(link, value(link))).collect();
    let words = |value: fn(&ChannelStatus) -> u64| each_channel(links, |channel| (value(channel) * WORD_BYTES) as f64);
    let gauge = |name, help| Family::new(name, help, FamilyKind::Gauge);
    let counter = |name, help| Family::new(name, help, FamilyKind::Counter);
    let rate = |label| Some(Rate { label, unit: "Gbit/s", factor: 8e-9 });
    let bytes = |samples, family| Family { unit: Some("bytes"), samples, ..family };
    let sent = "Bytes of data words that were sent, without repetitions";
    let received = "Bytes of data words that were accepted";
    let credit = "Space that the far end has, for data of a virtual channel";
    let granted = "Data of a virtual channel that the far end may still send";
    let input = "Capacity of the input buffer of a virtual channel";
    let bandwidth = "Bandwidth credit of a virtual channel; below 0 it has used more than its share";
    let mut families = vec![
        Family {
            rate: rate("Links out"),
            ..bytes(words(|channel| channel.counters.words_out), counter("link_sent", sent))
        },
        Family {
            rate: rate("Links in"),
            ..bytes(words(|channel| channel.counters.words_in), counter("link_received", received))
        },
        bytes(words(|channel| channel.credit.into()), gauge("link_credit", credit)),
        bytes(words(|channel| channel.granted.into()), gauge("link_granted", granted)),
        bytes(words(|channel| channel.input_words.into()), gauge("link_input_buffer", input)),
        bytes(
            each_channel(links, |channel| f64::from(channel.bandwidth_credit) * WORD_BYTES as f64),
            gauge("link_bandwidth_credit", bandwidth),
        ),
        Family {
            unit: Some("ratio"),
            samples: each_channel(links, |channel| channel.share),
            ..gauge("link_share", "Part of the link that is reserved for a virtual channel")
        },
        Family {
            samples: each_link(|link| u8::from(link.is_up).into()),
            ..gauge("link_up", "1 if both ends of the link are initialised")
        },
        Family {
            samples: each_link(|link| link.unacknowledged.into()),
            ..gauge("link_unacknowledged", "Frames that were sent and are not acknowledged")
        },
        Family { samples: events(status), ..counter("link_events", "Increments of the counters of a link's end") },
        Family::gauge("links", "Links at present", (*open).into()),
        Family::counter("links_ended", "Links that have ended", ended.count),
        Family::counter("packets_sent", "Packets that were sent", packets.packets_out),
        Family::counter("packets_received", "Packets that arrived", packets.packets_in),
        Family::counter("packets_discarded", "Packets that a link did not take or has cut", packets.packets_discarded),
        Family::counter("broadcasts_received", "Broadcast messages that arrived", packets.broadcasts_in),
    ];
    let drops = numbers(&packets.drops).into_iter();
    families.push(Family {
        samples: drops.map(|(cause, count)| Sample::count(vec![("cause", cause)], count)).collect(),
        ..counter("rdma_packets_dropped", "Packets that no queue pair has accepted, by cause")
    });
    families
}

fn of_link(link: &LinkStatus, value: f64) -> Sample {
    Sample { labels: vec![("link", link.number.to_string())], value }
}

fn of_channel(link: &LinkStatus, vc: usize, value: f64) -> Sample {
    Sample { labels: vec![("link", link.number.to_string()), ("vc", vc.to_string())], value }
}

fn each_channel(links: &[LinkStatus], value: impl Fn(&ChannelStatus) -> f64) -> Vec<Sample> {
    let mut samples = Vec::new();
    for link in links {
        let channels = link.channels.iter().enumerate();
        samples.extend(channels.map(|(vc, channel)| of_channel(link, vc, value(channel))));
    }
    samples
}

/// Returns all counters of each link, and the sums of those that have ended.
fn events(status: &LinksStatus) -> Vec<Sample> {
    let ended = (ENDED.to_owned(), numbers(&status.ended.counters), numbers(&status.ended.datagrams));
    let present = status.links.iter().map(|link| {
        let LinkStatus { number, counters, datagrams, .. } = link;
        (number.to_string(), numbers(counters), numbers(datagrams))
    });
    let mut samples = Vec::new();
    for (link, counters, datagrams) in present.chain([ended]) {
        let prefixed = |(name, count): (String, u64)| {
            (if name.starts_with("datagrams") { name } else { format!("datagrams_{name}") }, count)
        };
        for (event, count) in counters.into_iter().chain(datagrams.into_iter().map(prefixed)) {
            samples.push(Sample::count(vec![("link", link.clone()), ("event", event)], count));
        }
    }
    samples
}

/// Returns which part of the sent data each channel had since the reading before.
fn used(reading: &Reading) -> Family {
    let of = |link: &LinkReading| {
        let rates = link.rates.iter().flat_map(|rates| &rates.channels).enumerate();
        rates.map(|(vc, rates)| of_channel(&link.status, vc, rates.used)).collect::<Vec<_>>()
    };
    let help = "Part of the data words sent on the link since the last reading that a virtual channel had";
    Family {
        unit: Some("ratio"),
        samples: reading.links.iter().flat_map(of).collect(),
        ..Family::new("link_used", help, FamilyKind::Gauge)
    }
}

fn links(reading: &Reading) -> Table {
    let columns = [
        "link",
        "far end",
        "lanes",
        "state",
        "out Gbit/s",
        "in Gbit/s",
        "not acknowledged",
        "retries",
        "sent again",
        "dropped",
        "CRC-16",
        "CRC-8",
        "datagrams lost",
        "resets",
    ];
    let rows = reading.links.iter().map(|link| {
        let (status, counters) = (&link.status, &link.status.counters);
        let rates = link.rates.as_ref().map_or([0.0; 2], |rates| [rates.out_gbps, rates.in_gbps]);
        let lanes = match status.far_end_lanes {
            Some(other) => format!("{}, far end {other}", status.lanes),
            None => status.lanes.to_string(),
        };
        let scrambled = if status.scrambled { "" } else { ", not scrambled" };
        let mut row = vec![
            status.number.to_string(),
            status.far_end.map_or("this machine".into(), |address| address.to_string()),
            lanes,
            format!("{}{scrambled}", if status.is_up { "up" } else { "not up" }),
        ];
        row.extend(rates.map(|rate| format!("{rate:.3}")));
        let counts = [
            u64::from(status.unacknowledged),
            counters.retries,
            counters.items_resent,
            counters.frames_dropped,
            counters.crc16_errors,
            counters.crc8_errors,
            status.datagrams.lost,
            counters.link_resets,
        ];
        row.extend(counts.map(|count| count.to_string()));
        row
    });
    Table { title: "Links".into(), columns: columns.map(Into::into).to_vec(), rows: rows.collect() }
}

fn channels(reading: &Reading) -> Table {
    let columns =
        ["link", "vc", "priority", "reserved", "time-slots", "used", "credit", "bandwidth", "out Gbit/s", "in Gbit/s"];
    let mut rows = Vec::new();
    for link in &reading.links {
        for (vc, channel) in link.status.channels.iter().enumerate() {
            let rates = link.rates.as_ref().and_then(|rates| rates.channels.get(vc).copied());
            let ChannelRates { out_gbps, in_gbps, used } =
                rates.unwrap_or(ChannelRates { out_gbps: 0.0, in_gbps: 0.0, used: 0.0 });
            let bandwidth = match (channel.over_use, channel.under_use) {
                (true, _) => "over its share",
                (_, true) => "under its share",
                _ => "",
            };
            let slots = channel.slots.as_ref().map_or("none".into(), ToString::to_string);
            rows.push(vec![
                link.status.number.to_string(),
                vc.to_string(),
                channel.priority.to_string(),
                format!("{:.1} %", 100.0 * channel.share),
                slots,
                format!("{:.1} %", 100.0 * used),
                format!("{} of {} words", channel.credit, channel.input_words),
                bandwidth.into(),
                format!("{out_gbps:.3}"),
                format!("{in_gbps:.3}"),
            ]);
        }
    }
    Table { title: "Virtual channels".into(), columns: columns.map(Into::into).to_vec(), rows }
}
