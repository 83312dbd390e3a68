//! What the page shows of images.

use super::report::ImagesReport;
use crate::output::Rows as _;
use crate::serve::BoardPage;
use crate::serve::metrics::{Metrics, counter, gauge, loss, with_unit};
use shotline_dashboard::status::{Family, LogLevel, Phase, Rate, Status, Table};
use std::cell::RefCell;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// The page, and the final state once it is known.
pub struct ImagesPage {
    page: BoardPage,
    last: RefCell<Option<Status>>,
}

impl ImagesPage {
    /// Shows nothing yet.
    pub fn new(page: BoardPage) -> Self {
        Self { page, last: RefCell::default() }
    }

    /// Publishes the state while images are written or shown, if the last one is old enough.
    pub fn publish(&self, status: impl FnOnce() -> Status) {
        if self.page.board().is_some() {
            self.page.publish(Instant::now(), status);
        }
    }

    /// Adds a warning to the log.
    pub fn warn(&self, warning: &str) {
        self.page.board().into_iter().for_each(|board| board.log(LogLevel::Warning, warning));
    }

    /// Sets the final state, which [`Self::end`] serves.
    pub fn set_last(&self, status: Status) {
        *self.last.borrow_mut() = Some(status);
    }

    /// Serves the final state, if it is known, for the requested time.
    pub fn end(self, stop: &AtomicBool) {
        if let Some(last) = self.last.into_inner() {
            self.page.end(|| last, stop);
        }
    }
}

/// Returns the state while images are written.
pub fn writing(done: u64, all: u64) -> Status {
    let mut metrics = Metrics::default();
    metrics.add(counter("images_written", WRITTEN), Vec::new(), done);
    let columns = vec!["images written".into(), "images".into()];
    let table = Table { title: "Now".into(), columns, rows: vec![vec![done.to_string(), all.to_string()]] };
    Status { phase: Phase::Starting, families: metrics.families(), tables: vec![table], ..Status::default() }
}

/// Returns the state while images are shown, and that at the end.
pub fn status(report: &ImagesReport, progress: Option<f64>, is_last: bool) -> Status {
    // What is known only at the end, or once the target is lost.
    let is_known = |name: &str| match name {
        "processor" => is_last,
        "end" => is_last || report.lost.is_some(),
        _ => true,
    };
    let rows = report.rows().into_iter().filter(|(name, _)| is_known(name));
    let rows = rows.map(|(name, value)| vec![name, value]).collect();
    let table = Table { title: "Images".into(), columns: vec!["".into(), "".into()], rows };
    Status { phase: Phase::Running, progress, families: families(report), tables: vec![table], ..Status::default() }
}

const WRITTEN: &str = "Images that were written to the target";

fn families(report: &ImagesReport) -> Vec<Family> {
    let mut metrics = Metrics::default();
    let rate = |label, unit, factor, family| Family { rate: Some(Rate { label, unit, factor }), ..family };
    let presented = counter("frames_presented", "Frames that were passed to the display");
    let read = with_unit("bytes", counter("image_read", "Bytes of images that were read from the target"));
    let written = with_unit("bytes", counter("image_written", "Bytes of images that were written to the target"));
    let counts = [
        (counter("images_written", WRITTEN), report.images),
        (written, report.images * report.image_bytes),
        (counter("images_other_sizes", "Images of other sizes than the frames"), report.other_sizes),
        (counter("images_read", "Images that were read from the target"), report.images_read),
        (rate("Images read", "Gbit/s", 8e-9, read), report.bytes_read),
        (rate("Frames", "frames/s", 1.0, presented), report.presented),
        (gauge("frames_shown", "Frames that became visible"), report.shown),
        (gauge("frames_skipped", "Frames that never became visible"), report.skipped),
        (gauge("frames_late", "Frames that became visible after their refresh"), report.late),
        (
            counter("frames_repeated", "Refreshes at which the frame before was shown again instead of the due one"),
            report.repeated,
        ),
        (counter("display_refreshes", "Refreshes from the first frame to the last one"), report.refreshes),
        (counter("display_resizes", "Times that the window or screen had another size"), report.resizes),
        (counter("display_stalls", "Times that the display did not refresh for seconds"), report.stalls),
        (counter("target_stalls", "Times that the target did not answer for seconds"), report.target_stalls),
    ];
    for (family, count) in counts {
        metrics.add(family, Vec::new(), count);
    }
    if let (Some(verified), Some(mismatched)) = (report.verified, report.mismatched) {
        let same = counter("frames_verified", "Frames whose pixels were those that were written to the target");
        metrics.add(same, Vec::new(), verified);
        let other = counter("frames_mismatched", "Frames whose pixels were not those that were written to the target");
        metrics.add(loss(other), Vec::new(), mismatched);
    }
    let seconds = |name, help| with_unit("seconds", gauge(name, help));
    let gauges = [
        (
            with_unit("hertz", gauge("frame_rate", "Frames in a second, from the first one to the last one")),
            report.images_per_s,
        ),
        (with_unit("hertz", gauge("display_refresh_rate", "Refreshes of the display in a second")), report.refresh_hz),
        (seconds("image_writing", "Time in which the images were written"), report.write_s),
        (seconds("image_read_mean", "Mean time in which an image was read"), report.read_ms / 1e3),
        (seconds("image_read_max", "Longest time in which an image was read"), report.read_max_ms / 1e3),
        (seconds("images_shown_for", "Time for which images were shown"), report.seconds),
    ];
    for (family, value) in gauges {
        metrics.set(family, Vec::new(), value);
    }
    let sides = [("initiator", Some(report.cpu_s)), ("target", report.target_cpu_s)];
    let cpu = seconds("images_cpu", "Processor time while images were shown; of the target at the end");
    for (side, value) in sides.into_iter().filter_map(|(side, value)| Some((side, value?))) {
        metrics.set(cpu.clone(), vec![("side", side.to_owned())], value);
    }
    metrics.families()
}
