//! The crate as its users meet it.

mod protection;
mod regions;
