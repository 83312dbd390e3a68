//! Counters of a link over words.

/// Counters of one end of a link over words, besides those of the [data link layer](crate::link::LinkCounters) and the
/// [multi-lane layer](crate::multilane::MultiLaneCounters).
///
/// `data_frames` = `frames_in` + `frames_dropped` of the data link layer + `frames_cut` + the one that is being received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WordCounters {
    /// Data frames that began to be received.
    pub data_frames: u64,
    /// Those of them that did not end with an EDF: by RXERR, an error in an inserted control word, a frame error, RETRY,
    /// or a link reset.
    pub frames_cut: u64,
    /// Data frames with a valid CRC-16 and a word that has other K-codes than the end of a packet and Fills after it.
    /// They are dropped as if their CRC-16 had failed.
    pub malformed_frames: u64,
    /// Link resets because this end waited for the far end's too long, on lanes that are active.
    pub reset_time_outs: u64,
}
