//! The emulated digitizer.
//!
//! Its structure follows Ryoshi et al. (WEP090, PASJ 2018): a converter, an FPGA that computes IQ samples and their
//! spectrum, on-board memory used as a ring of blocks, a DMA engine, and a link. The paper's host ran these stages
//! sequentially and needed 76.3 ms for a block that is produced every 33.7 ms; here the stages run concurrently.
//!
//! ```text
//!  Source ── converter, down-conversion, spectrum: before the run
//!    │
//!    ▼
//!  Memory: distinct blocks, scattered          Ring ── produce(), by the sample clock ── overrun if full
//!    │                                          │ one completion per block
//!    │        ┌─────────────────────────────────┘
//!    ▼        ▼
//!  Engine ── build_list(), run() ──► Frames: two blocks of prebuilt frames
//!                                      │ stamp(), write_trailer(): 16 bytes a header, 256 a block; no sample
//!                                      ▼
//!                                    PrebuiltIo ── at the link's rate
//! ```
//!
//! [`Memory`] holds the samples that the device would take. [`Digitizer`] runs over any backend that sends prebuilt
//! frames.

mod block;
mod board;
mod config;
mod device;
pub mod dma;
mod frames;
mod header;
mod image;
mod pace;
mod source;
pub mod stage;
mod sys;
#[cfg(test)]
mod tests;

pub use board::{BoardCounters, Memory, PrepareError, Start};
pub use config::{BlockStart, Config, ConfigError, Format, Framing, Input, MAX_PAYLOAD, SAMPLE_BYTES, Stages, Tone};
pub use device::{Digitizer, DigitizerCounters, DigitizerError, SharedCounters};
pub use image::ImageError;
pub use source::SourceError;
pub use stage::StageCounters;
