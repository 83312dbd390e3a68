//! Distribution of rows over the lanes (5.6.4).

use super::MultiLane;
use super::align::ACTIVE_WORDS;
use super::types::{Alignment, MAX_LANES, TxRow};
use shotline_wire::spacefibre::{ControlWord, Word};

/// What the lanes send in a word time.
enum Slot<'a> {
    /// SKIP.
    Skip,
    /// No row: IDLE.
    Idle,
    /// ACTIVE.
    Active,
    /// ALIGN.
    Align,
    /// A row of the data link layer.
    Row(TxRow<'a>),
}

impl MultiLane {
    /// Returns each lane's word of this word time, or `None` for a lane whose driver is off. The entries of lanes that
    /// the link does not have stay as they are.
    ///
    /// `next_row` is called if a row can be sent, with the number of words that a row of data has. A row that it
    /// returns is always sent. If it returns `None`, IDLE words are sent.
    ///
    /// # Panics
    /// If `next_row` returns a row of data with more words.
    #[inline]
    pub fn transmit<'a>(
        &mut self,
        next_row: impl FnOnce(usize) -> Option<TxRow<'a>>,
        words: &mut [Option<Word>; MAX_LANES],
    ) {
        self.aligner.tick();
        let slot = self.next_slot(next_row);
        let (sending, redundant) = self.lanes_of(&slot);
        let has_changed = match slot {
            Slot::Row(TxRow::Data(row)) if redundant == 0 => self.transmit_data(row, sending, words),
            slot => self.transmit_slot(slot, sending, redundant, words),
        };
        if has_changed {
            self.update_lanes();
        }
        self.manager.tick();
    }

    /// Sends a row of data. Returns `true` if a lane has changed its state or has an event.
    #[inline]
    fn transmit_data(&mut self, row: &[Word], sending: u16, words: &mut [Option<Word>; MAX_LANES]) -> bool {
        let mut has_changed = false;
        if sending == self.manager.all() && row.len() == self.ports.len() {
            for ((port, word), to) in self.ports.iter_mut().zip(row).zip(words) {
                *to = port.lane.transmit(Some(port.encoder.encode(*word)));
                // A steady lane stays as it is.
                has_changed |= !port.lane.is_steady() && port.has_changed();
            }
            return has_changed;
        }
        let mut row = row.iter();
        for (lane, (port, to)) in self.ports.iter_mut().zip(words).enumerate() {
            let next = (sending >> lane & 1 == 1).then(|| match row.next() {
                Some(word) => port.encoder.encode(*word),
                None => ControlWord::Pad.emit(),
            });
            *to = port.lane.transmit(next);
            has_changed |= port.has_changed();
        }
        has_changed
    }

    /// Sends anything but a row of data, and such a row if there are hot redundant lanes.
    fn transmit_slot(
        &mut self,
        slot: Slot<'_>,
        sending: u16,
        redundant: u16,
        words: &mut [Option<Word>; MAX_LANES],
    ) -> bool {
        let mut has_changed = false;
        let redundant_word = if redundant != 0 { Word::data(self.redundant.next_word()) } else { Word::RXERR };
        let mut column = 0;
        for (lane, port) in self.ports.iter_mut().enumerate() {
            let next = if sending >> lane & 1 == 1 {
                match slot {
                    Slot::Row(TxRow::Data(words)) => {
                        column += 1;
                        Some(match words.get(column - 1) {
                            Some(word) => port.encoder.encode(*word),
                            None => ControlWord::Pad.emit(),
                        })
                    }
                    Slot::Row(TxRow::Control(word)) => Some(port.encoder.encode(word)),
                    Slot::Skip => Some(ControlWord::Skip.emit()),
                    Slot::Active => Some(ControlWord::Active { lanes: self.manager.active() }.emit()),
                    Slot::Align => Some(align_word(lane, self.manager.transmitting(), self.manager.data_sending())),
                    Slot::Idle => None,
                }
            } else if redundant >> lane & 1 == 1 {
                Some(redundant_word)
            } else {
                None
            };
            words[lane] = port.lane.transmit(next);
            has_changed |= port.has_changed();
        }
        if matches!(slot, Slot::Active) {
            self.aligner.sent_active();
        }
        has_changed
    }

    /// Returns what is sent now, and counts it.
    #[inline]
    fn next_slot<'a>(&mut self, next_row: impl FnOnce(usize) -> Option<TxRow<'a>>) -> Slot<'a> {
        // SKIP is sent on all lanes at once (5.5.3d, 5.6.4.5a).
        if self.skip_words > 0 {
            self.skip_words -= 1;
            if self.skip_words == 0 {
                self.skip_words = self.config.skip_interval_words;
                return Slot::Skip;
            }
        }
        let data_lanes = self.data_lanes();
        if !self.manager.is_bypass() {
            if self.manager.transmitting() == 0 {
                return Slot::Idle;
            }
            let state = self.aligner.state();
            if state == Alignment::BothEndsReady {
                self.slot = 0;
            } else {
                self.slot += 1;
                if self.slot > ACTIVE_WORDS {
                    self.slot = 0;
                    return Slot::Align;
                }
                if state == Alignment::NotReady {
                    return Slot::Active;
                }
            }
        }
        match if data_lanes == 0 { None } else { next_row(data_lanes) } {
            Some(TxRow::Data([])) | None => Slot::Idle,
            Some(row) => {
                assert!(!matches!(row, TxRow::Data(words) if words.len() > data_lanes), "a row has one word per lane");
                Slot::Row(row)
            }
        }
    }

    /// Returns the lanes that carry a slot, and the hot redundant lanes that do not.
    #[inline]
    fn lanes_of(&self, slot: &Slot<'_>) -> (u16, u16) {
        let (transmitting, data_sending) = (self.manager.transmitting(), self.manager.data_sending());
        match slot {
            _ if self.manager.is_bypass() => (1, 0),
            Slot::Skip | Slot::Active | Slot::Align => (transmitting, 0),
            Slot::Idle | Slot::Row(_) => (data_sending, transmitting & !data_sending),
        }
    }
}

/// Returns a lane's ALIGN word (5.3.4.2, 5.6.10i).
fn align_word(lane: usize, transmitting: u16, data_sending: u16) -> Word {
    if data_sending >> lane & 1 == 1 {
        ControlWord::Align { lane: lane as u8, lanes: transmitting.count_ones() as u8 }.emit()
    } else {
        ControlWord::AlignRedundant.emit()
    }
}
