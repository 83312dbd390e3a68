//! Alignment of the receiving lanes, and the rows that they form (5.6.5 to 5.6.7).

use super::fifo::{Entry, Fifo, class};
use super::kind::Kind;
use super::types::{Alignment, MAX_LANES, Misalignment, MisalignmentCounters, bits};
use shotline_wire::spacefibre::{ControlWord, Word};

/// ACTIVE words between two ALIGN words (5.6.6.3d).
pub(super) const ACTIVE_WORDS: u8 = 7;

/// Rows of ACTIVE words in a time-out's 5000 words: the far end sends these only while it is not ready.
const STUCK_ROWS: u16 = 5000 / 8 * 7;

/// A row as it was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Row {
    /// This number of data words.
    Data(usize),
    /// A control word.
    Control {
        /// The word of the lowest lane.
        word: Word,
        /// An EDF whose CRC-16 failed on some lane.
        crc_error: bool,
    },
    /// Words were received with errors, or may have been lost.
    RxErr,
}

/// Receiving lanes with their alignment FIFOs, and the alignment state machine (figure 5-37).
#[derive(Clone, Debug)]
pub(super) struct Aligner {
    fifos: [Fifo; MAX_LANES],
    /// Lanes in the state Active.
    active: u16,
    /// Lanes among them that may receive.
    enabled: u16,
    /// Data-receiving lanes: those among them whose far end sends data.
    receiving: u16,
    /// Enabled lanes on which an ALIGN word was received.
    marked: u16,
    /// Last ACTIVE word of each lane.
    last_active: [Option<u16>; MAX_LANES],
    /// Active lanes of the far end.
    far_active: u16,
    state: Alignment,
    is_aligned: bool,
    /// An RXERR must be passed up, because the lanes became misaligned.
    rxerr_pending: bool,
    /// ACTIVE words sent since the active lanes changed or the state became Not Ready, up to 7.
    active_sent: u8,
    /// Words in which an RXERR shows that the lanes are not aligned.
    settle_words: u32,
    /// Those that are left since Near-End Ready was entered.
    settle_left: u32,
    /// Rows of ACTIVE words in sequence.
    active_rows: u16,
    counters: MisalignmentCounters,
}

impl Aligner {
    pub(super) fn new(settle_words: u32) -> Self {
        Self {
            fifos: [const { Fifo::new() }; MAX_LANES],
            active: 0,
            enabled: 0,
            receiving: 0,
            marked: 0,
            last_active: [None; MAX_LANES],
            far_active: 0,
            state: Alignment::NotReady,
            is_aligned: false,
            rxerr_pending: false,
            active_sent: 0,
            settle_words,
            settle_left: 0,
            active_rows: 0,
            counters: MisalignmentCounters::default(),
        }
    }

    #[inline]
    pub(super) fn state(&self) -> Alignment {
        self.state
    }

    pub(super) fn receiving(&self) -> u16 {
        self.receiving
    }

    pub(super) fn counters(&self) -> MisalignmentCounters {
        self.counters
    }

    /// Sets the lanes that are active, and those among them that may receive.
    pub(super) fn set_lanes(&mut self, active: u16, enabled: u16) {
        for lane in bits(active & !self.active) {
            self.last_active[lane] = None;
            self.fifos[lane].clear();
        }
        let has_changed = active != self.active;
        (self.active, self.enabled) = (active, enabled);
        if active == 0 {
            self.far_active = 0;
        }
        if has_changed {
            self.active_sent = 0;
            self.misalign(Misalignment::NearEndLanes);
        }
        for lane in bits(self.receiving & !enabled) {
            self.stop_receiving(lane);
        }
        self.marked &= enabled;
    }

    /// Removes a lane from the data-receiving lanes.
    fn stop_receiving(&mut self, lane: usize) {
        self.receiving &= !(1 << lane);
        self.fifos[lane].clear();
        self.misalign(Misalignment::ReceivingLanes);
    }

    /// Empties all FIFOs (5.6.6.4h).
    fn clear_all(&mut self) {
        self.fifos.iter_mut().for_each(Fifo::clear);
    }

    /// Resets the state machine (link reset, 5.6.7.1).
    pub(super) fn reset(&mut self) {
        self.clear_all();
        self.state = Alignment::NotReady;
        (self.is_aligned, self.rxerr_pending) = (false, false);
        self.active_sent = 0;
    }

    /// Takes a word of a lane, unscrambled. Returns the far end's active lanes if it was a valid ACTIVE word.
    pub(super) fn receive(&mut self, lane: usize, kind: Kind, word: Word, crc_error: bool) -> Option<u16> {
        if self.enabled >> lane & 1 == 0 {
            return None;
        }
        let mut far_active = None;
        let class = match kind {
            Kind::Data => class::DATA,
            Kind::Pad => class::PAD,
            Kind::RxErr => class::RXERR,
            Kind::Active => {
                far_active = self.receive_active(lane, word);
                class::ACTIVE
            }
            Kind::Align => self.receive_align(lane, word),
            _ => class::CONTROL,
        };
        self.push(lane, Entry { word, class, crc_error });
        far_active
    }

