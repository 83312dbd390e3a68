//! Arguments of `shotline images`.

use crate::Result;
use crate::initiator::Access;
use crate::serve::PageArgs;
use crate::values::{bind, seconds};
use shotline_display::{DisplayKind, Mode};
use shotline_memory::RegionKind;
use shotline_verbs::provider::ProviderKind;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Rows at the top of a frame with the statistics, as in Gibson et al. They are not transferred.
pub const STATISTICS_ROWS: u32 = 32;

/// Arguments of `shotline images`.
#[derive(clap::Args)]
#[command(after_help = "\
Writes images into the memory of a target, one RDMA WRITE each, then reads them in turn, one RDMA READ each, into the frame
buffers of a display, which shows each at a refresh: the provider, such as an RDMA NIC, puts them there. The top 32 rows are
statistics. Without --to, starts a target in a child process and ends it.

Examples:
  shotline images --demo                             a moving pattern over four SpaceFibre lanes, in a window
  shotline images frames/ --rate 30                  the images of a folder, in the order of their names
  shotline images --mode 2560x1440@60 --count 582 --transport spacefibre:shm,lanes=4      the demonstration of the paper
  shotline images run.h5 --display none=pictures     the shots of a recording, as PNG files
  shotline images video.raw --raw 1280x720:gray8 --display x11=:1 --seconds 60 --json
  shotline images --demo --serve localhost:8080      with a page that shows the frames and their statistics
  shotline target --region images=8G,rights=rw --bind 192.168.1.5 --listen 192.168.1.5:47920 --token-file t
  shotline images frames/ --to 192.168.1.5:47920 --token-file t --fullscreen")]
pub struct Args {
    /// Images: PNG, TIFF or JPEG files, a folder of them, raw frames (--raw), or a recording, whose shots are drawn
    /// [default: a moving test pattern]
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Show a moving pattern of 1280x720 for 10 seconds over four lanes of SpaceFibre; without a display, save 60 frames as PNG
    /// files in shotline-images
    #[arg(long, conflicts_with_all = ["files", "to"])]
    pub demo: bool,
    /// Number of images to write [default: all; of the pattern, 60]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub count: Option<u64>,
    /// Size of raw frames, and how their pixels are stored: bgrx, rgb, gray8 or gray16 (little-endian, the upper 8 bits are
    /// shown)
    #[arg(long, value_name = "WIDTHxHEIGHT:PIXELS", requires = "files")]
    pub raw: Option<RawFormat>,
    /// Do not draw statistics: transfer all rows
    #[arg(long)]
    pub no_statistics: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    #[arg(long, value_name = "WHAT", help_heading = "Display",
        help = format!("Where to show them: {} [default: the display of this session, else none]", DisplayKind::forms()))]
    pub display: Option<DisplayKind>,
    /// Size and refresh rate of the frames. Images of other sizes are centred, and cut off if they are larger [default: size of
    /// the first image, 60 Hz]
    #[arg(long, value_name = "WIDTHxHEIGHT@HZ", help_heading = "Display")]
    pub mode: Option<Mode>,
    /// Images in a second [default: one at each refresh]
    #[arg(long, value_name = "HZ", value_parser = rate, help_heading = "Display")]
    pub rate: Option<f64>,
    /// Frame buffers: with 2, an image is read while the one before is shown; more let images wait for their refreshes
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=16), help_heading = "Display")]
    pub buffers: u32,
    /// Replace the frames of an earlier run in the folder (none=FOLDER)
    #[arg(long, help_heading = "Display")]
    pub force: bool,
    /// Cover the screen
    #[arg(long, help_heading = "Display")]
    pub fullscreen: bool,
    /// End after this time [default: when the window is closed, or on Ctrl-C; without a display, after each image once]
    #[arg(long, value_name = "S", value_parser = seconds, help_heading = "Display")]
    pub seconds: Option<Duration>,
    /// End after this number of frames
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Display")]
    pub frames: Option<u64>,
    #[arg(long, value_name = "HOW", help_heading = "Target",
        help = format!("How to reach the target: {} [default: soft; of the demo, spacefibre:shm,lanes=4]", ProviderKind::choices()))]
    pub transport: Option<ProviderKind>,
    /// Address of a running target
    #[arg(long, value_name = "HOST:PORT", help_heading = "Target")]
    pub to: Option<String>,
    #[command(flatten, next_help_heading = "Target")]
    pub access: Access,
    /// Region of the target [default: the first that can be read and written]
    #[arg(long, value_name = "NAME", requires = "to", help_heading = "Target")]
    pub region: Option<String>,
    /// Local address for the traffic (soft) [default: the route's own, any port]
    #[arg(long, value_name = "ADDRESS[:PORT]", value_parser = bind, help_heading = "Target")]
    pub bind: Option<SocketAddr>,
    #[arg(long, value_name = "KIND", conflicts_with = "to", default_value = "heap", help_heading = "Target",
        help = format!("Kind of the memory of the target that is started: {}", RegionKind::forms()))]
    pub memory: RegionKind,
    #[command(flatten)]
    pub page: PageArgs,
}

