//! Bytes that peers write, and nodes that fail.

mod fake;
mod lost;
mod seeds;
