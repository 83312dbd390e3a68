//! Pictures of the data, for the page.
//!
//! A [`Painter`] draws one kind of picture. [`Studio`] runs the painters of the pictures that are watched, in a thread of idle
//! priority. [`Gallery`] holds the newest picture of each kind for the server.

mod gallery;
mod picture;
mod studio;

pub use gallery::{Gallery, Hung, Viewer};
pub use picture::{Axis, Format, Header, Picture};
pub(crate) use studio::unix_ms;
pub use studio::{Painter, Studio};
