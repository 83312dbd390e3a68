//! 02: Record an instrument whose packets have a custom header, without changing any crate.
//!
//! `cargo run --package shotline-acquire --example 02-record-your-own-framing -- 127.0.0.1:47999 camera.h5`
//!
//! Each packet of this camera begins with a frame number and a byte offset, 32 bits each, little-endian. A frame has
//! 64 x 128 pixels of 16 bits, in packets of 4096 bytes. All commands accept the recording, for example `shotline
//! inspect`.

use arrayvec::ArrayVec;
use shotline_acquire::config::Settings;
use shotline_acquire::live::Live;
use shotline_acquire::run::{Outcome, SenderDescription, run_with_description};
use shotline_backends::{Options, Transport};
use shotline_wire::ParseError;
use shotline_wire::framing::{Framing, Link, MAX_HEADER, NoExtras, Packet, Placement, Position};
use shotline_wire::shot::{Geometry, Packetization, Packing, Trailer};
use std::error::Error;
use std::sync::{Arc, atomic::AtomicBool};

#[derive(Debug)]
struct Camera;

impl NoExtras for Camera {} // its packets contain only number and offset

#[rustfmt::skip]
impl Framing for Camera {
    fn name(&self) -> &'static str { "camera" }
    fn has_icrc(&self) -> bool { false } // no ICRC
    fn header_len(&self, _first: &[u8]) -> usize { 8 }
    fn key(&self, _header: &[u8]) -> Result<u32, ParseError> { Ok(0) } // one camera, one stream

    fn place(&self, header: &[u8], payload_len: u32, g: &Geometry) -> Result<Placement, ParseError> {
        let truncated = ParseError::Truncated { what: "camera header", needed: 8, found: header.len() };
        let word = u64::from_le_bytes(header.try_into().map_err(|_| truncated)?);
        let (number, offset) = (word & 0xffff_ffff, (word >> 32) as u32);
        let packet = Packet::at(g, 0, number, offset)?; // an error if no packet begins at this offset
        packet.expect_len(payload_len)?;
        Ok(Placement { position: Position::Shot { number, bits: 32, offset, last: packet.last }, len: payload_len })
    }

    fn emit(&self, _link: &Link, p: &Packet, out: &mut ArrayVec<u8, MAX_HEADER>) {
        out.extend((p.shot & 0xffff_ffff | u64::from(p.offset) << 32).to_le_bytes());
    }
}

/// Records the camera with these settings.
pub fn record(settings: &Settings) -> Result<Outcome, Box<dyn Error>> {
    let (pixels, lines, packetization) = (128, 64, Packetization::uniform(4096));
    let geometry =
        Geometry::with_packetization((pixels, lines), (16, Packing::Int16Le), 0, Trailer::None, packetization)?;
    let camera = SenderDescription { framing: Arc::new(Camera), geometry, name: "camera".into() };
    let (transport, options) = (Transport::default(), Options::default()); // UDP sockets
    Ok(run_with_description(settings, camera, &AtomicBool::new(false), &Live::default(), |wanted, regions| {
        transport.open(wanted, &options, regions)
    })?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [listen, out] = words.as_slice() else { return Err("expected the arguments ADDRESS:PORT FILE.h5".into()) };
    let (listen, out) = (Some(listen.parse()?), Some(vec![out.into()]));
    let outcome = record(&Settings { listen, out, idle_s: Some(5.0), ..Settings::default() })?;
    println!("{} frames; {}", outcome.rows, outcome.end);
    Ok(())
}
