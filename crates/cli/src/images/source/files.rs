//! Image files.

use super::super::frame::Frame;
use crate::Result;
use image::{ImageReader, Limits};
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

/// Ends of the names of image files.
const ENDS: [&str; 5] = ["png", "tif", "tiff", "jpg", "jpeg"];
/// Bytes that decoding an image may take: a file of a few bytes may claim a huge image.
const MAX_BYTES: u64 = 2 << 30;

/// Files, each with an image.
pub struct Files(Vec<PathBuf>);

impl Files {
    /// Returns these files, and those of folders in the order of their names.
    pub fn open(paths: &[PathBuf]) -> Result<Self> {
        let mut files = Vec::new();
        for path in paths {
            if path.is_dir() { files.extend(files_of(path)?) } else { files.push(path.clone()) }
        }
        Ok(Self(files))
    }

    /// Returns the number of files.
    pub fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn reader(&self, number: u64) -> Result<(&Path, ImageReader<BufReader<File>>)> {
        let path = self.0.get(number as usize).ok_or("there are fewer images")?;
        let open = || ImageReader::open(path)?.with_guessed_format();
        let mut reader = open().map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        let mut limits = Limits::default();
        limits.max_alloc = Some(MAX_BYTES);
        reader.limits(limits);
        Ok((path, reader))
    }

    /// Returns the size of an image in pixels.
    pub fn size(&self, number: u64) -> Result<(u32, u32)> {
        let (path, reader) = self.reader(number)?;
        Ok(reader.into_dimensions().map_err(|error| no_image(path, &error))?)
    }

    /// Draws an image into a frame. Returns its size. Of 16 bits for each colour, the upper 8 are shown.
    pub fn draw(&self, number: u64, frame: &mut Frame) -> Result<(u32, u32)> {
        let (path, reader) = self.reader(number)?;
        let image = reader.decode().map_err(|error| no_image(path, &error))?.into_rgb8();
        let size = image.dimensions();
        let rows = image.as_raw().chunks_exact(size.0 as usize * 3).collect::<Vec<_>>();
        frame.place(size, |y, row| {
            for (pixel, [red, green, blue]) in row.chunks_exact_mut(4).zip(rows[y as usize].as_chunks().0) {
                pixel.copy_from_slice(&[*blue, *green, *red, 0]);
            }
        });
        Ok(size)
    }
}

fn no_image(path: &Path, error: &image::ImageError) -> String {
    format!("expected a PNG, TIFF or JPEG image, found {}: {error}", path.display())
}

fn files_of(folder: &Path) -> Result<Vec<PathBuf>> {
    let listed = std::fs::read_dir(folder).and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
    let mut files: Vec<PathBuf> = listed.map_err(|error| format!("cannot list {}: {error}", folder.display()))?;
    let end = |path: &Path| path.extension().and_then(|end| end.to_str()).map(str::to_ascii_lowercase);
    files.retain(|path| end(path).is_some_and(|end| ENDS.contains(&end.as_str())));
    files.sort();
    if files.is_empty() {
        return Err(format!("expected PNG, TIFF or JPEG images in {}, found none", folder.display()).into());
    }
    Ok(files)
}