    /// [`Self::receive`] for a data word.
    #[inline]
    pub(super) fn receive_data(&mut self, lane: usize, word: Word) {
        self.push(lane, Entry { word, class: class::DATA, crc_error: false });
    }

    /// Appends a word to the FIFO of a data-receiving lane.
    #[inline]
    fn push(&mut self, lane: usize, entry: Entry) {
        if self.receiving >> lane & 1 == 0 {
            return;
        }
        if !self.fifos[lane % MAX_LANES].push(entry) {
            self.overflow();
        }
    }

    #[cold]
    fn overflow(&mut self) {
        self.clear_all();
        self.misalign(Misalignment::FifoOverflow);
    }

    /// Takes an ACTIVE word. It is valid if the last one of the same lane was equal (5.6.6.3b).
    fn receive_active(&mut self, lane: usize, word: Word) -> Option<u16> {
        let [_, _, low, high] = word.characters;
        let lanes = u16::from_le_bytes([low, high]);
        if self.last_active[lane].replace(lanes) != Some(lanes) {
            return None;
        }
        if lanes != self.far_active {
            self.far_active = lanes;
            self.misalign(Misalignment::FarEndLanes);
        }
        Some(lanes)
    }

    /// Takes an ALIGN word, and returns its class (5.6.6.3e to h, 5.6.10j, k).
    fn receive_align(&mut self, lane: usize, word: Word) -> u8 {
        let bit = 1 << lane;
        match ControlWord::parse(word) {
            Ok(Some(ControlWord::AlignRedundant)) => {
                self.marked |= bit;
                if self.receiving & bit != 0 {
                    self.stop_receiving(lane);
                }
                class::ALIGN
            }
            Ok(Some(ControlWord::Align { lane: far_lane, lanes })) => {
                self.marked |= bit;
                if self.receiving & bit == 0 {
                    self.receiving |= bit;
                    self.misalign(Misalignment::ReceivingLanes);
                }
                if usize::from(far_lane) == lane && u32::from(lanes) == self.enabled.count_ones() {
                    class::MARK
                } else {
                    self.misalign(Misalignment::InvalidAlign);
                    class::ALIGN
                }
            }
            // Its fourth character is not the inverse of the third: treated as any other control word.
            _ => class::ALIGN,
        }
    }

    /// Takes the next row: one word of each data-receiving lane. Rows that only concern the alignment are skipped. Data
    /// words are copied to `words`, in the order of the lanes.
    #[inline]
    pub(super) fn next_row(&mut self, words: &mut [Word; MAX_LANES]) -> Option<Row> {
        loop {
            if self.rxerr_pending {
                self.rxerr_pending = false;
                return Some(Row::RxErr);
            }
            if self.receiving == 0 {
                return None;
            }
            if let Some(len) = self.take_data(words) {
                return Some(self.data_row(len));
            }
            let mut classes = 0;
            let mut len = 0;
            for lane in bits(self.receiving) {
                let entry = self.fifos[lane % MAX_LANES].head()?;
                classes |= entry.class;
                words[len % MAX_LANES] = entry.word;
                // All words but PAD stay, so a data row's are its first ones.
                len += usize::from(entry.class != class::PAD);
            }
            if classes & !(class::DATA | class::PAD) == 0 && len > 0 {
                self.pop(self.receiving);
                return Some(self.data_row(len));
            }
            if let Some(row) = self.other_row(classes) {
                return Some(row);
            }
        }
    }

    /// Takes the next row if it has data words of all lanes, as most rows do, and returns its length.
    #[inline]
    fn take_data(&mut self, words: &mut [Word; MAX_LANES]) -> Option<usize> {
        let mut classes = class::DATA;
        let mut len = 0;
        for (lane, to) in bits(self.receiving).zip(words) {
            let Some(entry) = self.fifos[lane].take() else {
                self.untake(len);
                return None;
            };
            classes |= entry.class;
            *to = entry.word;
            len += 1;
        }
        if classes != class::DATA {
            self.untake(len);
            return None;
        }
        Some(len)
    }

    /// Takes back the words of the first lanes.
    #[cold]
    fn untake(&mut self, lanes: usize) {
        bits(self.receiving).take(lanes).for_each(|lane| self.fifos[lane].untake());
    }

    /// Removes the oldest word of these lanes.
    #[inline]
    fn pop(&mut self, lanes: u16) {
        for lane in bits(lanes) {
            self.fifos[lane % MAX_LANES].pop();
        }
    }

    /// Returns a row of data words.
    #[inline]
    fn data_row(&mut self, len: usize) -> Row {
        self.active_rows = 0;
        match self.state {
            Alignment::NotReady => Row::RxErr,
            Alignment::NearEndReady => {
                self.state = Alignment::BothEndsReady;
                Row::Data(len)
            }
            Alignment::BothEndsReady => Row::Data(len),
        }
    }

