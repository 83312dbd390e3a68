//! Error recovery buffer (ECSS 5.7.7.1): the order of everything that was sent and is not acknowledged.
//!
//! Broadcast messages, FCTs and data segments wait in one queue each. A NACK makes all items of all queues unsent; they
//! are sent again in the order of the queues, with new sequence numbers. The contents of data segments lie with the
//! caller, in slots: a segment keeps its slot until it is acknowledged, and slots are used in a ring.

use super::BroadcastMessage;
use std::cmp::Ordering;
use std::collections::VecDeque;

/// Maximum number of items that are sent and not acknowledged (ECSS 5.7.7.1o).
pub const MAX_UNACKNOWLEDGED: usize = 127;
/// Maximum number of slots for data segments: two items are reserved, so that data never stops an FCT or a broadcast
/// message.
pub const DATA_SLOTS: usize = MAX_UNACKNOWLEDGED - 2;
/// Items of a buffer that data frames and the FCTs for those of the far end share in proportion. It is less than the
/// maximum, so that FCTs can catch up.
const BALANCED_ITEMS: usize = 122;
/// Maximum number of stored broadcast messages.
const MAX_BROADCASTS: usize = 8;

/// A stored data segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Slot of its contents, below [`DATA_SLOTS`].
    pub slot: usize,
    /// Virtual channel.
    pub vc: u8,
    /// Length in words, without SDF and EDF.
    pub words: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Broadcast,
    Fct,
    Data,
}

/// Items in the order of sending; the first `sent` are sent and not acknowledged.
#[derive(Clone, Debug)]
struct Queue<T> {
    items: VecDeque<T>,
    sent: usize,
}

impl<T: Copy> Queue<T> {
    fn new(capacity: usize) -> Self {
        Self { items: VecDeque::with_capacity(capacity), sent: 0 }
    }
    fn unsent(&self) -> Option<T> {
        self.items.get(self.sent).copied()
    }
    fn is_all_sent(&self) -> bool {
        self.sent == self.items.len()
    }
    fn acknowledge(&mut self) {
        self.items.pop_front();
        self.sent -= 1;
    }
    fn clear(&mut self) {
        self.items.clear();
        self.sent = 0;
    }
}

/// An acknowledged sequence count that was never sent (ECSS 5.7.7.2.3d): the link must be reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownCount;

#[derive(Clone, Debug)]
pub(super) struct RecoveryBuffer {
    broadcasts: Queue<BroadcastMessage>,
    fcts: Queue<u8>,
    data: Queue<Segment>,
    /// Kinds of the items in `sent` of the three queues, in order of their sequence numbers.
    log: VecDeque<Kind>,
    /// Sequence count before that of the first item in the log.
    acknowledged: u8,
    /// Lanes of a data frame, and multiplier of the FCTs: a data frame of full length needs `lanes / multiplier` FCTs.
    lanes: usize,
    multiplier: usize,
    /// Data segments that may be stored at least if both directions are busy.
    balanced_data: usize,
    /// There are data to send.
    has_data: bool,
    next_slot: usize,
}

impl RecoveryBuffer {
    pub(super) fn new(lanes: u8, multiplier: u8) -> Self {
        Self {
            broadcasts: Queue::new(MAX_BROADCASTS),
            fcts: Queue::new(MAX_UNACKNOWLEDGED),
            data: Queue::new(DATA_SLOTS),
            log: VecDeque::with_capacity(MAX_UNACKNOWLEDGED + 1),
            acknowledged: 0,
            lanes: lanes.into(),
            multiplier: multiplier.into(),
            balanced_data: BALANCED_ITEMS * usize::from(multiplier) / usize::from(lanes + multiplier),
            has_data: false,
            next_slot: 0,
        }
    }

    /// Removes everything, for a link reset.
    pub(super) fn clear(&mut self) {
        self.broadcasts.clear();
        self.fcts.clear();
        self.data.clear();
        self.log.clear();
        (self.acknowledged, self.next_slot, self.has_data) = (0, 0, false);
    }

