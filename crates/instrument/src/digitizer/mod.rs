//! The emulated digitizer.
//!
//! It is built like the one of the paper (Ryoshi et al., WEP090, PASJ 2018): a converter, an FPGA that makes IQ samples and
//! their spectrum, on-board memory as a ring of blocks, a DMA engine, and a link. The paper's host ran one after the other,
//! 76.3 ms for a block that is made every 33.7 ms; here the stages run at the same time.
//!
//! ```text
//!  Source ── converter, down-conversion, spectrum: before the run
//!    │
//!    ▼
//!  Memory: distinct blocks, scattered          Ring ── produce(), by the sample clock ── overrun if full
//!    │                                          │ a completion for each block
//!    │        ┌─────────────────────────────────┘
//!    ▼        ▼
//!  Engine ── build_list(), run() ──► Frames: two blocks of prebuilt frames
//!                                      │ stamp(), close(): 16 bytes a header, 256 a block; no sample is touched
//!                                      ▼
//!                                    PrebuiltIo ── at the link's rate
//! ```
//!
//! [`Memory`] makes what the device would sample, [`Digitizer`] runs over any backend that sends prebuilt frames.

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

pub use board::{Made, Memory, PrepareError, Start};
pub use config::{Begin, Config, ConfigError, Format, Framing, Input, MAX_PAYLOAD, SAMPLE_BYTES, Stages, Tone};
pub use device::{Digitizer, DigitizerError, Live, Stats};
pub use image::ImageError;
pub use source::SourceError;
pub use stage::Stage;
