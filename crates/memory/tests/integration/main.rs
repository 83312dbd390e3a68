//! The crate as its users meet it.

mod conformance;
mod protection;
mod regions;
