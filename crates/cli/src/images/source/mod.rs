//! The images of a run.

mod files;
mod pattern;
mod raw;
mod recording;

use super::args::Args;
use super::frame::Frame;
use crate::Result;
use files::Files;
use raw::RawFrames;
use recording::Shots;

/// Images by number.
pub enum Source {
    /// A moving test pattern of any size.
    Pattern(u64),
    /// Image files.
    Files(Files),
    /// Frames in a file without a header.
    Raw(RawFrames),
    /// Shots of a recording, as pictures of any size.
    Recording(Box<Shots>),
}

/// Images of the pattern, if their number is not given.
const PATTERN_IMAGES: u64 = 60;
/// Size of images that have none.
const ANY_SIZE: (u32, u32) = (1280, 720);

impl Source {
    /// Opens the images of the arguments.
    pub fn open(args: &Args) -> Result<Self> {
        let is_recording = |path: &std::path::Path| path.extension().is_some_and(|end| end == "h5" || end == "hdf5");
        let source = match (args.files.as_slice(), args.raw) {
            ([], _) => return Ok(Self::Pattern(args.count.unwrap_or(PATTERN_IMAGES))),
            ([path], Some(format)) => Self::Raw(RawFrames::open(path, format)?),
            (_, Some(_)) => return Err("expected one file of raw frames (--raw), found several".into()),
            ([path], None) if is_recording(path) => Self::Recording(Box::new(Shots::open(path)?)),
            (paths, None) => Self::Files(Files::open(paths)?),
        };
        let available = source.available();
        match args.count {
            Some(count) if count > available => {
                Err(format!("expected at least --count {count} images, found {available}").into())
            }
            _ => Ok(source),
        }
    }

    /// Returns the number of images that there are.
    pub fn available(&self) -> u64 {
        match self {
            Self::Pattern(count) => *count,
            Self::Files(files) => files.len(),
            Self::Raw(frames) => frames.len(),
            Self::Recording(shots) => shots.len(),
        }
    }

    /// Returns the size of the first image in pixels, or one for images that can have any.
    pub fn size(&self) -> Result<(u32, u32)> {
        match self {
            Self::Pattern(_) | Self::Recording(_) => Ok(ANY_SIZE),
            Self::Files(files) => files.size(0),
            Self::Raw(frames) => Ok(frames.size()),
        }
    }

    /// Draws an image into a frame. Returns its size.
    pub fn draw(&mut self, number: u64, frame: &mut Frame) -> Result<(u32, u32)> {
        match self {
            Self::Pattern(_) => pattern::draw(number, frame),
            Self::Files(files) => return files.draw(number, frame),
            Self::Raw(frames) => return frames.draw(number, frame),
            Self::Recording(shots) => shots.draw(number, frame)?,
        }
        Ok(frame.size())
    }
}
