//! The sender of examples 05 and 06.

use crate::unix_io::UnixIo;
use crate::{CHANNELS, RECEIVER, SAMPLES, SENDER, SHOTS, geometry};
use arrayvec::ArrayVec;
use shotline_backends::{Options, SenderParameters, Transport};
use shotline_memory::{Region, Registrar, Sge};
use shotline_transport::copier::CopierConfig;
use shotline_transport::{PacketIo, Seal, TxPacket};
use shotline_wire::framing::{Framing as _, Link, MAX_HEADER, Packet, Udp};
use shotline_wire::shot::Geometry;
use std::error::Error;
use std::net::SocketAddr;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Sends shots by any transport, here the same one, or by UDP to example 05. Sample `i` of every channel is `i` plus the
/// number of the shot.
pub fn send(to: &str) -> Result<(), Box<dyn Error>> {
    let geometry = geometry()?;
    let mut registrar = Registrar::new();
    let memory = Region::host(geometry.shot_bytes() as usize)?;
    let shot = Sge { region: registrar.add(Arc::clone(&memory)), offset: 0, len: geometry.sample_bytes() };
    let regions = registrar.finish();
    if let Ok(to) = to.parse() {
        let wanted = SenderParameters { source: None, to, sealed: false, frames: 0, scratch: Sge::EMPTY };
        let udp = Transport::default().open_sender(&wanted, &Options::default(), &regions)?;
        return send_shots(udp.io, to, &geometry, &memory, shot);
    }
    let connected = UnixDatagram::unbound()?;
    connected.connect(to)?;
    let config = CopierConfig { address: SENDER, sealed: false, capacity: 0, scratch: Sge::EMPTY };
    send_shots(UnixIo::open(connected, config, RECEIVER, &regions)?, RECEIVER, &geometry, &memory, shot)
}

fn send_shots(
    mut io: impl PacketIo,
    to: SocketAddr,
    geometry: &Geometry,
    memory: &Region,
    shot: Sge,
) -> Result<(), Box<dyn Error>> {
    for number in 0..SHOTS {
        for sample in 0..SAMPLES {
            let row = (sample as i16 + number as i16).to_le_bytes().repeat(CHANNELS.into());
            memory.write(sample as usize * row.len(), &row);
        }
        for index in 0..geometry.packets() {
            let packet = Packet::nth(geometry, 0, number, index)?;
            let mut header = ArrayVec::<u8, MAX_HEADER>::new();
            Udp.emit(&Link::default(), &packet, &mut header);
            let gather = [Sge { offset: packet.offset.into(), len: packet.len, ..shot }];
            while io.send(to, &[TxPacket { header: &header, gather: &gather, seal: Seal::None }])? == 0 {
                thread::sleep(Duration::from_micros(100)); // the queue is full: nothing is lost
            }
        }
        thread::sleep(Duration::from_millis(1)); // UDP has no such queue
    }
    Ok(())
}
