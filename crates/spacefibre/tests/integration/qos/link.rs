//! A link that sends what a medium access controller selects, and counts it.

use shotline_random::SplitMix64;
use shotline_spacefibre::qos::{Limits, MediumAccess, Share, VcQos};

/// Words of a data frame of 64 data words.
pub const FRAME: u32 = 66;
/// Default bandwidth credit limit in words.
pub const CREDIT: u32 = 65_536;

pub fn share(parts: u32) -> Share {
    Share::from_parts(parts).expect("at most 65536 parts")
}

/// Channels of one priority with these shares in parts per 65536.
pub fn channels(parts: &[u32]) -> Vec<VcQos> {
    parts.iter().map(|parts| VcQos::new(3, share(*parts))).collect()
}

/// Shares of `count` channels that add up to `sum`, each at least the smallest that the default limits accept.
pub fn random_parts(count: usize, sum: u32, random: &mut SplitMix64) -> Vec<u32> {
    let min = Limits::default().min_share();
    let free = u64::from(sum - min * count as u32);
    let weights: Vec<_> = (0..count).map(|_| random.between(1, 1 << 20)).collect();
    let total: u64 = weights.iter().sum();
    let mut parts: Vec<_> = weights.iter().map(|weight| min + (free * weight / total) as u32).collect();
    parts[0] += sum - parts.iter().sum::<u32>();
    parts
}

pub struct Link {
    pub access: MediumAccess,
    /// Words sent, of anything.
    pub words: u64,
    /// Per channel: words of its frames.
    pub sent: [u64; 32],
}

impl Link {
    pub fn new(channels: &[VcQos]) -> Self {
        Self::with_limits(channels, Limits::default())
    }

    pub fn with_limits(channels: &[VcQos], limits: Limits) -> Self {
        let access = MediumAccess::with_limits(channels, limits).expect("the shares can be kept");
        Self { access, words: 0, sent: [0; 32] }
    }

    /// Sends a frame of one of the ready channels, or an idle frame of the same length.
    pub fn send(&mut self, ready: u32, words: u32) -> Option<u8> {
        let vc = self.access.select(ready);
        self.access.sent(vc, words);
        self.words += u64::from(words);
        if let Some(vc) = vc {
            self.sent[usize::from(vc)] += u64::from(words);
        }
        vc
    }

    /// Sends words that belong to no data frame.
    pub fn send_other(&mut self, words: u32) {
        self.access.sent(None, words);
        self.words += u64::from(words);
    }

    /// Sends full frames of the ready channels for at least this many words.
    pub fn run(&mut self, ready: u32, words: u64) {
        let end = self.words + words;
        while self.words < end {
            self.send(ready, FRAME);
        }
    }

    pub fn credit(&self, vc: u8) -> i32 {
        self.access.status(vc).expect("the channel exists").credit
    }

    pub fn over_use(&self, vc: u8) -> bool {
        self.access.status(vc).expect("the channel exists").over_use
    }

    pub fn under_use(&self, vc: u8) -> bool {
        self.access.status(vc).expect("the channel exists").under_use
    }

    /// Checks that each channel has sent its share within 1 %, or within two frames where that is more.
    #[track_caller]
    pub fn assert_shares(&self, parts: &[u32]) {
        for (vc, parts) in parts.iter().enumerate() {
            let expected = self.words as f64 * f64::from(*parts) / 65_536.0;
            let error = self.sent[vc] as f64 - expected;
            let tolerance = (expected / 100.0).max(f64::from(2 * FRAME));
            assert!(error.abs() <= tolerance, "channel {vc}: {} of {expected} words", self.sent[vc]);
        }
    }
}
