//! The simulated packet card as a device for a driver in another process.
//!
//! [`Server`] has the card's RTL ([`shotline_rtl::card::Device`]) and a Unix socket. A driver connects, and gets shared
//! memory in which it accesses registers and rings (`dpdk/window.h`); it passes the memory that the card may access, and
//! event descriptors for interrupts. For a driver in a virtual machine, shared memory and the machine's memory are files,
//! and there is no socket. Frames come from a [`Source`], and those that software sends go to a [`Sink`].
//!
//! Nothing that a driver does can do more than end its connection, except that it can end this process by truncating
//! memory that it has passed, as with every back-end in user space.

mod channels;
mod dma;
mod error;
mod guest;
mod interface;
mod send;
mod serve;
mod session;
mod socket;
mod sys;
mod window;
mod wire;

pub use error::CardError;
pub use interface::Interface;
pub use send::Sent;
pub use serve::{Notice, Server, Settings, Totals};
pub use wire::{Incoming, Sink, Source};
