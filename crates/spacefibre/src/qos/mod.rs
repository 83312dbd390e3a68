//! Quality of service of a link (ECSS-E-ST-50-11C 5.7.4 and 5.7.5): which virtual channel sends the next data frame,
//! and when a broadcast frame may be sent.
//!
//! [`MediumAccess`] selects among up to 32 virtual channels by time-slot, priority and bandwidth credit;
//! [`BroadcastCredit`] limits the rate of broadcast frames. Neither has a clock: time is the number of words sent.
//!
//! # Rules
//!
//! - A channel competes if it has a segment and room at the far end, a share above 0, and the current time-slot.
//! - The bandwidth credit of every channel increases by the number of words that the link sends, whatever they are.
//!   That of the channel that sends a frame of L data words decreases by (L + 2) / share. It saturates at +B and -B,
//!   where B is the bandwidth credit limit.
//! - The highest precedence wins: 2B(Q - 1 - R) + B + credit for a channel of level R of Q, but the credit alone if it
//!   is below -0.9 B. So a channel keeps its priority only while it is within its share, and within a level the channel
//!   that is furthest behind its share sends.
//!
//! # What follows from them
//!
//! - Channels that always have data and whose shares add up to 1 send exactly their shares. Until credits have settled,
//!   a channel of a high level sends up to 0.9 B x share words more.
//! - The share of an idle channel goes to the others in proportion to their shares until their credit is -B, and then
//!   in equal parts; each has at least its own share.
//! - A channel that was idle has a credit of at most B. Channels that return, with the sum S of their shares, delay the
//!   others of their level by at most 2B x S words, and those of lower levels by at most 2B x S / (1 - S) words. If S is
//!   near 1, the lowest levels wait for long: reduce B, or give such channels the same level.
//!
//! # What cannot be kept
//!
//! These are errors of the configuration ([`QosError`]):
//!
//! - Shares that add up to more than 1. Every credit would rise to +B, where it says nothing about the share.
//! - A share other than 0 without time-slots.
//! - A share so small that saturation at -B spares the channel a part of its cost ([`Limits::min_share`]).
//!
//! Not checked is what depends on the traffic or the length of time-slots. Control words, idle words and broadcast
//! frames count as words sent, so shares that leave no room for them cannot be reached; each channel then has somewhat
//! less, but none stops sending. A channel must have enough time-slots for its share.
//!
//! # Units
//!
//! Words are those of one lane, SDF and EDF included. On a link of several lanes, count rows instead in every call: a
//! share is a ratio and stays the same.
//!
//! Credits are 64-bit integers in units of 2^-16 word. The decrease of a frame is rounded down to this unit, by which a
//! channel that sends full frames has at most 2.4e-7 of its share too much; no error accumulates. The credit limit may
//! be up to 2^30 words, and any number of words may be sent.

mod access;
mod broadcast;
mod config;
mod error;

pub use access::{Flags, MediumAccess, VcStatus};
pub use broadcast::BroadcastCredit;
pub use config::{Limits, Share, VcQos};
pub use error::QosError;

/// Number of virtual channels that a link can have.
pub const MAX_CHANNELS: usize = 32;
/// Number of priority levels. Level 0 is the highest.
pub const PRIORITIES: u8 = 16;
/// Number of time-slots of a schedule.
pub const TIME_SLOTS: u8 = 64;
/// Time-slots of a channel that may send in all of them.
pub const ALL_SLOTS: u64 = u64::MAX;
