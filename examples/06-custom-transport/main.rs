//! 06: Record shots that arrive by a transport of your own.
//!
//! ```sh
//! cargo run --package shotline-acquire --example 06-custom-transport -- shots.sock run.h5   # receives
//! cargo run --package shotline-acquire --example 06-custom-transport -- shots.sock          # sends
//! shotline inspect run.h5
//! ```
//!
//! The transport is `UnixIo` in `unix_io.rs`: packets of Unix datagram sockets. What a packet contains, and what becomes
//! of it, does not depend on the transport: here it is the framing `udp` of `docs/wire-formats.md`. A transport that
//! `--transport` selects belongs in the crates `transport` and `backends`: "A transport" in CONTRIBUTING.md.

mod send;
mod unix_io;

use shotline_acquire::config::Settings;
use shotline_acquire::live::Live;
use shotline_acquire::run::{Outcome, SenderDescription, run_with_description};
use shotline_backends::{OpenedReceiver, ReceiverParameters};
use shotline_memory::Regions;
use shotline_transport::IoError;
use shotline_transport::copier::CopierConfig;
use shotline_wire::framing::Udp;
use shotline_wire::shot::{Geometry, GeometryError, Packetization, Packing, Trailer};
use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, atomic::AtomicBool};
use unix_io::UnixIo;

/// Nominal addresses of the two ends.
const RECEIVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1);
const SENDER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 2);

const SHOTS: u64 = 100;
const CHANNELS: u16 = 8;
const SAMPLES: u32 = 1000;

/// The shape of a shot: `(sample, channel)` of 16 bits, in packets of 4096 bytes, nothing after the samples.
fn geometry() -> Result<Geometry, GeometryError> {
    let cut = Packetization::uniform(4096);
    Geometry::with_packetization((CHANNELS, SAMPLES), (16, Packing::Int16Le), 0, Trailer::None, cut)
}

/// Records to a file. The run does everything except opening the transport.
fn receive(socket: &str, out: &str) -> Result<Outcome, Box<dyn Error>> {
    let settings = Settings {
        listen: Some(RECEIVER),
        shots: Some(SHOTS),
        out: Some(vec![out.into()]),
        idle_s: Some(60.0), // without a sender the run ends, too
        ..Settings::default()
    };
    let sender = SenderDescription { framing: Arc::new(Udp), geometry: geometry()?, name: "example 06".into() };
    let open = |wanted: &ReceiverParameters, regions: &Regions| {
        // The run says how many receives it will post, and where payloads without a destination go.
        let ReceiverParameters { bind, sealed, capacity, scratch, receive_buffer, .. } = *wanted;
        let config = CopierConfig { address: bind, sealed, capacity, scratch };
        let io = UnixDatagram::bind(socket).and_then(|bound| UnixIo::open(bound, config, SENDER, regions));
        let io = io.map_err(|source| IoError::System { what: format!("open {socket}"), source, hint: "" })?;
        Ok(OpenedReceiver { io, local: bind, receive_buffer })
    };
    let outcome = run_with_description(&settings, sender, &AtomicBool::new(false), &Live::default(), open)?;
    std::fs::remove_file(socket)?; // a name that exists cannot be bound again
    Ok(outcome)
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.as_slice() {
        [to] => send::send(to)?,
        [socket, out] => {
            let outcome = receive(socket, out)?;
            outcome.end.check()?; // an error if the run was cut off
            let total = outcome.total();
            println!("{} rows, {} complete; {} packets", outcome.rows, total.complete, total.packets);
        }
        _ => return Err("expected the arguments SOCKET FILE.h5 to receive, or SOCKET or ADDRESS:PORT to send".into()),
    }
    Ok(())
}
