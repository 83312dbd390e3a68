//! Integration tests of the public API.

mod captures;
mod common;
mod framings;
mod icrc;
mod seeds;
mod spec;
mod vectors;
mod vita49;
