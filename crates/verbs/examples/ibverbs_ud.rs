//! Receives a given number of 4096-byte datagrams through an RDMA device, and checks that each lands in the slot of its
//! immediate data. For counting instructions (`make bench-ud-instructions`).
//!
//!     ibverbs_ud DEVICE ADDRESS PACKETS
//!
//! Prints the number and Q_Key of the queue pair when it is ready to receive.

use shotline_memory::{Region, RegionId, Registrar, Sge};
use shotline_transport::{BatchInfo, Icrc, PacketIo, PayloadDestination, PayloadLocation, Pick, Recv, RxPacket, Steer};
use shotline_verbs::ibverbs::ud::{UdConfig, UdIo};
use shotline_verbs::ud::UdCompletion;
use std::error::Error;
use std::time::Duration;

const PACKET_BYTES: u32 = 4096;
/// Number of posted receives, like perftest's `-r 256`.
const DEPTH: u32 = 256;

/// Checks that each packet is in the slot of its immediate data, and collects the slots to be posted again.
struct Check {
    region: RegionId,
    next: u32,
    placed: u64,
    wrong: u64,
    repost: Vec<Recv>,
}

impl Steer for Check {
    fn header_len(&mut self, _batch: &BatchInfo<'_>) -> usize {
        0
    }
    fn pick(&mut self, _batch: &BatchInfo<'_>, _picks: &mut [Pick]) {}
    fn predict(&mut self, _picks: &mut [Pick]) -> usize {
        0
    }
    fn margins(&self, _to: PayloadDestination) -> [u32; 2] {
        [0; 2]
    }
    fn landed(&mut self, batch: &[RxPacket<'_>]) {
        for packet in batch {
            let PayloadLocation::Posted(id) = packet.landed else { continue };
            let imm = UdCompletion::parse(packet.header).and_then(|completed| completed.imm);
            let is_correct = imm == Some(self.next) && packet.len == PACKET_BYTES && packet.icrc == Icrc::Device;
            self.placed += u64::from(is_correct);
            self.wrong += u64::from(!is_correct);
            self.next = imm.map_or(self.next, |imm| imm.wrapping_add(1));
            self.repost.push(slot(self.region, id));
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, device, address, packets] = args.as_slice() else {
        return Err("usage: ibverbs_ud DEVICE ADDRESS PACKETS".into());
    };
    let packets: u64 = packets.parse()?;
    let mut registrar = Registrar::new();
    let region = registrar.add(Region::host((DEPTH * PACKET_BYTES) as usize)?);
    let regions = registrar.finish();
    let config = UdConfig {
        selector: device.parse()?,
        local: address.parse()?,
        capacity: DEPTH as usize,
        remainders: false,
        keep_headers: false,
    };
    let mut io = UdIo::open(&config, &regions)?;
    io.post(&(0..DEPTH).map(|id| slot(region, id)).collect::<Vec<_>>());
    let (number, key) = io.queue_pair().ok_or("no queue pair")?;
    println!("{number} {key}");
    let mut check = Check { region, next: 0, placed: 0, wrong: 0, repost: Vec::with_capacity(DEPTH as usize) };
    receive(&mut io, &mut check, packets)?;
    println!("{} in the right slot, {} in a wrong slot", check.placed, check.wrong);
    Ok(())
}

/// Returns the receive of a slot.
fn slot(region: RegionId, id: u32) -> Recv {
    let sge = Sge { region, offset: u64::from(id) * u64::from(PACKET_BYTES), len: PACKET_BYTES };
    Recv { id, sge: [sge, Sge::EMPTY] }
}

/// The loop whose instructions are counted.
#[inline(never)]
fn receive(io: &mut UdIo, check: &mut Check, packets: u64) -> Result<(), Box<dyn Error>> {
    while check.placed + check.wrong < packets {
        if io.poll(check, 1)? == 0 {
            io.wait(Duration::from_secs(1))?;
            continue;
        }
        io.post(&check.repost);
        check.repost.clear();
    }
    Ok(())
}
