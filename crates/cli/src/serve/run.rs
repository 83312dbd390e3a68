//! The page of a run.

use super::{PROGRAM, Page, PageArgs, Site};
use crate::Result;
use crate::array::{ArrayArgs, CentreArgs};
use crate::log::LogFormat;
use crate::view::Target;
use shotline_acquire::config::Settings;
use shotline_acquire::live::Live;
use shotline_dashboard::pictures::Studio;
use shotline_dashboard::run::paint::{ArrayChoice, PaintOptions, PictureSet};
use shotline_dashboard::run::{RunInfo, RunSubject};
use shotline_wire::framing::Kind;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Arguments of a run's page.
#[derive(clap::Args)]
pub struct ServeArgs {
    #[command(flatten)]
    page: PageArgs,
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

impl ServeArgs {
    /// Returns where the page is served; none if it is not requested.
    pub fn site(&self, log: Option<LogFormat>) -> Result<Option<Site>> {
        let site = self.page.site(log)?;
        let centre = self.centre.centre_mhz.map(|_| "--centre-mhz");
        match self.array.given().chain(centre).next().filter(|_| site.is_none()) {
            Some(flag) => Err(format!(
                "{flag} describes the array for the pictures of a page: add --serve ADDRESS:PORT, or omit it"
            )
            .into()),
            None => Ok(site),
        }
    }

    /// Serves the page of a run until the returned value is dropped, if one is requested.
    pub fn open(
        &self,
        command: &'static str,
        settings: &Settings,
        live: &Arc<Live>,
        stop: &Arc<AtomicBool>,
        log: Option<LogFormat>,
    ) -> Result<Option<Page>> {
        let Some(mut site) = self.site(log)? else { return Ok(None) };
        let subject = self.subject(command, settings, live, stop)?;
        site.open(Arc::new(subject)).map(Some)
    }

    /// Returns what the page of a run shows. `stop` ends the run.
    pub fn subject(
        &self,
        command: &'static str,
        settings: &Settings,
        live: &Arc<Live>,
        stop: &Arc<AtomicBool>,
    ) -> Result<RunSubject> {
        let studio = Studio::open(self.picture_set(settings).painters(live, &self.paint_options()))?;
        Ok(RunSubject::new(info(command, settings), Arc::clone(live), Arc::clone(stop), studio))
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
        program: PROGRAM.into(),
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
