//! Trigger command and its acknowledgement.

use crate::{ParseError, bytes};

const ACKNOWLEDGE: u8 = 1 << 0;
const COMMAND_ONLY: u8 = 1 << 1;
const TAKE_OVER: u8 = 1 << 2;
const REPLY: u8 = 1 << 7;

/// Command to acquire one shot now: a 64-byte datagram to the set-up port, acknowledged only on request.
///
/// | byte | field | type |
/// |---|---|---|
/// | 0 | magic `SHTR` | 4 bytes |
/// | 4 | version, 1 | u8 |
/// | 5 | flags: bit 0 acknowledge, bit 1 command only, bit 2 take over; bit 7 is set in an acknowledgement | u8 |
/// | 6 | zeros | 2 bytes |
/// | 8 | sequence number | u32 |
/// | 12 | token | u32 |
/// | 16 | stamp | u64 |
/// | 24 | zeros | 40 bytes |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Trigger {
    /// Sequence number, incremented with each trigger and wrapping. A repeated number is ignored; a skipped number
    /// counts as a missed trigger in the probe's report.
    pub sequence: u32,
    /// Token of the sender, as in set-up messages: only triggers of the probe's owner are executed. 0 for a source that
    /// does not use set-up messages, such as a trigger box.
    pub token: u32,
    /// Send time in TAI nanoseconds of the sender's clock; 0 if unknown.
    pub stamp: u64,
    /// `true` to request an [`Acknowledgement`], which the probe sends at once, before the shot.
    pub acknowledge: bool,
    /// `true` to test the command path without a shot: the probe checks the command, acknowledges it if requested, and
    /// changes no state. The sequence number is not used up.
    pub command_only: bool,
    /// `true` to execute the trigger even if another receiver owns the probe.
    pub take_over: bool,
}

/// Reply of a probe to a [`Trigger`] that requests one. It is as long as the trigger, so a probe cannot be used to
/// amplify traffic.
///
/// | byte | field | type |
/// |---|---|---|
/// | 0 | magic `SHTR` | 4 bytes |
/// | 4 | version, 1 | u8 |
/// | 5 | the trigger's flags, and bit 7 | u8 |
/// | 6 | verdict | u8 |
/// | 7 | zeros | 1 byte |
/// | 8 | the trigger's sequence number | u32 |
/// | 12 | the trigger's token | u32 |
/// | 16 | the trigger's stamp | u64 |
/// | 24 | number of the shot that it starts, 0 unless accepted | u64 |
/// | 32 | zeros | 32 bytes |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Acknowledgement {
    /// The trigger that is acknowledged.
    pub trigger: Trigger,
    /// Outcome of the trigger.
    pub verdict: Verdict,
}

/// Outcome of a trigger, or for a command-only trigger the outcome that it would have had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// 1: the trigger starts a shot.
    Accepted {
        /// Number of the shot.
        shot: u64,
    },
    /// 2: missed, because the previous shot is still in progress.
    Busy,
    /// 3: no run that accepts trigger commands is active.
    NotRunning,
    /// 4: the sequence number is repeated.
    Repeated,
    /// 5: another receiver owns the probe.
    Owned,
    /// Any other number: a verdict that a later version defines.
    Other(
        /// The verdict number.
        u8,
    ),
}

impl Verdict {
    /// Returns the number of the verdict, never 0.
    pub fn code(self) -> u8 {
        match self {
            Self::Accepted { .. } => 1,
            Self::Busy => 2,
            Self::NotRunning => 3,
            Self::Repeated => 4,
            Self::Owned => 5,
            // 0 is the value in a trigger that was echoed unchanged.
            Self::Other(code) => code.max(1),
        }
    }

    /// Returns the name of the verdict, for counters and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Accepted { .. } => "accepted",
            Self::Busy => "busy",
            Self::NotRunning => "not_running",
            Self::Repeated => "repeated",
            Self::Owned => "owned",
            Self::Other(_) => "other",
        }
    }
}

impl Trigger {
    /// Length of the datagram in either direction, in bytes.
    pub const LEN: usize = 64;
    /// First four bytes of the datagram.
    pub const MAGIC: [u8; 4] = *b"SHTR";
    /// Version that this crate writes and accepts.
    pub const VERSION: u8 = 1;

