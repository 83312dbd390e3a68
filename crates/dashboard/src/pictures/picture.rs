//! A picture as the page receives it.

use axum::body::Bytes;
use serde::Serialize;

/// Description of a picture's payload.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Header {
    /// Name of the kind.
    pub kind: &'static str,
    /// Number of the picture, from 1. A client that misses numbers was too slow for them.
    pub sequence: u64,
    /// Number of the newest shot in it.
    pub shot: u64,
    /// Time at which the picture was begun, in ms since 1970.
    pub unix_ms: u64,
    /// Format of the payload.
    pub format: Format,
    /// Number of columns, or of points of a line.
    pub width: u32,
    /// Number of rows, or of lines.
    pub height: u32,
    /// Set if the columns follow those of the picture before: the page scrolls.
    pub append: bool,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis, downwards; for lines, upwards.
    pub y: Axis,
    /// Meaning of the values: from the smallest (0 of `gray8`) to the largest (255).
    pub value: Axis,
    /// Names of the lines, if there are several.
    pub lines: Vec<String>,
    /// What the viewer should know, such as a missing part of the data; empty: nothing.
    pub note: String,
}

impl Header {
    /// Describes a picture without a number, time, values and lines.
    pub fn new(kind: &'static str, format: Format, width: usize, height: usize, x: Axis, y: Axis) -> Self {
        Self {
            kind,
            sequence: 0,
            shot: 0,
            unix_ms: 0,
            format,
            width: width as u32,
            height: height as u32,
            append: false,
            x,
            y,
            value: Axis::default(),
            lines: Vec::new(),
            note: String::new(),
        }
    }
}

/// Format of a picture's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// One byte for each point, row by row.
    Gray8,
    /// Three bytes (red, green, blue) for each point, row by row.
    Rgb8,
    /// One little-endian 32-bit float for each point, line by line.
    Lines,
}

/// Axis of a picture.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Axis {
    /// Label.
    pub label: &'static str,
    /// Unit; empty: none.
    pub unit: &'static str,
    /// Value at the first column, row or brightness.
    pub from: f64,
    /// Value at the last one.
    pub to: f64,
}

/// A picture.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    /// Description of the payload.
    pub header: Header,
    /// The points.
    pub payload: Vec<u8>,
}

impl Picture {
    /// Returns a picture without data, which says why there is none.
    pub fn message(kind: &'static str, note: String) -> Self {
        let header = Header { note, ..Header::new(kind, Format::Gray8, 1, 1, Axis::default(), Axis::default()) };
        Self { header, payload: vec![0] }
    }

    /// Returns the picture as a message: the length of the header as a little-endian 32-bit integer, the header as JSON
    /// padded with spaces to a multiple of 4 bytes, and the payload.
    pub fn encode(&self) -> Bytes {
        let mut json = serde_json::to_vec(&self.header).unwrap_or_default();
        json.resize(json.len().next_multiple_of(4), b' ');
        let mut message = Vec::with_capacity(4 + json.len() + self.payload.len());
        message.extend((json.len() as u32).to_le_bytes());
        message.extend(json);
        message.extend(&self.payload);
        message.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_payload_follows_an_aligned_header() {
        let x = Axis { label: "x", unit: "mm", from: -1.0, to: 1.0 };
        let header = Header::new("bmode", Format::Gray8, 3, 2, x, Axis::default());
        let message = Picture { header, payload: vec![1, 2, 3, 4, 5, 6] }.encode();
        let len = u32::from_le_bytes(message[..4].try_into().unwrap()) as usize;
        assert_eq!((len % 4, &message[4 + len..]), (0, &[1, 2, 3, 4, 5, 6][..]));
        let json: serde_json::Value = serde_json::from_slice(&message[4..4 + len]).unwrap();
        assert_eq!((&json["format"], &json["x"]["unit"], &json["width"]), (&"gray8".into(), &"mm".into(), &3.into()));
    }
}
