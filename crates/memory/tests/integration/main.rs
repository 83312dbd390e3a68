//! Integration tests of the public API.

mod conformance;
mod dmabuf;
mod protection;
mod regions;