fn rate(text: &str) -> std::result::Result<f64, String> {
    let rate = text.parse::<f64>().ok().filter(|rate| rate.is_finite() && (0.001..=1000.0).contains(rate));
    rate.ok_or_else(|| format!("expected a number of images from 0.001 to 1000 in a second, found {text}"))
}

/// Size of raw frames, and their pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawFormat {
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// How a pixel is stored.
    pub pixels: RawPixels,
}

/// How a pixel is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawPixels {
    /// Blue, green, red, and a byte that is ignored.
    Bgrx,
    /// Red, green, blue.
    Rgb,
    /// A byte of grey.
    Gray8,
    /// Two bytes of grey, little-endian.
    Gray16,
}

impl RawPixels {
    const ALL: [(&str, Self, usize); 4] =
        [("bgrx", Self::Bgrx, 4), ("rgb", Self::Rgb, 3), ("gray8", Self::Gray8, 1), ("gray16", Self::Gray16, 2)];

    /// Returns the bytes of a pixel.
    pub fn bytes(self) -> usize {
        Self::ALL.iter().find(|(_, pixels, _)| *pixels == self).map_or(4, |(.., bytes)| *bytes)
    }
}

impl FromStr for RawFormat {
    type Err = String;
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let malformed = || {
            format!("expected WIDTHxHEIGHT:PIXELS with bgrx, rgb, gray8 or gray16, such as 640x480:rgb, found {text}")
        };
        let (size, name) = text.split_once(':').ok_or_else(malformed)?;
        let (width, height) = size.split_once('x').ok_or_else(malformed)?;
        let side = |word: &str| word.parse().ok().filter(|side| (1..=32_767).contains(side)).ok_or_else(malformed);
        let found = RawPixels::ALL.iter().find(|(known, ..)| *known == name);
        let (_, pixels, _) = found.ok_or_else(malformed)?;
        Ok(Self { width: side(width)?, height: side(height)?, pixels: *pixels })
    }
}

impl Args {
    /// Returns the display.
    pub fn display(&self) -> DisplayKind {
        let demo = |kind| match kind {
            DisplayKind::None(None) if self.demo => DisplayKind::None(Some("shotline-images".into())),
            other => other,
        };
        self.display.clone().unwrap_or_else(|| demo(DisplayKind::of_session()))
    }

    /// Returns how the target is reached.
    pub fn transport(&self) -> Result<ProviderKind> {
        let default = if self.demo { "spacefibre:shm,lanes=4" } else { "soft" };
        Ok(self.transport.clone().map_or_else(|| default.parse(), Ok)?)
    }

    /// Returns the rows of the statistics.
    pub fn statistics_rows(&self) -> u32 {
        if self.no_statistics { 0 } else { STATISTICS_ROWS }
    }

    /// Returns the end of the run: a time, and a number of frames. Without a window to close, each of the images is shown once.
    pub fn end(&self, display: &DisplayKind, images: u64) -> (Option<Duration>, Option<u64>) {
        match (self.seconds, self.frames, display) {
            (None, None, DisplayKind::None(_)) => (None, Some(images)),
            (None, None, _) if self.demo => (Some(Duration::from_secs(10)), None),
            (seconds, frames, _) => (seconds, frames),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_format_has_size_and_pixels() {
        let raw = RawFormat { width: 640, height: 480, pixels: RawPixels::Gray16 };
        assert_eq!("640x480:gray16".parse(), Ok(raw));
        assert_eq!(RawPixels::ALL.map(|(_, pixels, _)| pixels.bytes()), [4, 3, 1, 2]);
        for text in ["640x480", "640:rgb", "0x4:rgb", "4x0:rgb", "4x4:RGB", "40000x4:rgb", "x:rgb", ""] {
            let error = text.parse::<RawFormat>().unwrap_err();
            assert!(error.contains("such as 640x480:rgb") && error.ends_with(text), "{error}");
        }
    }
}
