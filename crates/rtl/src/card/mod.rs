//! The packet card's DMA module (`hdl/rtl/shotline_card_dma.sv`): its model, and a host that checks all it does.
//!
//! [`Card`] is the module with packets, a bus, memory, and the software of each channel. Every byte that the module
//! writes is checked: it must be in a buffer of its channel, reports must come after the payload that they count, and
//! each packet must be in memory whole, in order, or counted by one cause of loss. [`soak`] tests all of it at random;
//! [`load`] measures how fast the module is. [`Receiver`] is the card with its distributor
//! (`hdl/rtl/shotline_card_port.sv`) in the same surroundings: frames come at the rate of a wire.
//! [`Device`] is the same card for the software and the memory of another process; nothing that they do is an error.

mod access;
mod addresses;
mod block;
mod channel;
mod descriptors;
mod device;
mod dma;
mod driver;
mod expected;
mod feeder;
mod frames;
mod held;
mod host;
pub mod load;
mod memory;
mod model;
mod packet;
mod reads;
mod receiver;
mod requests;
pub mod soak;
mod source;
mod sys;
mod writes;

pub use block::{Block, Traffic};
pub use channel::Channel;
pub use descriptors::{Cause, Defect, Settings};
pub use device::{CHANNELS, Device};
pub use dma::Dma;
pub use driver::{Counters, State, channel_register};
pub use expected::Expected;
pub use feeder::Feeder;
pub use frames::{Found, Frames, MAX_GBPS};
pub use host::{Host, Stalls};
pub use memory::Memory;
pub use model::{Card, Size};
pub use packet::{Packet, Tally};
pub use reads::{Injected, ReadFaults};
pub use receiver::{Distributed, KEY, Outcome, Receiver, Setup};
pub use source::Source;
pub use writes::Event;
