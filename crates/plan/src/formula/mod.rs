//! Formulas: functions of plain numbers, each with its source.
//!
//! Suffixes give the units: `_s` seconds, `_hz` per second, `bits_per_s`, `bytes`. A *limit* always refers to payload
//! (bytes of shots), never to raw line bits, so limits of different stages are comparable.
//!
//! | module | formulas |
//! |---|---|
//! | [`shot`] | shot rate, missed triggers, raw data rate |
//! | [`link`] | payload rates of Ethernet, InfiniBand and SpaceFibre |
//! | [`bus`] | PCIe, DMA engines, memory |
//! | [`queue`] | drops of an overloaded stage, bursts, waiting times, stalls |

pub mod bus;
pub mod link;
pub mod queue;
pub mod shot;
