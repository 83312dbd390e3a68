//! Where the channels' rings, reports and buffers are in memory: each channel has 4 GiB.

use super::memory::REFUSED;

/// Offsets of a channel's reports and of its buffers. The ring is before them.
pub(crate) const REPORTS: u64 = 0x0800_0000;
pub(crate) const BUFFERS: u64 = 0x1000_0000;

/// Returns the first address of a channel.
pub(crate) fn base(channel: usize) -> u64 {
    (channel as u64 + 1) << 32
}

/// Returns the channel whose ring, reports and buffers are at an address.
pub(crate) fn channel_at(address: u64) -> Option<usize> {
    ((address & !REFUSED) >> 32).checked_sub(1).map(|channel| channel as usize)
}

/// Returns `true` if an address of a channel is that of a report.
pub(crate) fn is_report(address: u64) -> bool {
    (REPORTS..BUFFERS).contains(&(address & 0xFFFF_FFFF))
}
