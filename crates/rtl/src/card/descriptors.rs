//! What software configures and gives to a channel, and why the channel may stop.

/// Bytes of a descriptor.
pub(crate) const DESCRIPTOR: u64 = 16;

/// Why a channel stopped by itself, with the numbers of the register `state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// A descriptor is wrong.
    Descriptor = 1,
    /// The completion of a read has an error.
    Completion = 2,
    /// Completions of a read did not come.
    Timeout = 3,
    /// The bus refused a write.
    Refused = 4,
}

impl Cause {
    /// All causes, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Descriptor, Self::Completion, Self::Timeout, Self::Refused];

    /// Returns the cause with this number, `None` for 0.
    pub(crate) fn of(number: u32) -> Result<Option<Self>, String> {
        match number {
            0 => Ok(None),
            _ => match Self::ALL.into_iter().find(|&cause| cause as u32 == number) {
                Some(cause) => Ok(Some(cause)),
                None => Err(format!("error {number} does not exist")),
            },
        }
    }
}

/// Configuration of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Binary logarithm of the descriptors of the ring, 4 to 15.
    pub ring_log2: u8,
    /// Bytes of a buffer, a multiple of 8.
    pub buffer: u16,
    /// Bytes of a header's buffer, a multiple of 8; 0 without header split.
    pub header: u8,
    /// Maximum distance of two buffers, in units of 8 bytes; it is random.
    pub max_gap: u8,
    /// Descriptors after which a report is written; 0: only after `report_time`.
    pub report_count: u16,
    /// Time after which a report is written, in units of 256 clocks.
    pub report_time: u16,
    /// The bus refuses the reports.
    pub refuse_reports: bool,
    /// Time between interrupts, in units of 256 clocks; `None` for no interrupts.
    pub interrupt: Option<u16>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            ring_log2: 8,
            buffer: 2048,
            header: 0,
            max_gap: 8,
            report_count: 16,
            report_time: 4,
            refuse_reports: false,
            interrupt: None,
        }
    }
}

/// A wrong field of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// Another index.
    Index,
    /// Another channel.
    Channel,
    /// Another generation.
    Generation,
    /// The last word is not zero.
    Zero,
    /// The address is not a multiple of 8.
    Alignment,
    /// The descriptor is valid, but the bus refuses its address.
    Refused,
}

impl Defect {
    /// All defects.
    pub const ALL: [Self; 6] =
        [Self::Index, Self::Channel, Self::Generation, Self::Zero, Self::Alignment, Self::Refused];

    /// Returns the cause for which the channel stops.
    pub fn cause(self) -> Cause {
        match self {
            Self::Index | Self::Channel | Self::Generation | Self::Zero | Self::Alignment => Cause::Descriptor,
            Self::Refused => Cause::Refused,
        }
    }
}

/// Buffer of a descriptor that was given to the card.
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    pub address: u64,
    /// Bytes that may be written: 0 for a wrong descriptor.
    pub length: usize,
}
