//! `shotline images`: images from the memory of a target into the frame buffers of a display.

mod args;
mod bar;
mod frame;
mod memory;
mod page;
mod picture;
mod player;
mod report;
mod schedule;
mod slots;
mod source;
mod watch;

pub use args::Args;

use crate::child::{ChildTarget, address_arguments};
use crate::output::{CpuTime, print_report, warn};
use crate::progress::Progress;
use crate::remote::RemoteRegion;
use crate::values::control_address;
use crate::{Result, signals};
use frame::Frame;
use page::ImagesPage;
use picture::{FramePainter, Visible};
use player::{End, Images, Pace, Played, Player};
use report::{ImagesReport, Places, Processor, Written};
use shotline_dashboard::BoardInfo;
use shotline_display::{Display, DisplayKind, Mode, Request};
use shotline_memory::{Access, Region, check_capacity};
use shotline_verbs::api::ControlSocket;
use shotline_verbs::cm::{Client, Endpoint};
use shotline_verbs::connect::{ConnectError, Target, WithEndpoints};
use shotline_verbs::provider::ProviderKind;
use source::Source;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

/// Refresh rate of a window or of no display, in mHz, if none is requested.
const REFRESH_MHZ: u32 = 60_000;

/// Writes the images, shows them, and reports.
pub fn run(args: &Args) -> Result {
    let stop = signals::stop_flag()?;
    let source = Source::open(args)?;
    let kind = args.display();
    let (width, height) = source.size()?;
    let mode = args.mode.unwrap_or(Mode { width, height, refresh_mhz: REFRESH_MHZ }).checked();
    let mode = mode.map_err(|error| format!("{error}: set another size by --mode"))?;
    if mode.height <= args.statistics_rows() {
        return Err(
            format!("expected more than {} rows, found {mode}; use --no-statistics", args.statistics_rows()).into()
        );
    }
    let request = Request {
        mode,
        buffers: args.buffers,
        title: "Shotline images".into(),
        fullscreen: args.fullscreen,
        replace: args.force,
        unchecked_rows: args.statistics_rows(),
    };
    let display = kind.open(&request)?;
    if args.demo
        && let DisplayKind::None(Some(folder)) = &kind
    {
        errln!("No display: DISPLAY is not set. The frames are saved in {}.", folder.display());
    }
    let transport = args.transport()?;
    let images = args.count.unwrap_or_else(|| source.available());
    let image_bytes = display.buffers()[0].stride as u64 * u64::from(mode.height);
    let bytes = images.checked_mul(image_bytes).ok_or("expected fewer images: use --count")?;
    let visible = Arc::new(Visible::default());
    let page = args.page(&kind, &transport, &*display, (&visible, &stop))?;
    let child = match &args.to {
        Some(_) => None,
        None => Some(start(args, &transport, bytes)?),
    };
    let to = match (&child, &args.to) {
        (Some(child), _) => (child.listen.clone(), child.token),
        (None, to) => (control_address(to.as_deref().unwrap_or_default())?, args.access.token()?),
    };
    let places = (&page, &*visible);
    let show =
        Show { args, kind, display, source, images, image_bytes, transport: &transport, to, places, stop: &stop };
    let done = transport.with_endpoints(args.bind, show);
    let ended = match (done, child) {
        (Ok(()), Some(child)) => child.end(),
        (Err(error), Some(child)) => {
            child.kill();
            Err(error)
        }
        (done, None) => done,
    };
    page.end(&stop);
    ended
}

impl Args {
    /// Serves the page, if it is requested.
    fn page(
        &self,
        kind: &DisplayKind,
        transport: &ProviderKind,
        display: &dyn Display,
        (visible, stop): (&Arc<Visible>, &Arc<AtomicBool>),
    ) -> Result<ImagesPage> {
        let from = self.to.as_deref().unwrap_or("a target in a child process");
        let settings: [(&'static str, String); 4] = [
            ("display", kind.to_string()),
            ("mode", display.mode().to_string()),
            ("frame buffers", display.buffers().len().to_string()),
            ("transport", transport.to_string()),
        ];
        let info = BoardInfo {
            command: "images".into(),
            title: format!("images from the memory of {from}"),
            settings: settings.into_iter().map(|(name, value)| (name.into(), value)).collect(),
            stopping: "Ends the run: the frames that were shown are reported.",
            ..BoardInfo::default()
        };
        let painter = FramePainter::new(display.mode(), display.buffers(), Arc::clone(visible));
        Ok(ImagesPage::new(self.page.board(info, vec![Box::new(painter)], stop)?))
    }
}

/// Starts a target with memory for the images.
fn start(args: &Args, transport: &ProviderKind, bytes: u64) -> Result<ChildTarget> {
    let pages = args.memory.description().pages;
    let fits = check_capacity([(pages, bytes)]);
    fits.map_err(|error| format!("the images: {error}, or write fewer (--count)"))?;
    if transport.description().control == ControlSocket::Unix && args.bind.is_some() {
        return Err("--bind is for transports with addresses: omit it".into());
    }
    let region = format!("images={bytes},rights=rw,memory={}", args.memory);
    let mut words = ["--region", &region, "--transport"].map(str::to_owned).to_vec();
    words.push(transport.to_string());
    words.extend(address_arguments(transport, args.bind.is_some_and(|bind| bind.is_ipv6()))?);
    ChildTarget::start(transport, &words)
}

/// A run whose display is open.
struct Show<'a> {
    args: &'a Args,
    kind: DisplayKind,
    display: Box<dyn Display>,
    source: Source,
    images: u64,
    image_bytes: u64,
    transport: &'a ProviderKind,
    to: Target,
    /// The page, and which frame buffer the display shows.
    places: (&'a ImagesPage, &'a Visible),
    stop: &'a AtomicBool,
}

