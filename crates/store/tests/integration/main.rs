//! What the recorder writes, as everyone reads it, and what is left when things go wrong.

mod claims;
mod common;
mod compression;
mod device;
mod exports;
mod faults;
mod pcapng;
mod recorder;
mod ring;
mod seeds;
mod set;
