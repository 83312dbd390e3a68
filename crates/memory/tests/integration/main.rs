//! Integration tests of the public API.

mod conformance;
mod protection;
mod regions;