    /// Takes a row that is not one of data words, and returns it if it concerns the data link layer (5.6.5, 5.6.6.2).
    fn other_row(&mut self, classes: u8) -> Option<Row> {
        let lanes = self.receiving;
        if classes & class::MARK != 0 {
            return self.marked_row(classes);
        }
        let control = self.control_row();
        self.pop(lanes);
        if classes == class::ACTIVE {
            self.active_row();
            return None;
        }
        if classes & !(class::ACTIVE | class::ALIGN) == 0 && self.state == Alignment::NotReady || classes == class::PAD
        {
            return None;
        }
        self.active_rows = 0;
        if classes & class::ACTIVE != 0 {
            self.far_end_not_ready();
            return Some(self.rxerr());
        }
        if classes & class::RXERR != 0 || classes == class::ALIGN {
            return Some(self.rxerr());
        }
        if classes & (class::DATA | class::PAD) != 0 {
            self.misalign(Misalignment::InvalidRow);
            return Some(self.rxerr());
        }
        Some(if self.state == Alignment::NotReady { Row::RxErr } else { control })
    }

    /// Takes a row with a valid ALIGN word. Such words wait until all lanes have one (5.6.6.4d to f).
    fn marked_row(&mut self, classes: u8) -> Option<Row> {
        let waiting =
            bits(self.receiving).filter(|lane| self.fifos[*lane].head().is_some_and(|head| head.class == class::MARK));
        let waiting = waiting.fold(0, |lanes, lane| lanes | 1 << lane);
        if classes == class::MARK {
            self.pop(self.receiving);
            // A lane whose first ALIGN is late would otherwise join the others after they are aligned.
            if self.marked == self.enabled {
                self.is_aligned = true;
            }
            self.update();
            return None;
        }
        self.pop(self.receiving & !waiting);
        if !self.is_aligned {
            return None;
        }
        self.misalign(Misalignment::Slip);
        Some(self.rxerr())
    }

    /// Returns the control word of the lowest lane at the FIFOs' outputs (5.6.5e).
    ///
    /// Control words are the same on all lanes, and the standard does not require that to be checked. A lane without
    /// the EDF that others have did not check its CRC-16, which is an error of the frame.
    fn control_row(&self) -> Row {
        let mut heads = bits(self.receiving).filter_map(|lane| self.fifos[lane].head());
        let Some(first) = heads.next() else { return Row::RxErr };
        let is_end = Kind::of(first.word) == Kind::EndData;
        let is_missing = |entry: Entry| is_end && Kind::of(entry.word) != Kind::EndData;
        let crc_error = heads.fold(first.crc_error, |error, entry| error | entry.crc_error | is_missing(entry));
        Row::Control { word: first.word, crc_error: is_end && crc_error }
    }

    /// Takes a row of ACTIVE words.
    fn active_row(&mut self) {
        self.far_end_not_ready();
        self.active_rows = self.active_rows.saturating_add(1);
        // The far end sends ACTIVE words only while it is not ready, and this end none since it is. If the far end has
        // not received the last ones, it can only become ready after others.
        if self.active_rows >= STUCK_ROWS {
            self.active_rows = 0;
            self.misalign(Misalignment::FarEndStuck);
        }
    }

    /// Enters Near-End Ready again if the far end is not ready any more (5.6.7.4).
    fn far_end_not_ready(&mut self) {
        if self.state == Alignment::BothEndsReady {
            self.state = Alignment::NearEndReady;
            self.settle_left = self.settle_words;
        }
    }

    /// Returns a row with an error. Soon after the lanes were aligned it shows that they are not (5.6.7.1c).
    fn rxerr(&mut self) -> Row {
        if self.state == Alignment::NearEndReady && self.settle_left > 0 {
            self.misalign(Misalignment::EarlyRxErr);
        }
        self.rxerr_pending = false;
        Row::RxErr
    }

    /// The Misaligned condition (5.6.7.1c).
    fn misalign(&mut self, cause: Misalignment) {
        self.is_aligned = false;
        if self.state != Alignment::NotReady {
            self.state = Alignment::NotReady;
            self.rxerr_pending = true;
            self.active_sent = 0;
            self.counters.count(cause);
        }
    }

    /// Leaves Not Ready if the lanes are aligned and the same ones are active at both ends (5.6.7.2).
    ///
    /// The far end needs two equal ACTIVE words, which it does not receive after this end has left the state. So this
    /// end first sends all that precede an ALIGN.
    fn update(&mut self) {
        let is_ready = self.is_aligned && self.far_active == self.active && self.active_sent >= ACTIVE_WORDS;
        if self.state == Alignment::NotReady && is_ready {
            self.state = Alignment::NearEndReady;
            self.settle_left = self.settle_words;
            self.active_rows = 0;
        }
    }

    /// Counts a row of ACTIVE words that this end sent.
    pub(super) fn sent_active(&mut self) {
        self.active_sent = self.active_sent.saturating_add(1).min(ACTIVE_WORDS);
        self.update();
    }

    /// Counts a word time.
    #[inline]
    pub(super) fn tick(&mut self) {
        self.settle_left = self.settle_left.saturating_sub(1);
    }
}
