//! Options of links on a command line.

use super::channels::Channels;
use super::options::LinkOptions;
use serde::{Deserialize, Serialize};
use shotline_spacefibre::link::MAX_VCS;
use std::fmt;
use std::str::FromStr;

/// Kind of carrier of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CarrierKind {
    /// UDP datagrams.
    #[default]
    Udp,
    /// Memory that two processes of this machine share.
    Shm,
}

impl CarrierKind {
    /// All kinds.
    pub const ALL: [Self; 2] = [Self::Udp, Self::Shm];

    /// Returns the name on a command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Shm => "shm",
        }
    }
}

/// Options that both ends of a link must have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkParameters {
    /// What carries the link.
    pub carrier: CarrierKind,
    /// Number of lanes.
    pub lanes: u8,
    /// Number of virtual channels.
    pub channels: u8,
}

impl fmt::Display for LinkParameters {
    /// Writes them as they are given on a command line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let carrier = if self.carrier == CarrierKind::Shm { "shm," } else { "" };
        write!(f, "spacefibre:{carrier}lanes={},vcs={}", self.lanes, self.channels)
    }
}

/// Form of the options, after the name of the provider.
pub(super) const FORM: &str = "spacefibre[:shm][,lanes=N][,vcs=N][,vc=SHARE[/PRIORITY[/SLOTS]]...][,ber=P]";

/// Options of the links of an endpoint; parsed from
/// `[udp or shm][,lanes=N][,vcs=N][,vc=SHARE[/PRIORITY[/SLOTS]]...][,ber=P]`. Both ends must have the same lanes and the same
/// number of virtual channels: `vcs=N`, or one `vc=` for each.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSelector {
    /// What carries the link.
    pub carrier: CarrierKind,
    /// Number of lanes, 1 to 16.
    pub lanes: u8,
    /// Virtual channels.
    pub channels: Channels,
    /// Probability of each bit that this end sends to be inverted, for tests.
    pub bit_error_rate: f64,
}

/// The bit error rate is a number below 1, so it equals itself.
impl Eq for LinkSelector {}

impl Default for LinkSelector {
    fn default() -> Self {
        Self { carrier: CarrierKind::Udp, lanes: 4, channels: Channels::Equal(1), bit_error_rate: 0.0 }
    }
}

impl LinkSelector {
    /// Returns the options that both ends must have in common.
    pub fn parameters(&self) -> LinkParameters {
        LinkParameters { carrier: self.carrier, lanes: self.lanes, channels: self.channels.qos().len() as u8 }
    }

    /// Returns the options of a link.
    pub fn options(&self) -> LinkOptions {
        LinkOptions::with_qos(self.lanes, &self.channels.qos())
    }
}

impl fmt::Display for LinkSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { carrier, lanes, channels, bit_error_rate } = self;
        write!(f, "{},lanes={lanes},{channels},ber={bit_error_rate:e}", carrier.name())
    }
}

impl FromStr for LinkSelector {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || {
            format!(
                "expected {FORM} with 1 to 16 lanes, 1 to 32 virtual channels (equal ones by vcs, or one vc for each) and a \
                 bit error rate below 1, such as spacefibre:shm,lanes=4,ber=1e-6, found spacefibre:{text}"
            )
        };
        let in_selector = |error: String| format!("{error}, in spacefibre:{text}");
        let mut selector = Self::default();
        let mut is_counted = false;
        for (index, part) in text.split(',').enumerate() {
            if let Some(carrier) = CarrierKind::ALL.into_iter().find(|kind| index == 0 && kind.name() == part) {
                selector.carrier = carrier;
                continue;
            }
            let (name, value) = part.split_once('=').ok_or_else(expected)?;
            let number = |max| value.parse().ok().filter(|number| (1..=max).contains(number)).ok_or_else(expected);
            match name {
                "lanes" => selector.lanes = number(16)?,
                "vcs" => (selector.channels, is_counted) = (Channels::Equal(number(MAX_VCS as u8)?), true),
                "vc" => {
                    let channel = value.parse().map_err(in_selector)?;
                    selector.channels.push(channel).map_err(in_selector)?;
                }
                "ber" => {
                    let rate = value.parse().ok().filter(|rate| (0.0..1.0).contains(rate));
                    selector.bit_error_rate = rate.ok_or_else(expected)?;
                }
                _ => return Err(expected()),
            }
        }
        // Only one of them can be meant.
        let is_listed = text.split(',').any(|part| part.starts_with("vc="));
        if is_counted && is_listed { Err(expected()) } else { Ok(selector) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_round_trip() {
        let selector = LinkSelector {
            carrier: CarrierKind::Shm,
            lanes: 16,
            channels: Channels::Equal(32),
            bit_error_rate: 2.5e-7,
        };
        assert_eq!("shm,lanes=16,vcs=32,ber=2.5e-7".parse(), Ok(selector.clone()));
        assert_eq!(selector.to_string().parse(), Ok(selector));
        assert_eq!("ber=0".parse(), Ok(LinkSelector::default()));
        let text = "udp,lanes=4,vc=50%/0,vc=30%/1,vc=20%/2/0-31+48-63,ber=0e0";
        let selector: LinkSelector = text.parse().unwrap();
        assert_eq!(selector.to_string(), text);
        let options = selector.options();
        assert!(options.channels.len() == 3 && options.has_time_slots());
        assert!(!LinkSelector::default().options().has_time_slots());
    }

    #[test]
    fn invalid_options_are_refused_with_the_form() {
        for text in [
            "",
            "lanes",
            "lanes=0",
            "lanes=17",
            "vcs=33",
            "vcs=x",
            "ber=1",
            "ber=-1",
            "ber=nan",
            "lanes=4,",
            "a=1",
            "lanes=4,shm",
            "tcp",
        ] {
            let error = text.parse::<LinkSelector>().unwrap_err();
            assert!(error.contains("1 to 16 lanes") && error.contains(text), "{text}: {error}");
        }
        for (text, words) in [
            ("vc=50", "SHARE[/PRIORITY[/SLOTS]]"),
            ("vc=60%,vc=60%", "up to 100% in total, found 120%"),
            ("vcs=2,vc=50%", "by vcs, or one vc for each"),
            ("vc=50%,vcs=2", "by vcs, or one vc for each"),
        ] {
            let error = text.parse::<LinkSelector>().unwrap_err();
            assert!(error.contains(words) && error.contains(text), "{text}: {error}");
        }
    }
}
