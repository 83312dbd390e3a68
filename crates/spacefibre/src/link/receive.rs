//! Receive side of the data link layer: what is accepted, and the effects of control words.

use super::{DataLink, ResetCause};
use shotline_wire::spacefibre::{ControlWord, SequenceNumber};

/// The receive side. Call it for every word or frame that arrives, in order.
impl DataLink {
    /// Processes an RXERR word, or a gap of unknown length in what arrived. `in_frame`: inside a data or broadcast
    /// frame, or unknown. Outside of frames an error is found by the next sequence number (ECSS 5.7.7.2.2a).
    pub fn on_rxerr(&mut self, in_frame: bool) {
        self.counters.rxerrs += 1;
        (self.probe, self.wake_row) = (true, 0);
        if in_frame {
            self.receiver.request_nack();
        }
    }

    /// Processes a data or broadcast frame that ended too early or was too long. The next sequence number shows what is
    /// missing.
    pub fn on_frame_error(&mut self) {
        self.counters.frame_errors += 1;
    }

    /// Processes a control word whose CRC-8 does not match.
    pub fn on_crc8_error(&mut self, in_frame: bool) {
        self.counters.crc8_errors += 1;
        (self.probe, self.wake_row) = (true, 0);
        if in_frame {
            self.receiver.request_nack();
        }
    }

    /// Processes a complete data frame of `words` words. Returns `true` if it is accepted: its contents must now be
    /// written to the input buffer of the virtual channel, and released later ([`Self::release`]).
    pub fn on_data_frame(&mut self, vc: u8, words: u32, seq: SequenceNumber, crc16_ok: bool) -> bool {
        let accepted = self.check_data_frame(vc, words, seq, crc16_ok);
        if accepted {
            self.counters.frames_in += 1;
            self.counters.words_in += u64::from(words);
        } else {
            self.counters.frames_dropped += 1;
        }
        accepted
    }

    fn check_data_frame(&mut self, vc: u8, words: u32, seq: SequenceNumber, crc16_ok: bool) -> bool {
        self.wake_row = 0;
        if !crc16_ok {
            self.counters.crc16_errors += 1;
            self.probe = true;
            self.receiver.request_nack();
            return false;
        }
        if !self.receiver.is_next(seq) {
            self.on_sequence_error(seq);
            return false;
        }
        // A frame of a channel that does not exist has no credit, either.
        if !self.channels.get_mut(usize::from(vc)).is_some_and(|channel| channel.accept(words)) {
            self.counters.input_overflows += 1;
            self.request_reset(ResetCause::InputOverflow);
            return false;
        }
        self.receiver.accept(seq);
        true
    }

    /// Processes a complete broadcast frame. Returns `true` if the message is accepted.
    pub fn on_broadcast_frame(&mut self, seq: SequenceNumber, crc8_ok: bool) -> bool {
        if !crc8_ok {
            self.on_crc8_error(true);
            return false;
        }
        self.wake_row = 0;
        if !self.receiver.is_next(seq) {
            self.on_sequence_error(seq);
            return false;
        }
        self.receiver.accept(seq);
        self.counters.broadcasts_in += 1;
        true
    }

    /// Processes a control word of the data link layer that stands alone. Others are ignored.
    pub fn on_control(&mut self, word: ControlWord) {
        self.on_inserted_control(word);
    }

    /// Processes such a control word where it may stand within a frame. Returns `false` after a sequence error, which
    /// ends that frame (ECSS 5.7.8).
    pub fn on_inserted_control(&mut self, word: ControlWord) -> bool {
        self.wake_row = 0;
        match word {
            ControlWord::Ack { seq } => self.on_ack(seq),
            ControlWord::Nack { seq } => self.on_nack(seq),
            ControlWord::FlowControlToken { vc, multiplier, seq } => return self.on_fct(vc, multiplier, seq),
            ControlWord::Full { seq } | ControlWord::StartIdleFrame { seq } => {
                let is_full = matches!(word, ControlWord::Full { .. });
                self.counters.fulls_in += u64::from(is_full);
                if !self.receiver.is_current(seq) {
                    self.on_sequence_error(seq);
                    return false;
                }
                if is_full {
                    self.receiver.request_ack();
                }
            }
            ControlWord::Retry => self.counters.retries_in += 1,
            _ => {}
        }
        true
    }

    fn on_sequence_error(&mut self, seq: SequenceNumber) {
        self.counters.sequence_errors += 1;
        self.receiver.on_sequence_error(seq);
    }

    fn on_fct(&mut self, vc: u8, multiplier: u8, seq: SequenceNumber) -> bool {
        if !self.receiver.is_next(seq) {
            self.on_sequence_error(seq);
            return false;
        }
        self.receiver.accept(seq);
        self.counters.fcts_in += 1;
        // An FCT of a channel that this end does not have is in sequence, so it must be acknowledged.
        let Some(channel) = self.channels.get_mut(usize::from(vc)) else { return true };
        self.counters.credit_overflows += u64::from(!channel.add_credit(super::FCT_WORDS * u32::from(multiplier)));
        self.with_credit |= 1 << vc;
        true
    }

    fn on_ack(&mut self, seq: SequenceNumber) {
        self.counters.acks_in += 1;
        if seq.negative == self.tx_seq.negative && !self.retry_pending {
            self.acknowledge(seq.count);
        }
    }

    fn on_nack(&mut self, seq: SequenceNumber) {
        self.counters.nacks_in += 1;
        // Only the first NACK of an error has the present polarity: the RETRY inverts it (ECSS 5.7.7.2.4d).
        if seq.negative != self.tx_seq.negative || self.retry_pending || !self.acknowledge(seq.count) {
            return;
        }
        self.counters.items_resent += self.recovery.rewind() as u64;
        self.delay_broadcasts();
        self.tx_seq.count = seq.count;
        // The rows of a frame that RETRY abandons are counted again with its next attempt.
        (self.retry_pending, self.is_new) = (true, false);
    }

    fn acknowledge(&mut self, count: u8) -> bool {
        let known = self.recovery.acknowledge(count).is_ok();
        if !known {
            self.counters.protocol_errors += 1;
            self.request_reset(ResetCause::Protocol);
        }
        known
    }
}
