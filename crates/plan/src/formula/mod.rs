//! The formulas: each is one function of plain numbers, with its source.
//!
//! Suffixes tell the units: `_s` seconds, `_hz` per second, `bits_per_s`, `bytes`. A *limit* is always what a
//! stage moves of payload (bytes of shots), never of raw line bits, so that limits of different stages compare.
//!
//! | module | formulas |
//! |---|---|
//! | [`shot`] | shot rate, missed triggers, raw data rate |
//! | [`link`] | Ethernet, InfiniBand and SpaceFibre: payload in what a line carries |
//! | [`bus`] | PCIe, the words of a DMA engine, memory |
//! | [`queue`] | drops of an overloaded stage, bursts, waiting times, stalls |

pub mod bus;
pub mod link;
pub mod queue;
pub mod shot;