    fn len(&self) -> usize {
        self.broadcasts.items.len() + self.fcts.items.len() + self.data.items.len()
    }
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Returns the number of items that are sent and not acknowledged.
    pub(super) fn unacknowledged(&self) -> usize {
        self.log.len()
    }
    /// Returns the number of data segments that can be stored.
    pub(super) fn free_segments(&self) -> usize {
        let own = DATA_SLOTS.saturating_sub(self.len());
        let Self { lanes, multiplier, balanced_data, .. } = *self;
        // The far end stores FCTs for our data, and the data for which we have sent FCTs. If a frame needs several FCTs, its
        // buffer is full before ours.
        let items = match lanes.cmp(&multiplier) {
            Ordering::Less => return own,
            Ordering::Equal => MAX_UNACKNOWLEDGED - 1,
            Ordering::Greater => BALANCED_ITEMS,
        };
        // An FCT counts as somewhat more than its data, so that FCTs can catch up.
        let of_far_end = (items * lanes).saturating_sub(self.fcts.items.len() * (multiplier + 1));
        let max = (of_far_end * multiplier / (lanes * lanes)).max(balanced_data);
        own.min(max.saturating_sub(self.data.items.len()))
    }
    /// Returns `true` if no data segment can be stored.
    pub(super) fn is_full(&self) -> bool {
        self.free_segments() == 0
    }
    /// Sets whether there are data to send.
    pub(super) fn set_has_data(&mut self, has_data: bool) {
        self.has_data = has_data;
    }
    /// Returns `true` if an FCT can be stored. There must be as many as the data frames of the far end need: with a
    /// smaller number, and not the quality of service, each channel would have the same bandwidth. But they leave data
    /// that wait their part, or one direction would stop the other.
    pub(super) fn accepts_fct(&self) -> bool {
        let reserved = if self.has_data { self.balanced_data } else { 0 };
        self.len() < MAX_UNACKNOWLEDGED - 1 && self.fcts.items.len() + reserved < MAX_UNACKNOWLEDGED - 1
    }
    pub(super) fn accepts_broadcast(&self) -> bool {
        self.broadcasts.items.len() < MAX_BROADCASTS && self.len() < MAX_UNACKNOWLEDGED
    }

    pub(super) fn next_slot(&self) -> usize {
        self.next_slot
    }
    /// Stores a data segment, which must be accepted ([`Self::is_full`]). Returns it with its slot.
    #[inline(always)]
    pub(super) fn store_segment(&mut self, vc: u8, words: u32) -> Segment {
        debug_assert!(!self.is_full());
        let segment = Segment { slot: self.next_slot, vc, words };
        self.next_slot = (self.next_slot + 1) % DATA_SLOTS;
        self.data.items.push_back(segment);
        segment
    }
    pub(super) fn store_fct(&mut self, vc: u8) {
        debug_assert!(self.accepts_fct());
        self.fcts.items.push_back(vc);
    }
    pub(super) fn store_broadcast(&mut self, message: BroadcastMessage) {
        debug_assert!(self.accepts_broadcast());
        self.broadcasts.items.push_back(message);
    }

    /// Returns `true` if a broadcast message waits to be sent again.
    pub(super) fn resends_broadcasts(&self) -> bool {
        !self.broadcasts.is_all_sent()
    }
    pub(super) fn unsent_broadcast(&self) -> Option<BroadcastMessage> {
        self.broadcasts.unsent()
    }
    /// Returns the virtual channel of the next FCT to send. Broadcast messages precede it.
    pub(super) fn unsent_fct(&self) -> Option<u8> {
        self.fcts.unsent()
    }
    pub(super) fn unsent_segment(&self) -> Option<Segment> {
        self.data.unsent()
    }
    /// Returns `true` if new data may be sent: nothing that was stored before is left to send.
    pub(super) fn is_all_sent(&self) -> bool {
        self.broadcasts.is_all_sent() && self.fcts.is_all_sent() && self.data.is_all_sent()
    }

    pub(super) fn on_broadcast_sent(&mut self) {
        self.broadcasts.sent += 1;
        self.log.push_back(Kind::Broadcast);
    }
    pub(super) fn on_fct_sent(&mut self) {
        self.fcts.sent += 1;
        self.log.push_back(Kind::Fct);
    }
    pub(super) fn on_segment_sent(&mut self) {
        self.data.sent += 1;
        self.log.push_back(Kind::Data);
    }

    /// Removes all items up to a sequence count (modulo 128).
    pub(super) fn acknowledge(&mut self, count: u8) -> Result<(), UnknownCount> {
        let number = usize::from(count.wrapping_sub(self.acknowledged) & 0x7F);
        if number > self.log.len() {
            return Err(UnknownCount);
        }
        for kind in self.log.drain(..number) {
            match kind {
                Kind::Broadcast => self.broadcasts.acknowledge(),
                Kind::Fct => self.fcts.acknowledge(),
                Kind::Data => self.data.acknowledge(),
            }
        }
        self.acknowledged = count;
        Ok(())
    }

    /// Makes all remaining items unsent, and broadcast messages late. Returns how many were sent before.
    pub(super) fn rewind(&mut self) -> usize {
        let sent = self.log.len();
        self.broadcasts.items.iter_mut().for_each(BroadcastMessage::delay);
        (self.broadcasts.sent, self.fcts.sent, self.data.sent) = (0, 0, 0);
        self.log.clear();
        sent
    }
}
