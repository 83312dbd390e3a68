//! The crate as its users meet it.

mod captures;
mod common;
mod framings;
mod icrc;
mod seeds;
mod spec;
mod vectors;
mod vita49;
