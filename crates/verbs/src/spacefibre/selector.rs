//! Options of links on a command line.

use super::options::LinkOptions;
use crate::api::VerbsError;
use std::fmt;
use std::str::FromStr;

/// Kind of carrier of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

/// Options of the links of an endpoint; parsed from `[udp or shm][,lanes=N][,vcs=N][,ber=P]`. Both ends must have the same
/// lanes and virtual channels.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSelector {
    /// What carries the link.
    pub carrier: CarrierKind,
    /// Number of lanes, 1 to 16.
    pub lanes: u8,
    /// Number of virtual channels, 1 to 32.
    pub channels: u8,
    /// Probability of each bit that this end sends to be inverted, for tests.
    pub bit_error_rate: f64,
}

/// The bit error rate is a number below 1, so it equals itself.
impl Eq for LinkSelector {}

impl Default for LinkSelector {
    fn default() -> Self {
        Self { carrier: CarrierKind::Udp, lanes: 4, channels: 1, bit_error_rate: 0.0 }
    }
}

impl LinkSelector {
    /// Returns the options of a link.
    ///
    /// # Errors
    /// As [`LinkOptions::new`].
    pub fn options(&self) -> Result<LinkOptions, VerbsError> {
        LinkOptions::new(self.lanes, self.channels)
    }
}

impl fmt::Display for LinkSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { carrier, lanes, channels, bit_error_rate } = self;
        write!(f, "{},lanes={lanes},vcs={channels},ber={bit_error_rate:e}", carrier.name())
    }
}

impl FromStr for LinkSelector {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || {
            format!(
                "expected spacefibre[:shm][,lanes=N][,vcs=N][,ber=P] with 1 to 16 lanes, 1 to 32 virtual channels and a bit \
                 error rate below 1, such as spacefibre:shm,lanes=4,ber=1e-6, found spacefibre:{text}"
            )
        };
        let mut selector = Self::default();
        for (index, part) in text.split(',').enumerate() {
            if let Some(carrier) = CarrierKind::ALL.into_iter().find(|kind| index == 0 && kind.name() == part) {
                selector.carrier = carrier;
                continue;
            }
            let (name, value) = part.split_once('=').ok_or_else(expected)?;
            let number = |max| value.parse().ok().filter(|number| (1..=max).contains(number)).ok_or_else(expected);
            match name {
                "lanes" => selector.lanes = number(16)?,
                "vcs" => selector.channels = number(32)?,
                "ber" => {
                    let rate = value.parse().ok().filter(|rate| (0.0..1.0).contains(rate));
                    selector.bit_error_rate = rate.ok_or_else(expected)?;
                }
                _ => return Err(expected()),
            }
        }
        Ok(selector)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_round_trip() {
        let selector = LinkSelector { carrier: CarrierKind::Shm, lanes: 16, channels: 32, bit_error_rate: 2.5e-7 };
        assert_eq!("shm,lanes=16,vcs=32,ber=2.5e-7".parse(), Ok(selector.clone()));
        assert_eq!(selector.to_string().parse(), Ok(selector));
        assert_eq!("ber=0".parse(), Ok(LinkSelector::default()));
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
    }
}
