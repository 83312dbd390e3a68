//! The thread that paints.

use super::gallery::Gallery;
use super::picture::Picture;
use crate::status::PictureInfo;
use shotline_acquire::cpu;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Minimum time between two pictures of one kind: 20 a second.
const INTERVAL: Duration = Duration::from_millis(50);

/// Paints one kind of picture.
pub trait Painter: Send {
    /// Returns the kind.
    fn info(&self) -> PictureInfo;
    /// Paints the current data; none if there are none within a short time. The studio sets the number and the time of
    /// the picture. `stop` is set while no viewer wants it.
    fn paint(&mut self, stop: &AtomicBool) -> Option<Picture>;
}

/// Paints the pictures that pages show. Dropped, it ends after the present picture: nothing waits for a thread of idle
/// priority.
#[derive(Debug)]
pub struct Studio {
    gallery: Arc<Gallery>,
    stop: Arc<AtomicBool>,
}

impl Studio {
    /// Opens a studio of these painters.
    ///
    /// # Errors
    /// If its thread cannot be started.
    pub fn open(painters: Vec<Box<dyn Painter>>) -> io::Result<Self> {
        let gallery = Gallery::new(painters.iter().map(|painter| painter.info()).collect());
        let stop = Arc::new(AtomicBool::new(false));
        if !painters.is_empty() {
            let (gallery, stop) = (Arc::clone(&gallery), Arc::clone(&stop));
            let work = move || {
                cpu::unpin();
                // Without this priority pictures are painted as well, only less politely.
                let _ = cpu::make_idle();
                paint(painters, &gallery, &stop);
            };
            std::thread::Builder::new().name("pictures".into()).spawn(work)?;
        }
        Ok(Self { gallery, stop })
    }

    /// Returns the gallery of its pictures.
    pub fn gallery(&self) -> &Arc<Gallery> {
        &self.gallery
    }
}

impl Drop for Studio {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        self.gallery.close();
    }
}

/// State of a kind.
struct Easel {
    painter: Box<dyn Painter>,
    sequence: u64,
    next: Instant,
    /// The painter has panicked, and is not called again.
    has_failed: bool,
}

impl Easel {
    /// Paints, unless no viewer wants it any more. A painter that panics ends only its own pictures.
    fn paint(&mut self, unwatched: &AtomicBool) -> Option<Picture> {
        match catch_unwind(AssertUnwindSafe(|| self.painter.paint(unwatched))) {
            Ok(picture) => picture,
            Err(_) => {
                self.has_failed = true;
                let note = "this picture has ended: a defect of the program".into();
                Some(Picture::message(self.painter.info().kind, note))
            }
        }
    }
}

fn paint(painters: Vec<Box<dyn Painter>>, gallery: &Gallery, stop: &AtomicBool) {
    let new = |painter| Easel { painter, sequence: 0, next: Instant::now(), has_failed: false };
    let mut easels: Vec<Easel> = painters.into_iter().map(new).collect();
    while !stop.load(Relaxed) {
        let mut painted = false;
        for (index, easel) in easels.iter_mut().enumerate() {
            let now = Instant::now();
            if easel.has_failed || !gallery.is_watched(index) || now < easel.next {
                continue;
            }
            // That of its beginning: how long it takes says nothing about the data.
            let time_ms = unix_ms();
            let Some(unwatched) = gallery.unwatched(index) else { continue };
            // A picture that takes long is followed by the next at once, but never by two.
            easel.next = (easel.next + INTERVAL).max(now);
            let Some(mut picture) = easel.paint(unwatched) else { continue };
            painted = true;
            easel.sequence += 1;
            picture.header.sequence = easel.sequence;
            picture.header.unix_ms = time_ms;
            gallery.hang(index, &picture);
        }
        if !painted {
            std::thread::sleep(INTERVAL / 10);
        }
    }
}

