//! Registry of framings.

use super::description::{Completions, Description, Keys, Replay, SetUp};
use arrayvec::ArrayString;
use core::fmt::{self, Display, Write};
use core::str::FromStr;

/// Defines [`Kind`] from a table: the variant of each framing and its module, which has its `DESCRIPTION`.
macro_rules! framings {
    ($($kind:ident = $module:ident;)+) => {
        /// A framing of this crate.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind {
            $(#[doc = concat!("[`super::", stringify!($module), "`].")] $kind,)+
        }

        impl Kind {
            /// All framings.
            pub const ALL: [Self; [$(Self::$kind),+].len()] = [$(Self::$kind),+];

            /// Returns the properties that all streams of the framing share.
            pub const fn description(self) -> &'static Description {
                match self {
                    $(Self::$kind => &super::$module::DESCRIPTION,)+
                }
            }
        }
    };
}

framings! {
    Ud = ud;
    Counted = counted;
    Udp = udp;
    Digitizer = digitizer;
    Vita49 = vita49;
    Spead = spead;
    Hsb = hsb;
}

impl Kind {
    /// Returns the name in configuration, messages and recordings.
    pub const fn name(self) -> &'static str {
        self.description().name
    }

    /// Returns the identifier in set-up messages, or `None` if such senders do not support them.
    pub const fn id(self) -> Option<u8> {
        self.description().set_up.id()
    }

    /// Returns the framing with this identifier in set-up messages.
    pub fn with_id(id: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.id() == Some(id))
    }

    /// Returns the framings that set-up messages can request, in the order of their identifiers.
    pub fn with_set_up() -> impl Iterator<Item = Self> + Clone {
        (0..=u8::MAX).filter_map(Self::with_id)
    }

    /// Returns the identifier in set-up messages.
    ///
    /// # Errors
    /// If such senders do not support set-up messages.
    pub fn for_set_up(self) -> Result<u8, NoSetUp> {
        self.id().ok_or(NoSetUp(self))
    }

    /// Column titles for [`Self::cells`].
    pub const HEADER: [&'static str; 10] = [
        "framing",
        "sender found by",
        "id",
        "ICRC",
        "trailer",
        "port",
        "links per address",
        "keys",
        "RDMA device",
        "replay without set-up",
    ];

    /// Returns the framing's row in the table of capabilities.
    pub fn cells(self) -> [Cell; Self::HEADER.len()] {
        let Description { name, set_up, sealed, trailer, port, shares_address, keys, completions, replay, .. } =
            self.description();
        let found_by = match set_up {
            SetUp::Required { .. } => "set-up",
            SetUp::Optional { .. } => "set-up or configuration",
            SetUp::Learned => "its packets",
        };
        let keys = match keys {
            Keys::None => "none",
            Keys::QueuePair => "queue pair",
            Keys::QueuePairAndQKey => "queue pair, Q_Key",
        };
        let device = match completions {
            Completions::Immediate => "by immediate data",
            Completions::Count => "by counting",
            Completions::Unsupported => "no",
        };
        let replay = match replay {
            Replay::Complete => "yes",
            Replay::AddressPerLink => "an address per link",
            Replay::WithoutContext => "without context",
            Replay::Refused => "no",
        };
        let id = set_up.id().map_or_else(|| cell("none"), cell);
        let (sealed, links) = (if *sealed { "yes" } else { "no" }, if *shares_address { "several" } else { "one" });
        let [name, found_by, sealed, trailer] = [name, found_by, sealed, trailer.name()].map(cell);
        let [links, keys, device, replay] = [links, keys, device, replay].map(cell);
        [name, found_by, id, sealed, trailer, cell(port), links, keys, device, replay]
    }
}

/// Text of a cell in the table of capabilities.
pub type Cell = ArrayString<24>;

/// Formats a value and truncates it to the size of a cell.
fn cell(value: impl Display) -> Cell {
    let mut text = Cell::new();
    let _ = write!(text, "{value}");
    text
}

impl Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Kind {
    type Err = UnknownFraming;