impl WithEndpoints for Show<'_> {
    type Output = Result;
    fn with<P: Endpoint + Send + 'static>(
        mut self,
        connect: impl Fn(&Target) -> std::result::Result<(P, Client), ConnectError>,
    ) -> Result {
        let (provider, client) = connect(&self.to)?;
        let rights = Access::REMOTE_READ | Access::REMOTE_WRITE;
        let mut memory = RemoteRegion::connect(provider, client, self.args.region.as_deref(), rights)?;
        memory::check_room(&memory, self.images, self.image_bytes)?;
        let (images, written) = self.write(&mut memory)?;
        if self.stop.load(Relaxed) {
            return Err("interrupted before all images were written".into());
        }
        self.show(memory, &images, &written)
    }
}

impl Show<'_> {
    /// Writes all images.
    fn write<P: Endpoint>(&mut self, memory: &mut RemoteRegion<P>) -> Result<(Images, Written)> {
        let (mode, stride) = (self.display.mode(), self.display.buffers()[0].stride);
        let staging = Region::memfd("shotline-image", self.image_bytes as usize)?;
        let mr = memory.register(&staging)?;
        let skipped_rows = self.args.statistics_rows();
        let mut images = Images { bytes: self.image_bytes, skipped_rows, checksums: Vec::new() };
        let mut written = Written { images: self.images, image_bytes: self.image_bytes, other_sizes: 0, seconds: 0.0 };
        let mut frame = Frame::new(mode, stride);
        let bar = Progress::new("images written");
        for number in 0..self.images {
            if self.stop.load(Relaxed) {
                break;
            }
            let size = self.source.draw(number, &mut frame)?;
            if size != frame.size() && written.other_sizes == 0 {
                let (width, height) = size;
                bar.hidden_while(|| {
                    warn(format_args!(
                        "image {number} has {width}x{height} pixels, not {}x{}: it is centred, and cut off \
                        where it is larger",
                        mode.width, mode.height
                    ));
                });
            }
            written.other_sizes += u64::from(size != frame.size());
            images.checksums.push(frame.crc32(skipped_rows));
            staging.write(0, frame.bytes());
            let begin = Instant::now();
            memory::write(memory, &mr, number * self.image_bytes, self.image_bytes, self.stop)?;
            written.seconds += begin.elapsed().as_secs_f64();
            bar.update(number + 1, self.images);
            self.places.0.publish(|| page::writing(number + 1, self.images));
        }
        Ok((images, written))
    }

    /// Shows the images, and reports.
    fn show<P: Endpoint>(mut self, mut memory: RemoteRegion<P>, images: &Images, written: &Written) -> Result {
        let (seconds, frames) = self.args.end(&self.kind, self.images);
        let (page, visible) = self.places;
        let pace = Pace { rate: self.args.rate, seconds, frames, stop: self.stop, visible };
        let places = Places {
            display: self.kind.to_string(),
            transport: self.transport.to_string(),
            mode: self.display.mode(),
            buffers: self.display.buffers().len(),
        };
        if let Some(rate) = pace.rate.filter(|rate| *rate > 1.01 * places.mode.refresh_hz()) {
            warn(format_args!("the display refreshes at {:.2} Hz: not {rate} images/s", places.mode.refresh_hz()));
        }
        let (begun, target) = (CpuTime::now().total(), memory.target_cpu()?);
        let bar = frames.map(|_| Progress::new("images shown"));
        let player = Player::new(&mut memory, &mut *self.display, images, &pace)?;
        let reported = Cell::new(false);
        let observe = |played: &Played| {
            if let Some(lost) = played.lost.as_ref().filter(|_| !reported.replace(played.lost.is_some())) {
                page.warn(&format!("the target is lost: {lost}"));
            }
            bar.iter().for_each(|bar| bar.update(played.frames.shown, frames.unwrap_or_default()));
            page.publish(|| {
                let processor = Processor { own: CpuTime::now().total() - begun, target: None };
                let report = ImagesReport::new(places.clone(), written, played, &End::Done, &processor);
                page::status(&report, pace.progress(played), false)
            });
        };
        let (mut played, end) = player.run(observe)?;
        drop(bar);
        let own = CpuTime::now().total() - begun;
        let target = match played.lost {
            Some(_) => None,
            None => match memory.target_cpu() {
                Ok(now) => Some(now - target),
                Err(error) => {
                    // The frames are reported all the same.
                    played.lost = Some(error.to_string());
                    None
                }
            },
        };
        let report = ImagesReport::new(places, written, &played, &end, &Processor { own, target });
        print_report(self.args.json, &report)?;
        page.set_last(page::status(&report, pace.progress(&played), true));
        match (end, played.lost) {
            (End::Display(error), _) => Err(error.into()),
            (_, Some(lost)) => Err(lost.into()),
            _ if played.mismatched > 0 => {
                Err(format!("{} frames differ from the images that were written", played.mismatched).into())
            }
            _ => memory.end(),
        }
    }
}
