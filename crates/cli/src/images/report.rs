//! Report of `shotline images`.

use super::player::{End, Played};
use crate::output::Rows;
use serde::Serialize;
use shotline_display::Mode;

/// The JSON object of a run.
#[derive(Serialize)]
pub struct ImagesReport {
    pub display: String,
    pub transport: String,
    pub width: u32,
    pub height: u32,
    /// Refreshes of the display in a second.
    pub refresh_hz: f64,
    pub buffers: usize,
    /// Images in the target's memory.
    pub images: u64,
    /// Bytes of an image there.
    pub image_bytes: u64,
    /// Images that had another size than the frames.
    pub other_sizes: u64,
    /// Time in which they were written.
    pub write_s: f64,
    pub write_gbps: f64,
    /// Images in a second, from the first frame to the last one.
    pub images_per_s: f64,
    pub read_gbps: f64,
    /// Mean time in which an image was read.
    pub read_ms: f64,
    /// Longest time in which an image was read.
    pub read_max_ms: f64,
    pub images_read: u64,
    pub bytes_read: u64,
    /// Frames that were passed to the display. They were shown, skipped, or the display still had them at the end.
    pub presented: u64,
    pub shown: u64,
    pub skipped: u64,
    /// Frames that were shown after the refresh at which they were due.
    pub late: u64,
    /// Refreshes at which the frame before was shown again instead.
    pub repeated: u64,
    /// Refreshes from the first frame to the last one.
    pub refreshes: u64,
    /// Frames whose pixels on the display were those that were written to the target. `null` if the display does not tell.
    pub verified: Option<u64>,
    pub mismatched: Option<u64>,
    /// Times that the window or screen had another size.
    pub resizes: u64,
    /// Times that the display did not refresh for seconds.
    pub stalls: u64,
    /// Times that the target did not answer for seconds.
    pub target_stalls: u64,
    /// Time of the run.
    pub seconds: f64,
    /// Processor time of this process while images were shown.
    pub cpu_s: f64,
    /// Processor time of the target meanwhile. `null` if it is lost.
    pub target_cpu_s: Option<f64>,
    /// Why the run ended.
    pub end: String,
    /// Why no more images could be read. `null` if they could.
    pub lost: Option<String>,
}

/// What was written to the target.
pub struct Written {
    /// Images.
    pub images: u64,
    /// Bytes of each.
    pub image_bytes: u64,
    /// Images of other sizes than the frames.
    pub other_sizes: u64,
    /// Time of the writes.
    pub seconds: f64,
}

/// Processor time of a run in seconds.
pub struct Processor {
    /// Of this process.
    pub own: f64,
    /// Of the target, if it is not lost.
    pub target: Option<f64>,
}

/// Where images came from and were shown.
#[derive(Clone)]
pub struct Places {
    /// The display.
    pub display: String,
    /// How the target was reached.
    pub transport: String,
    /// Mode of the display.
    pub mode: Mode,
    /// Number of frame buffers.
    pub buffers: usize,
}

impl ImagesReport {
    /// Creates the report of a run.
    pub fn new(places: Places, written: &Written, played: &Played, end: &End, processor: &Processor) -> Self {
        let frames = &played.frames;
        let gbit = |bytes: u64| bytes as f64 * 8.0 / 1e9;
        let seconds = played.elapsed.as_secs_f64();
        let is_checked = played.verified + played.mismatched > 0;
        Self {
            display: places.display,
            transport: places.transport,
            width: places.mode.width,
            height: places.mode.height,
            refresh_hz: places.mode.refresh_hz(),
            buffers: places.buffers,
            images: written.images,
            image_bytes: written.image_bytes,
            other_sizes: written.other_sizes,
            write_s: written.seconds,
            write_gbps: gbit(written.images * written.image_bytes) / written.seconds.max(1e-9),
            images_per_s: frames.rate(),
            read_gbps: gbit(played.bytes_read) / seconds.max(1e-9),
            read_ms: played.reading.as_secs_f64() * 1e3 / played.images_read.max(1) as f64,
            read_max_ms: played.longest_read.as_secs_f64() * 1e3,
            images_read: played.images_read,
            bytes_read: played.bytes_read,
            presented: frames.presented,
            shown: frames.shown,
            skipped: frames.skipped,
            late: frames.late,
            repeated: frames.repeated,
            refreshes: frames.refreshes(),
            verified: is_checked.then_some(played.verified),
            mismatched: is_checked.then_some(played.mismatched),
            resizes: played.resizes,
            stalls: played.stalls,
            target_stalls: played.target_stalls,
            seconds,
            cpu_s: processor.own,
            target_cpu_s: processor.target,
            end: match end {
                End::Done => "done".into(),
                End::Closed => "the window was closed".into(),
                End::Interrupted => "interrupted".into(),
                End::Display(error) => error.to_string(),
            },
            lost: played.lost.clone(),
        }
    }
}

impl Rows for ImagesReport {
    fn rows(&self) -> Vec<(String, String)> {
        let percent = |seconds: f64| format!("{:.1} %", seconds / self.seconds.max(1e-9) * 100.0);
        let target = self.target_cpu_s.map_or_else(|| "lost".into(), percent);
        let mut rows = vec![
            ("display", format!("{}, {}x{} at {:.2} Hz", self.display, self.width, self.height, self.refresh_hz)),
            ("images in the target's memory", format!("{} of {} bytes", self.images, self.image_bytes)),
            ("written", format!("{:.2} Gbit/s", self.write_gbps)),
            ("images shown", self.shown.to_string()),
            ("late", self.late.to_string()),
            ("repeated", self.repeated.to_string()),
            ("skipped", self.skipped.to_string()),
            ("rate", format!("{:.2} images/s", self.images_per_s)),
            ("read", format!("{:.2} Gbit/s", self.read_gbps)),
            ("read of an image", format!("{:.2} ms, at most {:.2} ms", self.read_ms, self.read_max_ms)),
            ("processor", format!("{}, target {target}", percent(self.cpu_s))),
        ];
        if let (Some(verified), Some(mismatched)) = (self.verified, self.mismatched) {
            rows.push(("frames verified", format!("{verified}, {mismatched} differ")));
        }
        let notes = [
            ("images of other sizes", self.other_sizes),
            ("changes of the window's size", self.resizes),
            ("times without a refresh", self.stalls),
            ("times without an answer", self.target_stalls),
        ];
        rows.extend(notes.into_iter().filter(|(_, count)| *count > 0).map(|(name, count)| (name, count.to_string())));
        rows.push(("end", self.lost.clone().unwrap_or_else(|| self.end.clone())));
        rows.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}
