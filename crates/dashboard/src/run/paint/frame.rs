//! Frames: shots that are images.

use super::EventPainter;
use super::notes::{faults, joined};
use super::rf::{ANY, first_shot};
use crate::pictures::{Axis, Format, Header, Picture};
use crate::status::PictureInfo;
use shotline_acquire::live::About;
use shotline_acquire::tap::Request;
use shotline_store::shot::{Event, Shot};
use shotline_wire::shot::{Geometry, Packing};

const KIND: &str = "frame";
/// Maximum width and height of the picture; of larger frames every n-th pixel of every n-th row is shown.
const MAX_SIDE: usize = 1024;
/// Above this step the shown pixels are taken one by one instead of with their rows.
const MAX_ROW_STEP: usize = 16;
/// Sizes of common sensors, for frames whose size is not set.
const COMMON: [[usize; 2]; 12] = [
    [320, 240],
    [640, 480],
    [800, 600],
    [1024, 768],
    [1280, 720],
    [1280, 960],
    [1280, 1024],
    [1920, 1080],
    [1920, 1200],
    [2592, 1944],
    [3280, 2464],
    [3840, 2160],
];

/// The painter.
pub(super) struct Image {
    size: Option<[u32; 2]>,
    row: Vec<u8>,
}

impl Image {
    pub(super) fn new(size: Option<[u32; 2]>) -> Self {
        Self { size, row: Vec::new() }
    }
}

/// Returns width and height in pixels of frames whose size is not set.
fn guess(geometry: &Geometry) -> [usize; 2] {
    let (channels, samples) = (usize::from(geometry.channels()), geometry.samples() as usize);
    if channels > 1 {
        return [channels, samples];
    }
    // Common sizes are not square, so that no number of pixels has two of them.
    if let Some(size) = COMMON.into_iter().find(|[width, height]| width * height == samples) {
        return size;
    }
    // A square; its last rows may be incomplete.
    let width = samples.isqrt() + usize::from(samples.isqrt().pow(2) < samples);
    [width.max(1), samples.div_ceil(width.max(1))]
}

/// The pixels of a shot.
struct Pixels<'a> {
    shot: &'a Shot,
    packing: Packing,
    bits: u32,
    count: usize,
    bytes: usize,
}

impl Pixels<'_> {
    /// Writes every `step`-th pixel from `first` on, each as a byte; those beyond the end of the shot are black.
    fn row(&self, first: usize, step: usize, out: &mut [u8], bytes: &mut Vec<u8>) {
        let shown = self.count.saturating_sub(first).div_ceil(step).min(out.len());
        let (out, rest) = out.split_at_mut(shown);
        rest.fill(0);
        if step > MAX_ROW_STEP {
            for (at, pixel) in out.iter_mut().enumerate() {
                let index = first + at * step;
                let base = self.take(index, 1, bytes);
                *pixel = self.level(bytes, index, base);
            }
        } else {
            let base = self.take(first, shown.saturating_sub(1) * step + 1, bytes);
            for (at, pixel) in out.iter_mut().enumerate() {
                *pixel = self.level(bytes, first + at * step, base);
            }
        }
    }

    /// Copies the bytes of `count` pixels from `first` on out of the buffer. Returns the index of the first pixel that
    /// these bytes begin with: pixels of 12 bits are pairs.
    fn take(&self, first: usize, count: usize, bytes: &mut Vec<u8>) -> usize {
        let (base, from, len) = match self.packing {
            Packing::Packed12 => (first / 2 * 2, first / 2 * 3, (first + count).div_ceil(2) * 3 - first / 2 * 3),
            Packing::Int16Le | Packing::Int16Be => (first, first * 2, count * 2),
            Packing::Uint8 => (first, first, count),
        };
        bytes.resize(len.min(self.bytes.saturating_sub(from)), 0);
        self.shot.buffer.read(from.min(self.bytes) as u32, bytes);
        base
    }

    /// Returns a pixel as a byte.
    fn level(&self, bytes: &[u8], index: usize, base: usize) -> u8 {
        let byte = |at: usize| u32::from(bytes.get(at).copied().unwrap_or(0));
        let at = index - base;
        let (value, bits) = match self.packing {
            Packing::Packed12 if at.is_multiple_of(2) => (byte(at / 2 * 3) << 4 | byte(at / 2 * 3 + 1) >> 4, 12),
            Packing::Packed12 => ((byte(at / 2 * 3 + 1) & 15) << 8 | byte(at / 2 * 3 + 2), 12),
            Packing::Int16Le => (byte(2 * at) | byte(2 * at + 1) << 8, 16),
            Packing::Int16Be => (byte(2 * at) << 8 | byte(2 * at + 1), 16),
            Packing::Uint8 => (byte(at), 8),
        };
        let bits = self.bits.clamp(1, bits);
        let scaled = if bits > 8 { value >> (bits - 8) } else { value << (8 - bits) };
        scaled.min(255) as u8
    }
}

impl EventPainter for Image {
    fn info(&self) -> PictureInfo {
        let about = "Shots of the first link as images, the upper 8 bits of each pixel.";
        PictureInfo { kind: KIND, label: "Frame".into(), about: about.into() }
    }

    fn request(&mut self, _about: &About, _events_per_s: f64) -> Request {
        ANY
    }

    fn paint(&mut self, about: &About, events: &[Event]) -> Option<Picture> {
        let (event, _, shot) = first_shot(events)?;
        let geometry = &about.geometry;
        let count = geometry.samples() as usize * usize::from(geometry.channels());
        let [width, height] = match self.size {
            Some(size) => size.map(|side| side.max(1) as usize),
            None => guess(geometry),
        };
        let step = width.max(height).div_ceil(MAX_SIDE);
        let (columns, rows) = (width.div_ceil(step), height.div_ceil(step));
        let bytes = geometry.sample_bytes().min(shot.buffer.len()) as usize;
        let pixels = Pixels { shot, packing: geometry.packing(), bits: geometry.bits().into(), count, bytes };
        let mut payload = vec![0; columns * rows];
        for (row, out) in payload.chunks_exact_mut(columns).enumerate() {
            pixels.row((row * step).saturating_mul(width), step, out, &mut self.row);
        }
        let axis = |label, side: usize| Axis { label, unit: "", from: 0.0, to: (side - 1) as f64 };
        let full = f64::from((1_u32 << geometry.bits().clamp(1, 16)) - 1);
        let value = Axis { label: "brightness", unit: "", from: 0.0, to: full };
        let size = match width.saturating_mul(height) == count {
            true => String::new(),
            false => format!("an image of {width} x {height} pixels, of a shot of {count}"),
        };
        let reduced = if step > 1 { format!("reduced from {width} x {height} pixels") } else { String::new() };
        let note = joined([faults(about, event, shot), size, reduced]);
        let (x, y) = (axis("column", width), axis("row", height));
        let header = Header { value, note, ..Header::new(KIND, Format::Gray8, columns, rows, x, y) };
        Some(Picture { header, payload })
    }
}
