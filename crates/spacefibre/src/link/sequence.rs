//! Sequence numbers of what is received, the receive error state machine, and requests for ACKs and NACKs.

use shotline_wire::spacefibre::SequenceNumber;

/// Request for an acknowledgement; a newer one replaces it (ECSS 5.7.7.2.1f).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Ack,
    Nack,
}

/// Sequence state and receive error state machine (ECSS 5.7.6.3.2, 5.7.7.3).
///
/// The standard's states are the two flags: Valid Positive is neither, Error Negative is both.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Receiver {
    /// Count of the last accepted item.
    count: u8,
    /// Receive Polarity Flag.
    negative: bool,
    /// An error was found, and nothing was accepted since.
    error: bool,
    pub(super) request: Option<Request>,
}

impl Receiver {
    /// Returns the sequence number of an ACK.
    pub(super) fn ack_number(&self) -> SequenceNumber {
        SequenceNumber { count: self.count, negative: self.negative }
    }
    /// Returns the sequence number of a NACK: it has the polarity of the frame with the error, because the flag was
    /// inverted by that error.
    pub(super) fn nack_number(&self) -> SequenceNumber {
        SequenceNumber { count: self.count, negative: !self.negative }
    }

    pub(super) fn is_next(&self, seq: SequenceNumber) -> bool {
        seq.negative == self.negative && seq.count == (self.count + 1) & 0x7F
    }
    pub(super) fn is_current(&self, seq: SequenceNumber) -> bool {
        seq.negative == self.negative && seq.count == self.count
    }

    pub(super) fn accept(&mut self, seq: SequenceNumber) {
        self.count = seq.count;
        self.request_ack();
    }
    pub(super) fn request_ack(&mut self) {
        self.request = Some(Request::Ack);
        self.error = false;
    }
    pub(super) fn request_nack(&mut self) {
        self.request = Some(Request::Nack);
        if !self.error {
            (self.error, self.negative) = (true, !self.negative);
        }
    }
    /// Handles a sequence error in a word with a valid CRC.
    pub(super) fn on_sequence_error(&mut self, seq: SequenceNumber) {
        if self.error && seq.negative == self.negative {
            // The far end has inverted its polarity, so an item that it sent again was lost: this is a new error.
            self.negative = !self.negative;
        }
        self.request_nack();
    }
}