    /// Returns a trigger with this sequence number that does not request an acknowledgement.
    pub fn new(sequence: u32) -> Self {
        Self { sequence, ..Self::default() }
    }

    /// Parses a trigger. Reserved bytes are ignored.
    ///
    /// # Errors
    /// If the datagram is not [`Self::LEN`] bytes, its version is unknown, or it is an acknowledgement.
    pub fn parse(datagram: &[u8]) -> Result<Self, ParseError> {
        let (trigger, flags, _) = parse(datagram)?;
        match flags & REPLY {
            0 => Ok(trigger),
            _ => Err(ParseError::Value { what: "a trigger's reply bit", expected: 0, found: 1 }),
        }
    }

    /// Encodes the datagram.
    pub fn emit(&self) -> [u8; Self::LEN] {
        self.head(0, 0).padded()
    }

    fn head(&self, reply: u8, verdict: u8) -> bytes::Header<{ Self::LEN }> {
        let flags = [(self.acknowledge, ACKNOWLEDGE), (self.command_only, COMMAND_ONLY), (self.take_over, TAKE_OVER)];
        let flags = flags.into_iter().filter(|(set, _)| *set).fold(0, |all, (_, bit)| all | bit);
        bytes::Header::new()
            .put(&Self::MAGIC)
            .u8(Self::VERSION)
            .u8(flags | reply)
            .u8(verdict)
            .zeros(1)
            .u32(self.sequence)
            .u32(self.token)
            .u64(self.stamp)
    }
}

impl Acknowledgement {
    /// Parses an acknowledgement. Reserved bytes are ignored.
    ///
    /// # Errors
    /// If the datagram is not [`Trigger::LEN`] bytes, its version is unknown, or it is a trigger.
    pub fn parse(datagram: &[u8]) -> Result<Self, ParseError> {
        let (trigger, flags, Tail { verdict, shot }) = parse(datagram)?;
        if flags & REPLY == 0 {
            return Err(ParseError::Value { what: "an acknowledgement's reply bit", expected: 1, found: 0 });
        }
        let verdict = match verdict {
            0 => return Err(ParseError::Unknown { what: "verdict", found: 0 }),
            1 => Verdict::Accepted { shot },
            2 => Verdict::Busy,
            3 => Verdict::NotRunning,
            4 => Verdict::Repeated,
            5 => Verdict::Owned,
            other => Verdict::Other(other),
        };
        Ok(Self { trigger, verdict })
    }

    /// Encodes the datagram.
    pub fn emit(&self) -> [u8; Trigger::LEN] {
        let head = self.trigger.head(REPLY, self.verdict.code());
        match self.verdict {
            Verdict::Accepted { shot } => head.u64(shot),
            _ => head,
        }
        .padded()
    }
}

/// Fields that only acknowledgements have.
struct Tail {
    verdict: u8,
    shot: u64,
}

fn parse(datagram: &[u8]) -> Result<(Trigger, u8, Tail), ParseError> {
    if datagram.len() != Trigger::LEN {
        let (expected, found) = (Trigger::LEN as u64, datagram.len() as u64);
        return Err(ParseError::Length { what: "a trigger", expected, found });
    }
    let mut fields = bytes::Fields::new("trigger", datagram);
    let magic = fields.array()?;
    if magic != Trigger::MAGIC {
        let (expected, found) = (u32::from_be_bytes(Trigger::MAGIC).into(), u32::from_be_bytes(magic).into());
        return Err(ParseError::Value { what: "trigger's magic", expected, found });
    }
    let version = fields.u8()?;
    if version != Trigger::VERSION {
        let (expected, found) = (Trigger::VERSION.into(), version.into());
        return Err(ParseError::Value { what: "trigger's version", expected, found });
    }
    let flags = fields.u8()?;
    let verdict = fields.u8()?;
    let _reserved = fields.u8()?;
    let sequence = fields.u32()?;
    let token = fields.u32()?;
    let stamp = fields.u64()?;
    let [acknowledge, command_only, take_over] = [ACKNOWLEDGE, COMMAND_ONLY, TAKE_OVER].map(|bit| flags & bit != 0);
    let trigger = Trigger { sequence, token, stamp, acknowledge, command_only, take_over };
    Ok((trigger, flags, Tail { verdict, shot: fields.u64()? }))
}
