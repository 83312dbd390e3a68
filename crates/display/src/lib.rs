//! Displays whose frame buffers are memory regions: a peer writes an image into one by RDMA, or an initiator reads it there,
//! and the display shows it at a refresh without another copy by this process.
//!
//! - [`Display`]: mode, frame buffers, presentation, events. It is used from one thread, and only [`DisplayKind::open`]
//!   blocks.
//! - [`DisplayKind`]: the registry of displays, one file or folder each; [`conformance`]: the suite that each passes.
//! - [`FrameCounters`]: late and repeated frames, from the refreshes at which frames were shown.
//!
//! A pixel has 4 bytes: blue, green, red, and one that is ignored (`XRGB8888` of DRM and Wayland, a TrueColor visual of 24
//! bits on a little-endian X server).

mod buffers;
pub mod conformance;
mod counters;
mod display;
mod error;
mod kind;
mod kms;
mod mode;
mod none;
mod wayland;
mod x11;

pub use buffers::FrameBuffer;
pub use counters::FrameCounters;
pub use display::{Display, Event, Request, Shown};
pub use error::DisplayError;
pub use kind::DisplayKind;
pub use mode::Mode;

/// Bytes of a pixel.
pub const PIXEL_BYTES: usize = 4;
