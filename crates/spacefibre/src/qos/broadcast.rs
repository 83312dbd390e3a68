//! Bandwidth credit of broadcast frames (ECSS 5.7.5).

use super::Share;

/// Words of a broadcast frame: SBF, two data words, EBF.
const FRAME_WORDS: u64 = 4;
/// Progress towards the next credit at which it is added, in words x parts per 65536: 4 words at a share of 1.
const PER_CREDIT: u64 = FRAME_WORDS * Share::WHOLE.parts() as u64;

/// Bandwidth credit of broadcast frames: the number of frames that may be sent at once.
///
/// It increases by one each 4 / share words that the link sends, up to 256, and decreases by one for each broadcast
/// frame. It is exact: no fraction of a word is lost.
///
/// ```
/// use shotline_spacefibre::qos::{BroadcastCredit, Share};
///
/// let mut credit = BroadcastCredit::new(Share::from_parts(65_536 / 100).unwrap());
/// assert!(!credit.take());
/// credit.sent(401);
/// assert!(credit.take());
/// assert!(!credit.take());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BroadcastCredit {
    share: Share,
    credit: u16,
    /// Progress towards the next credit, below [`PER_CREDIT`].
    progress: u32,
}

impl BroadcastCredit {
    /// Highest credit (5.7.5).
    pub const MAX: u16 = 256;

    /// Creates a credit of 0 with an expected bandwidth. With a share of 0 no broadcast frame is ever sent.
    #[must_use]
    pub const fn new(share: Share) -> Self {
        Self { share, credit: 0, progress: 0 }
    }

    /// Sets the expected bandwidth and keeps the credit.
    pub const fn configure(&mut self, share: Share) {
        self.share = share;
    }

    /// Counts words that the link has sent, of any kind, those of broadcast frames included.
    #[inline]
    pub fn sent(&mut self, words: u32) {
        let progress = u64::from(self.progress) + u64::from(words) * u64::from(self.share.parts());
        let credit = u64::from(self.credit) + progress / PER_CREDIT;
        self.credit = credit.min(u64::from(Self::MAX)) as u16;
        self.progress = (progress % PER_CREDIT) as u32;
    }

    /// Takes the credit of one broadcast frame. Returns `false` if there is none: the frame must wait.
    #[must_use = "without credit the frame must wait"]
    pub const fn take(&mut self) -> bool {
        let any = self.credit != 0;
        self.credit -= any as u16;
        any
    }

    /// Returns the number of broadcast frames that may be sent now.
    #[must_use]
    pub const fn credit(&self) -> u16 {
        self.credit
    }

    /// Sets the credit to 0, as on link reset (5.7.10b).
    pub const fn reset(&mut self) {
        self.credit = 0;
        self.progress = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credit(parts: u32) -> BroadcastCredit {
        BroadcastCredit::new(Share::from_parts(parts).unwrap())
    }

    #[test]
    fn credit_is_added_at_exactly_4_words_per_share() {
        // A share of 1 / 64: each 256 words.
        let mut broadcast = credit(1024);
        broadcast.sent(255);
        assert_eq!(broadcast.credit(), 0);
        broadcast.sent(1);
        assert_eq!(broadcast.credit(), 1);
        (0..2559).for_each(|_| broadcast.sent(1));
        assert_eq!(broadcast.credit(), 10);
        broadcast.sent(1);
        assert_eq!(broadcast.credit(), 11);
    }

    #[test]
    fn fractions_of_words_are_not_lost() {
        // 4 x 65536 / 3 words are 87381.33: 3 credits each 262144 words.
        let mut broadcast = credit(3);
        for round in 1..=80 {
            (0..262_144 / 64).for_each(|_| broadcast.sent(64));
            assert_eq!(broadcast.credit(), round * 3);
        }
    }

    #[test]
    fn broadcasts_wait_without_credit_and_after_a_reset() {
        let mut broadcast = credit(65_536);
        assert!(!broadcast.take());
        broadcast.sent(11);
        assert!(broadcast.take() && broadcast.take() && !broadcast.take());
        broadcast.reset();
        broadcast.sent(3);
        assert!(!broadcast.take());
        broadcast.sent(1);
        assert!(broadcast.take());
    }

    #[test]
    fn credit_saturates_at_256_frames() {
        let mut broadcast = credit(65_536);
        (0..3).for_each(|_| broadcast.sent(u32::MAX));
        assert_eq!(broadcast.credit(), 256);
        assert_eq!((0..1000).filter(|_| broadcast.take()).count(), 256);
    }

    #[test]
    fn no_share_means_no_broadcast() {
        let mut broadcast = credit(0);
        broadcast.sent(u32::MAX);
        assert!(!broadcast.take());
        broadcast.configure(Share::WHOLE);
        broadcast.sent(4);
        assert!(broadcast.take());
    }

    #[test]
    fn babbling_broadcasts_have_at_most_their_share() {
        // 2 % of the link; a broadcast is sent whenever there is credit.
        let mut broadcast = credit(1311);
        let (mut words, mut frames) = (0_u32, 0_u32);
        while words < 1_000_000 {
            let sent = if broadcast.take() { 4 } else { 66 };
            frames += u32::from(sent == 4);
            words += sent;
            broadcast.sent(sent);
        }
        let share = f64::from(frames * 4) / f64::from(words);
        assert!((0.0199..=0.02001).contains(&share), "{share}");
    }
}