/// Returns the time in ms since 1970.
pub(crate) fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::super::{Axis, Format, Header, Viewer};
    use super::*;
    use shotline_testing::wait_until;

    struct Counter(u8);

    impl Painter for Counter {
        fn info(&self) -> PictureInfo {
            PictureInfo { kind: "counter", label: "Counter".into(), about: "Counts.".into() }
        }
        fn paint(&mut self, _stop: &AtomicBool) -> Option<Picture> {
            self.0 = self.0.wrapping_add(1);
            let header = Header::new("counter", Format::Gray8, 1, 1, Axis::default(), Axis::default());
            Some(Picture { header, payload: vec![self.0] })
        }
    }

    #[test]
    fn only_watched_pictures_are_painted() {
        let studio = Studio::open(vec![Box::new(Counter(0))]).unwrap();
        let gallery = Arc::clone(studio.gallery());
        assert!(gallery.newest(0).is_none(), "no page shows it");
        let mut viewer = Viewer::new(&gallery, gallery.index("counter").unwrap());
        wait_until("three pictures", || gallery.newest(0).is_some_and(|hung| hung.sequence >= 3));
        let first = viewer.take().unwrap();
        assert!(first.last().is_some_and(|number| *number >= 3));
        drop(viewer);
        assert!(!gallery.is_watched(0));
        drop(studio);
        assert!(Viewer::new(&gallery, 0).take().is_some(), "the last picture stays");
    }

    /// Panics at its second picture.
    struct Faulty(u8);

    impl Painter for Faulty {
        fn info(&self) -> PictureInfo {
            PictureInfo { kind: "faulty", label: "Faulty".into(), about: "Fails.".into() }
        }
        fn paint(&mut self, _stop: &AtomicBool) -> Option<Picture> {
            self.0 += 1;
            assert!(self.0 < 2, "a defect");
            Some(Picture::message("faulty", String::new()))
        }
    }

    #[test]
    fn a_painter_that_panics_ends_only_its_own_pictures() {
        let studio = Studio::open(vec![Box::new(Faulty(0)), Box::new(Counter(0))]).unwrap();
        let gallery = Arc::clone(studio.gallery());
        let mut viewers = [0, 1].map(|index| Viewer::new(&gallery, index));
        wait_until("the first painter fails", || gallery.newest(0).is_some_and(|hung| hung.sequence == 2));
        let message = viewers[0].take().unwrap();
        assert!(String::from_utf8_lossy(&message).contains("a defect of the program"));
        let before = gallery.newest(1).map_or(0, |hung| hung.sequence);
        wait_until("the other one paints", || gallery.newest(1).is_some_and(|hung| hung.sequence > before));
        assert_eq!(gallery.newest(0).unwrap().sequence, 2);
    }

    /// Waits until no viewer wants its picture, as a painter does whose data do not come.
    struct Patient(Arc<AtomicBool>);

    impl Painter for Patient {
        fn info(&self) -> PictureInfo {
            PictureInfo { kind: "patient", label: "Patient".into(), about: "Waits.".into() }
        }
        fn paint(&mut self, stop: &AtomicBool) -> Option<Picture> {
            self.0.store(true, Relaxed);
            wait_until("no viewer watches", || stop.load(Relaxed));
            self.0.store(false, Relaxed);
            None
        }
    }

    #[test]
    fn a_painter_stops_when_its_last_viewer_leaves() {
        let waits = Arc::new(AtomicBool::new(false));
        let studio = Studio::open(vec![Box::new(Patient(Arc::clone(&waits)))]).unwrap();
        let gallery = Arc::clone(studio.gallery());
        let viewers = [Viewer::new(&gallery, 0), Viewer::new(&gallery, 0)];
        wait_until("it paints", || waits.load(Relaxed));
        let [first, last] = viewers;
        drop(first);
        assert!(gallery.is_watched(0));
        drop(last);
        wait_until("it has stopped", || !waits.load(Relaxed));
        let _late = Viewer::new(&gallery, 0);
        wait_until("it paints again", || waits.load(Relaxed));
        drop(studio);
        wait_until("the end of a studio stops it as well", || !waits.load(Relaxed) && !gallery.is_watched(0));
    }
}