    fn from_str(name: &str) -> Result<Self, UnknownFraming> {
        Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| UnknownFraming::new(name))
    }
}

/// Error of parsing a name that no framing has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownFraming {
    /// First 32 bytes of the name.
    found: ArrayString<32>,
}

impl UnknownFraming {
    fn new(name: &str) -> Self {
        let mut found = ArrayString::new();
        name.chars().take_while(|letter| found.try_push(*letter).is_ok()).for_each(drop);
        Self { found }
    }
}

impl Display for UnknownFraming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected one of the framings {}, found {}", Names(Kind::ALL.into_iter()), self.found)
    }
}

impl core::error::Error for UnknownFraming {}

/// Error of a request for set-up with a framing whose senders do not support it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSetUp(pub Kind);

impl Display for NoSetUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(found) = self;
        write!(
            f,
            "expected one of the framings {}, found {found}, which does not support set-up",
            Names(Kind::with_set_up())
        )
    }
}

impl core::error::Error for NoSetUp {}

/// Displays names separated by commas.
struct Names<I>(I);

impl<I: Iterator<Item = Kind> + Clone> Display for Names<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, kind) in self.0.clone().enumerate() {
            write!(f, "{}{kind}", if at == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Counted, Digitizer, Framing, Ud, Udp};
    use super::*;
    use std::string::ToString;

    #[test]
    fn names_and_identifiers_are_unique() {
        for kind in Kind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
            assert_eq!(kind.id().and_then(Kind::with_id), kind.id().map(|_| kind));
        }
        assert!(Kind::with_set_up().eq([Kind::Ud, Kind::Counted, Kind::Udp]), "in the order of the identifiers");
        assert_eq!((Kind::with_id(3), "UD".parse::<Kind>().is_err(), "".parse::<Kind>().is_err()), (None, true, true));
    }

    #[test]
    fn descriptions_and_implementations_agree() {
        for kind in Kind::ALL {
            let description = kind.description();
            // A device's UD queue pair receives RoCE datagrams, and their keys are its own.
            let is_datagram = description.keys == Keys::QueuePairAndQKey;
            assert_eq!(description.completions != Completions::Unsupported, is_datagram, "{kind}");
            assert_eq!(description.sealed, description.port == crate::udp::ROCE_PORT, "{kind}");
        }
        let framings: [(Kind, &dyn Framing); 4] =
            [(Kind::Ud, &Ud), (Kind::Counted, &Counted), (Kind::Udp, &Udp), (Kind::Digitizer, &Digitizer)];
        for (kind, framing) in framings {
            let description = kind.description();
            assert_eq!((framing.name(), framing.has_icrc()), (description.name, description.sealed));
            assert_eq!(framing.header_len(&[]), description.header_len as usize, "{kind}");
        }
    }

    #[test]
    fn errors_list_the_names_and_the_found_one() {
        let long = "é".repeat(40).parse::<Kind>().unwrap_err().to_string();
        assert!(long.ends_with(&"é".repeat(16)), "{long}");
        let unknown = "morse".parse::<Kind>().unwrap_err().to_string();
        assert_eq!(
            unknown,
            "expected one of the framings ud, counted, udp, digitizer, vita49, spead, hsb, found morse"
        );
        let refused = Kind::Spead.for_set_up().unwrap_err().to_string();
        assert_eq!(
            refused,
            "expected one of the framings ud, counted, udp, found spead, which does not support set-up"
        );
    }

    #[test]
    fn table_cells_are_not_truncated() {
        let row = Kind::Hsb.cells();
        let expected = [
            "hsb",
            "its packets",
            "none",
            "yes",
            "hsb_metadata",
            "4791",
            "one",
            "queue pair",
            "no",
            "an address per link",
        ];
        assert_eq!(row.each_ref().map(|cell| cell.as_str()), expected);
        for cell in Kind::ALL.into_iter().flat_map(Kind::cells) {
            assert!(!cell.is_empty() && !cell.is_full(), "{cell}");
        }
    }
}
