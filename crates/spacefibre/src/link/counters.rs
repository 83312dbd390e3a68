//! Counters of a data link layer.

use serde::{Deserialize, Serialize};

/// Counters of one end of a link. Each counts events since the link was created; a link reset does not clear them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkCounters {
    /// Data frames sent, resent ones included.
    pub frames_out: u64,
    /// Data words sent for the first time.
    pub words_out: u64,
    /// Data frames accepted.
    pub frames_in: u64,
    /// Data words accepted.
    pub words_in: u64,
    /// Data frames discarded: a CRC-16 error, a sequence error, or an RXERR before their end.
    pub frames_dropped: u64,
    /// Items sent again after a NACK: data frames, FCTs and broadcast frames.
    pub items_resent: u64,
    /// Error recovery attempts: RETRYs sent (ECSS Table 5-37).
    pub retries: u64,
    /// RETRYs received.
    pub retries_in: u64,
    /// ACKs sent.
    pub acks_out: u64,
    /// ACKs received with a valid CRC-8.
    pub acks_in: u64,
    /// NACKs sent.
    pub nacks_out: u64,
    /// NACKs received with a valid CRC-8.
    pub nacks_in: u64,
    /// FCTs sent for the first time.
    pub fcts_out: u64,
    /// FCTs accepted.
    pub fcts_in: u64,
    /// FULL words sent.
    pub fulls_out: u64,
    /// FULL words received with a valid CRC-8.
    pub fulls_in: u64,
    /// RXERR words, or gaps in the numbers of a carrier's datagrams.
    pub rxerrs: u64,
    /// CRC-16 errors of data frames.
    pub crc16_errors: u64,
    /// CRC-8 errors of control words and broadcast frames.
    pub crc8_errors: u64,
    /// Sequence errors in words with a valid CRC.
    pub sequence_errors: u64,
    /// Frames that ended too early or were too long (ECSS 5.7.8).
    pub frame_errors: u64,
    /// FCTs that would have exceeded the maximum credit (ECSS 5.7.3.1i).
    pub credit_overflows: u64,
    /// Broadcast messages sent for the first time.
    pub broadcasts_out: u64,
    /// Broadcast messages accepted.
    pub broadcasts_in: u64,
    /// Link resets for any reason.
    pub link_resets: u64,
    /// Link resets because an ACK or NACK had an impossible count (ECSS 5.7.7.2.3d, 5.7.7.2.4e).
    pub protocol_errors: u64,
    /// Link resets because data exceeded the credit (ECSS 5.7.3.2e).
    pub input_overflows: u64,
    /// Link resets requested by the far end.
    pub far_end_resets: u64,
}

impl LinkCounters {
    /// Adds the counters of another link.
    pub fn add(&mut self, other: &Self) {
        sum_fields!(self, other: LinkCounters {
            frames_out, words_out, frames_in, words_in, frames_dropped, items_resent, retries, retries_in, acks_out,
            acks_in, nacks_out, nacks_in, fcts_out, fcts_in, fulls_out, fulls_in, rxerrs, crc16_errors, crc8_errors,
            sequence_errors, frame_errors, credit_overflows, broadcasts_out, broadcasts_in, link_resets,
            protocol_errors, input_overflows, far_end_resets,
        });
    }
}

/// Counters of one virtual channel. A link reset does not clear them. Their sums over the channels are those of
/// [`LinkCounters`], except that `frames_out` has no resent frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelCounters {
    /// Data frames sent for the first time.
    pub frames_out: u64,
    /// Data words in them.
    pub words_out: u64,
    /// Data frames accepted.
    pub frames_in: u64,
    /// Data words in them.
    pub words_in: u64,
}
