//! The frame that is shown, as a picture of the page.

use shotline_dashboard::pictures::{Axis, Format, Header, Painter, Picture};
use shotline_dashboard::status::PictureInfo;
use shotline_display::{FrameBuffer, Mode, PIXEL_BYTES};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

const KIND: &str = "frame";
/// Maximum width and height of the picture; of larger frames every n-th pixel of every n-th row is shown.
const MAX_SIDE: usize = 640;
/// More than the number of frame buffers of a display.
const BUFFERS: u64 = 64;
/// Attempts to read a frame while it is shown.
const ATTEMPTS: u32 = 3;

/// The buffer that the display shows: the number of the frame, from 1, and its buffer. 0 before the first frame.
#[derive(Debug, Default)]
pub struct Visible(AtomicU64);

impl Visible {
    /// Notes that the display shows a buffer.
    pub fn show(&self, buffer: usize) {
        // Only the player writes.
        let frame = self.0.load(Relaxed) / BUFFERS + 1;
        self.0.store(frame * BUFFERS + buffer as u64 % BUFFERS, Relaxed);
    }

    /// Returns the number of the frame and its buffer, if any is shown.
    fn get(&self) -> Option<(u64, usize)> {
        let value = self.0.load(Relaxed);
        (value > 0).then_some((value / BUFFERS, (value % BUFFERS) as usize))
    }
}

/// Paints the frame buffer that is shown. It reads the buffer while the display has it.
pub struct FramePainter {
    mode: Mode,
    buffers: Vec<FrameBuffer>,
    visible: Arc<Visible>,
    painted: u64,
    row: Vec<u8>,
}

impl FramePainter {
    /// Creates the painter of a display's buffers.
    pub fn new(mode: Mode, buffers: &[FrameBuffer], visible: Arc<Visible>) -> Self {
        let row = vec![0; mode.width as usize * PIXEL_BYTES];
        Self { mode, buffers: buffers.to_vec(), visible, painted: 0, row }
    }

    /// Copies every `step`-th pixel of every `step`-th row as red, green and blue.
    fn read(&mut self, buffer: usize, step: usize) -> Option<Vec<u8>> {
        let FrameBuffer { region, offset, stride } = self.buffers.get(buffer)?;
        let mut payload = Vec::new();
        for number in (0..self.mode.height as usize).step_by(step) {
            region.read(offset + number * stride, &mut self.row);
            let pixels = self.row.chunks_exact(PIXEL_BYTES).step_by(step);
            payload.extend(pixels.flat_map(|pixel| [pixel[2], pixel[1], pixel[0]]));
        }
        Some(payload)
    }
}

impl Painter for FramePainter {
    fn info(&self) -> PictureInfo {
        let about = "The frame that the display shows, with the statistics in its top rows.";
        PictureInfo { kind: KIND, label: "Frame".into(), about: about.into() }
    }

    fn paint(&mut self, _stop: &AtomicBool) -> Option<Picture> {
        let (mut frame, mut buffer) = self.visible.get().filter(|(frame, _)| *frame != self.painted)?;
        let [width, height] = [self.mode.width, self.mode.height].map(|side| side as usize);
        let step = width.max(height).div_ceil(MAX_SIDE);
        let mut payload = self.read(buffer, step)?;
        // A buffer is filled again only after the next frame is shown.
        let mut attempts = 1;
        while attempts < ATTEMPTS
            && let Some(now) = self.visible.get().filter(|(now, _)| *now != frame)
        {
            ((frame, buffer), attempts) = (now, attempts + 1);
            payload = self.read(buffer, step)?;
        }
        self.painted = frame;
        let is_whole = self.visible.get().is_some_and(|(now, _)| now == frame);
        let axis = |label, side: usize| Axis { label, unit: "", from: 0.0, to: (side - 1) as f64 };
        let (columns, rows) = (width.div_ceil(step), height.div_ceil(step));
        let reduced = (step > 1).then(|| format!("reduced from {width} x {height} pixels"));
        let mixed = (!is_whole).then(|| "parts may be of a later frame".to_owned());
        let note = reduced.into_iter().chain(mixed).collect::<Vec<_>>().join("; ");
        let (x, y) = (axis("column", width), axis("row", height));
        let header = Header { shot: frame, note, ..Header::new(KIND, Format::Rgb8, columns, rows, x, y) };
        Some(Picture { header, payload })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shotline_memory::Region;

    #[test]
    fn shown_buffers_are_painted_once_and_reduced() {
        let mode = Mode { width: 1281, height: 3, refresh_mhz: 1 };
        let stride = 1281 * PIXEL_BYTES + 4;
        let region = Region::host(2 * stride * 3).unwrap();
        let buffer = |index: usize| FrameBuffer { region: Arc::clone(&region), offset: index * stride * 3, stride };
        region.write(stride * 3, &[1, 2, 3, 0]);
        region.write(stride * 3 + 3 * PIXEL_BYTES, &[4, 5, 6, 0]);
        let visible = Arc::new(Visible::default());
        let mut painter = FramePainter::new(mode, &[buffer(0), buffer(1)], Arc::clone(&visible));
        let stop = AtomicBool::new(false);
        assert_eq!(painter.paint(&stop), None, "nothing is shown");
        visible.show(1);
        let Picture { header, payload } = painter.paint(&stop).unwrap();
        assert_eq!((header.width, header.height, header.shot), (427, 1, 1));
        assert_eq!((&payload[..6], payload.len()), (&[3, 2, 1, 6, 5, 4][..], 427 * 3));
        assert_eq!(header.note, "reduced from 1281 x 3 pixels");
        assert_eq!(painter.paint(&stop), None, "it is painted");
        visible.show(0);
        assert!(painter.paint(&stop).is_some_and(|picture| picture.header.shot == 2));
    }
}
