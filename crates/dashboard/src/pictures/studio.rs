//! The thread that paints.

use super::gallery::Gallery;
use super::picture::Picture;
use crate::status::PictureInfo;
use shotline_acquire::cpu;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
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

/// Paints the pictures that pages show. It ends when dropped.
#[derive(Debug)]
pub struct Studio {
    gallery: Arc<Gallery>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Studio {
    /// Opens a studio of these painters.
    ///
    /// # Errors
    /// If its thread cannot be started.
    pub fn open(painters: Vec<Box<dyn Painter>>) -> io::Result<Self> {
        let gallery = Gallery::new(painters.iter().map(|painter| painter.info()).collect());
        let stop = Arc::new(AtomicBool::new(false));
        let thread = if painters.is_empty() {
            None
        } else {
            let (gallery, stop) = (Arc::clone(&gallery), Arc::clone(&stop));
            let work = move || {
                // Without this priority pictures are painted as well, only less politely.
                let _ = cpu::make_idle();
                paint(painters, &gallery, &stop);
            };
            Some(std::thread::Builder::new().name("pictures".into()).spawn(work)?)
        };
        Ok(Self { gallery, stop, thread })
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
        if let Some(thread) = self.thread.take() {
            // A painter that has panicked has no result that is missed.
            let _ = thread.join();
        }
    }
}

/// State of a kind.
struct Easel {
    painter: Box<dyn Painter>,
    sequence: u64,
    next: Instant,
}

fn paint(painters: Vec<Box<dyn Painter>>, gallery: &Gallery, stop: &AtomicBool) {
    let new = |painter| Easel { painter, sequence: 0, next: Instant::now() };
    let mut easels: Vec<Easel> = painters.into_iter().map(new).collect();
    while !stop.load(Relaxed) {
        let mut painted = false;
        for (index, easel) in easels.iter_mut().enumerate() {
            let now = Instant::now();
            if !gallery.is_watched(index) || now < easel.next {
                continue;
            }
            // That of its beginning: how long it takes says nothing about the data.
            let time_ms = unix_ms();
            let Some(unwatched) = gallery.unwatched(index) else { continue };
            let Some(mut picture) = easel.painter.paint(unwatched) else { continue };
            painted = true;
            easel.sequence += 1;
            // A picture that takes long is followed by the next at once, but never by two.
            easel.next = (easel.next + INTERVAL).max(now);
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
        let first = viewer.next().unwrap();
        assert_eq!(first.last().copied(), Some(gallery.newest(0).unwrap().sequence as u8));
        drop(viewer);
        assert!(!gallery.is_watched(0));
        drop(studio);
        assert!(Viewer::new(&gallery, 0).next().is_some(), "the last picture stays");
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
        assert!(!waits.load(Relaxed) && !gallery.is_watched(0), "the end of a studio stops it as well");
    }
}
