//! Options of links.

use super::channels::Channels;
use crate::api::{Mtu, VerbsError};
use arrayvec::ArrayVec;
use shotline_spacefibre::link::{FRAME_ROWS, MAX_CREDIT_WORDS, MAX_VCS, VcConfig};
use shotline_spacefibre::qos::{ALL_SLOTS, VcQos};

/// Segment size that an endpoint proposes, which is the path MTU of its queue pairs: the most data of a packet. A larger
/// one holds a virtual channel longer, and costs less processor time.
pub(super) const SEGMENT: Mtu = Mtu::B16384;
/// Capacity of the input buffer of a virtual channel, in frames: as many as can be in flight, if the
/// credit counter can count them.
const INPUT_FRAMES: u32 = 128;

/// Options of the links of an endpoint; the same at both ends.
#[derive(Clone, Debug)]
pub struct LinkOptions {
    /// Number of lanes, 1 to 16.
    pub lanes: u8,
    /// Scrambles data frames.
    pub scrambled: bool,
    /// Virtual channels, 1 to 32: a queue pair's is its service level.
    pub channels: ArrayVec<VcConfig, MAX_VCS>,
}

impl LinkOptions {
    /// Returns options with scrambling, and virtual channels that share the link equally.
    ///
    /// # Errors
    /// [`VerbsError::Invalid`] if there are not 1 to 16 lanes and 1 to 32 channels.
    pub fn new(lanes: u8, channels: u8) -> Result<Self, VerbsError> {
        let check = |what, found: u8, max: u8| {
            let text = || VerbsError::Invalid(format!("expected 1 to {max} {what}, found {found}"));
            (1..=max).contains(&found).then_some(()).ok_or_else(text)
        };
        check("lanes", lanes, 16)?;
        check("virtual channels", channels, MAX_VCS as u8)?;
        Ok(Self::with_qos(lanes, &Channels::Equal(channels).qos()))
    }

    /// Returns options with scrambling, for 1 to 16 lanes and 1 to 32 channels.
    pub(super) fn with_qos(lanes: u8, channels: &[VcQos]) -> Self {
        let input_words = (INPUT_FRAMES * FRAME_ROWS * u32::from(lanes)).min(MAX_CREDIT_WORDS);
        let channels = channels.iter().map(|qos| VcConfig { qos: *qos, input_words }).collect();
        Self { lanes, scrambled: true, channels }
    }

    /// Returns `true` if a channel may not send in all time-slots.
    pub fn has_time_slots(&self) -> bool {
        self.channels.iter().any(|channel| channel.qos.slots != ALL_SLOTS)
    }
}
