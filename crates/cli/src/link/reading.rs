//! A reading of links: their status, and rates since the one before.

use serde::Serialize;
use shotline_verbs::spacefibre::{EndedLinks, LinkRates, LinkStatus, LinksStatus, SpaceFibreCounters};
use std::time::Duration;

/// A reading.
#[derive(Serialize)]
pub struct Reading {
    /// Time since the program began to watch, in seconds.
    pub seconds: f64,
    /// Time since the reading before, in seconds.
    pub interval_s: f64,
    /// Counters of packets, on all links.
    pub packets: SpaceFibreCounters,
    /// Links that have ended.
    pub ended: EndedLinks,
    /// Number of links, of which `links` may have a part.
    pub open: u32,
    /// Links.
    pub links: Vec<LinkReading>,
}

/// A reading of one link.
#[derive(Serialize)]
pub struct LinkReading {
    #[serde(flatten)]
    pub status: LinkStatus,
    /// Rates since the reading before; `None` if the link is new.
    pub rates: Option<LinkRates>,
}

impl Reading {
    /// Creates a reading from the status before and now.
    pub fn new(since_start: Duration, interval: Duration, before: &LinksStatus, now: &LinksStatus) -> Self {
        let interval_s = interval.as_secs_f64();
        let link = |status: &LinkStatus| {
            let rates = before.links.iter().find_map(|before| status.rates_since(before, interval_s));
            LinkReading { status: status.clone(), rates }
        };
        Self {
            seconds: since_start.as_secs_f64(),
            interval_s,
            packets: now.packets,
            ended: now.ended,
            open: now.open,
            links: now.links.iter().map(link).collect(),
        }
    }
}
