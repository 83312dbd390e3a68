//! Integration tests of the recorder, its readers, and recovery after faults.

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
