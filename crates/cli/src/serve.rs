//! `--serve`: the page to watch a long-running command.

use crate::Result;
use crate::array::{ArrayArgs, CentreArgs};
use crate::log::LogFormat;
use crate::view::Target;
use shotline_acquire::config::Settings;
use shotline_acquire::journal::Event;
use shotline_acquire::live::Live;
use shotline_dashboard::guard::Guard;
use shotline_dashboard::pictures::Studio;
use shotline_dashboard::run::paint::{ArrayChoice, PaintOptions, PictureSet};
use shotline_dashboard::run::{RunInfo, RunSubject};
use shotline_dashboard::{Options, Server};
use shotline_verbs::cm::Token;
use shotline_wire::framing::Kind;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Arguments of the page.
#[derive(clap::Args)]
pub struct ServeArgs {
    /// Serve a page to watch the command, and its metrics for Prometheus, at this address, such as 127.0.0.1:8080
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "Page")]
    serve: Option<SocketAddr>,
    /// Name of this machine by which browsers open the page; addresses and localhost need none
    #[arg(long, value_name = "NAME", requires = "serve", value_delimiter = ',', help_heading = "Page")]
    serve_name: Vec<String>,
    /// Accept the page's controls from other machines as well, with the token
    #[arg(long, requires = "serve", help_heading = "Page")]
    serve_control: bool,
    /// File with the token of the controls, readable only by its owner [default: a random one, which is printed]
    #[arg(long, value_name = "FILE", requires = "serve", help_heading = "Page")]
    serve_token_file: Option<PathBuf>,
    /// Time after the run for which the final state is still served, so that it is scraped; Ctrl-C ends it. A run that
    /// was stopped by Ctrl-C or by the page is not served any more
    #[arg(long, value_name = "SECONDS", requires = "serve", default_value_t = 0, help_heading = "Page")]
    serve_linger_s: u64,
    /// Pictures on the page: ultrasound, digitizer, frames or none [default: by the framing and the sample format]
    #[arg(long, value_name = "NAME", requires = "serve", help_heading = "Page")]
    pictures: Option<PictureSet>,
    /// Width and height in pixels of the images that shots are [default: samples x channels, a common size, or a square]
    #[arg(long, value_name = "WIDTHxHEIGHT", requires = "serve", value_parser = image_size, help_heading = "Page")]
    image_size: Option<ImageSize>,
    #[command(flatten, next_help_heading = "Pictures of ultrasound")]
    array: ArrayArgs,
    #[command(flatten, next_help_heading = "Pictures of ultrasound")]
    centre: CentreArgs,
}

/// A page of a run.
pub struct Page {
    subject: Arc<RunSubject>,
    linger: Duration,
    /// Its clients get the last state when it is dropped.
    _server: Server,
}

impl Page {
    /// Serves the final state for the requested time, or until `stop` is set.
    pub fn linger(self, stop: &AtomicBool) {
        self.subject.end();
        let end = Instant::now() + self.linger;
        while Instant::now() < end && !stop.load(Relaxed) {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.subject.end();
    }
}

impl ServeArgs {
    /// Serves the page of a run until the returned value is dropped, if the arguments request one.
    pub fn run(
        &self,
        command: &'static str,
        settings: &Settings,
        live: &Arc<Live>,
        stop: &Arc<AtomicBool>,
        log: Option<LogFormat>,
    ) -> Result<Option<Page>> {
        let Some(address) = self.serve else {
            let centre = self.centre.centre_mhz.map(|_| "--centre-mhz");
            return match self.array.given().chain(centre).next() {
                Some(flag) => Err(format!(
                    "{flag} describes the array for the pictures of a page: add --serve ADDRESS:PORT, or omit it"
                )
                .into()),
                None => Ok(None),
            };
        };
        let token = match &self.serve_token_file {
            Some(path) => Token::read(path)?,
            None => Token::random()?,
        };
        let studio = Studio::open(self.picture_set(settings).painters(live, &self.paint_options()))?;
        let info = info(command, settings);
        let subject = Arc::new(RunSubject::new(info, Arc::clone(live), Arc::clone(stop), studio));
        let guard =
            Guard { names: self.serve_name.clone(), remote_control: self.serve_control, token: token.to_string() };
        let server = Server::start(Options { address, guard }, Arc::clone(&subject) as _)?;
        // The file's owner knows a token from a file.
        let fragment = if self.serve_token_file.is_some() { String::new() } else { format!("#token={token}") };
        let url = format!("http://{}/{fragment}", server.address());
        match log {
            Some(log) => log.print(&Event::Serving { url }),
            None => errln!("page: {url}"),
        }
        let linger = Duration::from_secs(self.serve_linger_s);
        Ok(Some(Page { subject, linger, _server: server }))
    }

    /// Returns the pictures that are requested, or else those of the sender in the settings.
    fn picture_set(&self, settings: &Settings) -> PictureSet {
        let Settings { framing, channels, sample_format, .. } = *settings;
        self.pictures.unwrap_or_else(|| PictureSet::of(framing.unwrap_or(Kind::Ud), channels, sample_format))
    }

    fn paint_options(&self) -> PaintOptions {
        let (array, centre) = (self.array.clone(), self.centre.clone());
        let array = ArrayChoice::new(move |described| array.array(&centre, &described));
        PaintOptions { array, image_size: self.image_size.map(|ImageSize(size)| size) }
    }
}

/// Width and height of an image in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ImageSize([u32; 2]);

fn image_size(text: &str) -> std::result::Result<ImageSize, String> {
    let side = |word: &str| word.parse().ok().filter(|side| (1..=65_535).contains(side));
    let size = text.split_once('x').and_then(|(width, height)| Some(ImageSize([side(width)?, side(height)?])));
    match size {
        Some(size) => Ok(size),
        None => Err(format!("expected WIDTHxHEIGHT in pixels, such as 640x480, found {text}")),
    }
}

fn info(command: &'static str, settings: &Settings) -> RunInfo {
    let listed = match serde_json::to_value(settings) {
        Ok(serde_json::Value::Object(listed)) => listed,
        _ => serde_json::Map::new(),
    };
    let words = |value: serde_json::Value| match value {
        serde_json::Value::String(text) => text,
        value => value.to_string(),
    };
    let source = settings.probe.or(settings.listen).map(|address| address.to_string()).unwrap_or_default();
    let first = settings.out.iter().flatten().next();
    let title = match first {
        Some(out) => format!("{source} to {}", out.display()),
        None => source,
    };
    let Target { shots, seconds } = Target::of(settings);
    let parents = settings.out.iter().flatten().filter_map(|out| out.parent());
    let mut folders: Vec<PathBuf> =
        parents.map(|parent| if parent.as_os_str().is_empty() { ".".into() } else { parent.to_owned() }).collect();
    folders.sort();
    folders.dedup();
    RunInfo {
        program: concat!("shotline ", env!("CARGO_PKG_VERSION")).into(),
        command: command.into(),
        title,
        settings: listed.into_iter().map(|(key, value)| (key.into(), words(value))).collect(),
        shots,
        seconds,
        folders,
        takes_triggers: settings.pre_trigger.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_sizes_are_width_and_height() {
        assert_eq!(image_size("640x480"), Ok(ImageSize([640, 480])));
        for text in ["640", "0x4", "4x0", "4x65536", "x", "4x4x4", ""] {
            assert!(image_size(text).unwrap_err().ends_with(text), "{text}");
        }
    }
}
