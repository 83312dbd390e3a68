//! What a CRTC scans out: its mode and frame buffers. It is given back as it was.

use super::card::{Card, Output};
use super::modes;
use crate::buffers::Buffers;
use crate::{DisplayError, FrameBuffer, Mode, Request};
use drm::Device as _;
use drm::buffer::{Buffer as _, DrmFourcc};
use drm::control::dumbbuffer::DumbBuffer;
use drm::control::{self, Device as _, PageFlipFlags, framebuffer};
use shotline_memory::Region;
use std::path::Path;

/// Bits of a pixel, and how many of them are colours.
const BITS: u32 = 32;
const DEPTH: u32 = 24;

/// A buffer of the device, and the framebuffer object that shows it.
#[derive(Debug)]
struct Frame {
    buffer: DumbBuffer,
    framebuffer: Option<framebuffer::Handle>,
}

/// A CRTC with its mode and frame buffers.
#[derive(Debug)]
pub(super) struct Scanout {
    pub card: Card,
    pub output: Output,
    /// Chosen mode.
    pub mode: Mode,
    /// Modes of the screen.
    pub modes: Vec<Mode>,
    timings: control::Mode,
    /// Those of the caller, and a black one that is visible before the first of them is.
    frames: Vec<Frame>,
    /// Whether the CRTC has been changed.
    is_set: bool,
}

impl Scanout {
    /// Sets the mode of a screen, and allocates its frame buffers. The screen is black. Also returns the frame buffers.
    pub(super) fn open(device: Option<&Path>, request: &Request) -> Result<(Self, Buffers), DisplayError> {
        let opened = Card::open(device);
        let (card, output) = opened.map_err(|(name, reason)| DisplayError::Unavailable { name, reason })?;
        let name = format!("kms={}", card.path.display());
        if let Some(reason) = card.lacks_shared_memory() {
            return Err(DisplayError::NoSharedMemory { name, reason });
        }
        let usable = output.connector.modes().iter().filter_map(|mode| Some((modes::of_driver(mode)?, *mode)));
        let (modes, timings): (Vec<_>, Vec<_>) = usable.unzip();
        let chosen = modes::choose(&modes, request.mode);
        let Some((mode, timings)) = chosen.and_then(|index| modes.get(index).copied().zip(timings.get(index).copied()))
        else {
            return Err(DisplayError::NoMode { wanted: request.mode, offered: modes::words(&modes) });
        };
        let mut scanout = Self { card, output, mode, modes, timings, frames: Vec::new(), is_set: false };
        let unavailable = |reason| DisplayError::Unavailable { name: name.clone(), reason };
        let mut regions = Vec::new();
        for _ in 0..request.buffers {
            let buffer = scanout.add_frame().map_err(unavailable)?;
            regions.push(scanout.import(buffer).map_err(|error| error.named(&name))?);
        }
        scanout.add_frame().map_err(unavailable)?;
        let set = scanout.set_mode(None);
        set.map_err(|error| unavailable(format!("the mode {mode} cannot be set: {error}")))?;
        Ok((scanout, Buffers::new(regions)))
    }

    /// Allocates a buffer, which is black, with its framebuffer object.
    fn add_frame(&mut self) -> Result<DumbBuffer, String> {
        let size = (self.mode.width, self.mode.height);
        let failed = |error| format!("a frame buffer of {} x {} pixels cannot be allocated: {error}", size.0, size.1);
        let buffer = self.card.create_dumb_buffer(size, DrmFourcc::Xrgb8888, BITS).map_err(failed)?;
        self.frames.push(Frame { buffer, framebuffer: None });
        let framebuffer = self.card.add_framebuffer(&buffer, DEPTH, BITS).map_err(failed)?;
        self.frames.iter_mut().rev().take(1).for_each(|frame| frame.framebuffer = Some(framebuffer));
        Ok(buffer)
    }

    /// Exports a buffer as a dma-buf, and maps that as a region.
    fn import(&self, buffer: DumbBuffer) -> Result<FrameBuffer, ImportError> {
        let fd = self.card.buffer_to_prime_fd(buffer.handle(), drm::CLOEXEC | drm::RDWR);
        let fd = fd.map_err(|error| ImportError::Export(error.to_string()))?;
        let stride = buffer.pitch() as usize;
        let region = Region::from_dmabuf(fd, stride * self.mode.height as usize, true);
        Ok(FrameBuffer { region: region.map_err(ImportError::Memory)?, offset: 0, stride })
    }

    /// Sets the mode with a buffer, or the black one.
    pub(super) fn set_mode(&mut self, buffer: Option<usize>) -> std::io::Result<()> {
        let frame = buffer.map_or_else(|| self.frames.last(), |index| self.frames.get(index));
        let framebuffer = frame.and_then(|frame| frame.framebuffer);
        let (crtc, connector) = (self.output.crtc, self.output.connector.handle());
        // Also if it fails, it may have changed a part.
        self.is_set = true;
        self.card.set_crtc(crtc, framebuffer, (0, 0), &[connector], Some(self.timings))
    }

    /// Submits a page flip to a buffer, whose completion is an event.
    pub(super) fn flip(&self, buffer: usize) -> std::io::Result<()> {
        let framebuffer = self.frames.get(buffer).and_then(|frame| frame.framebuffer);
        let framebuffer = framebuffer.ok_or(std::io::ErrorKind::NotFound)?;
        self.card.page_flip(self.output.crtc, framebuffer, PageFlipFlags::EVENT, None)
    }

    /// Shows what was shown before.
    fn restore(&self) -> std::io::Result<()> {
        let crtc = self.output.crtc;
        let before = self.output.before.as_ref();
        if let Some((info, connectors)) = before
            && let (Some(mode), Some(framebuffer)) = (info.mode(), info.framebuffer())
            && !connectors.is_empty()
        {
            let restored = self.card.set_crtc(crtc, Some(framebuffer), info.position(), connectors, Some(mode));
            if restored.is_ok() {
                return restored;
            }
        }
        self.card.set_crtc(crtc, None, (0, 0), &[], None)
    }
}

impl Drop for Scanout {
    fn drop(&mut self) {
        // The device may have gone, and its file is closed in any case.
        if self.is_set {
            let _ = self.restore();
        }
        for Frame { buffer, framebuffer } in self.frames.drain(..) {
            if let Some(framebuffer) = framebuffer {
                let _ = self.card.destroy_framebuffer(framebuffer);
            }
            let _ = self.card.destroy_dumb_buffer(buffer);
        }
        let _ = self.card.release_master_lock();
    }
}

/// Reason for which a buffer cannot be memory of this process.
enum ImportError {
    Export(String),
    Memory(shotline_memory::MemoryError),
}

impl ImportError {
    fn named(self, name: &str) -> DisplayError {
        match self {
            Self::Export(error) => DisplayError::NoSharedMemory {
                name: name.into(),
                reason: format!("its driver does not export a frame buffer (dma-buf): {error}"),
            },
            Self::Memory(error) => error.into(),
        }
    }
}
