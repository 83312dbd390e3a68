//! Packets that GRO does not merge, over real sockets: the steer's prediction of the next ones.

use arrayvec::ArrayVec;
use shotline_acquire::{Item, Receiver, ReceiverConfig, StreamConfig, receiver};
use shotline_memory::{Pool, Region, Registrar, Sge};
use shotline_testing::wait_until;
use shotline_transport::udp::{UdpConfig, UdpIo};
use shotline_transport::{MAX_HEADER, PacketIo, SCRATCH_BYTES, Seal, TxPacket};
use shotline_wire::framing::{Framing, Link, Packet, Spead};
use shotline_wire::shot::{Geometry, Packetization, Packing, Trailer};
use shotline_wire::spead::Flavour;
use std::sync::Arc;

const SPEAD: Spead = Spead { flavour: Flavour::F48, first_items: 4, items: 4 };

/// Sends heaps of `packets` packets, each separately, and receives them; returns the counters.
fn received(packets: u32, heaps: u64, lost: &[(u64, u32)]) -> shotline_acquire::counters::StreamCounters {
    let cut = Packetization::uniform(1000);
    let geometry = Geometry::new(1, 1000 * packets - 10, 8, Packing::Uint8, 0).unwrap();
    let geometry = geometry.sent_as(Trailer::None, cut).unwrap();
    let mut registrar = Registrar::new();
    let pool = Pool::new(&mut registrar, 256, geometry.slot_bytes()).unwrap();
    let mut element = |len| Sge { region: registrar.add(Region::host(len as usize).unwrap()), offset: 0, len };
    let (wire, scratch, spare) = (element(1 << 16), element(SCRATCH_BYTES), element(receiver::SPARE_BYTES));
    let regions = registrar.finish();
    let stream = StreamConfig {
        stream: 0,
        key: 0,
        geometry,
        source: None,
        first_shot: Some(0),
        first_psn: None,
        window: 4,
        timeout_ns: u64::MAX,
    };
    let bind = "[::1]:0".parse().unwrap();
    let config = UdpConfig {
        bind,
        sealed: false,
        remainders: false,
        capacity: receiver::capacity(&[stream]),
        scratch,
        receive_buffer: 4 << 20,
        stamps: false,
        ecn: false,
    };
    let (io, mut sender) = (UdpIo::open(&config, &regions).unwrap(), UdpIo::open(&config, &regions).unwrap());
    let to = io.local_addr();
    let config = ReceiverConfig { framing: Arc::new(SPEAD), streams: vec![stream], pool, regions, spare, clock: None };
    let mut receiver = Receiver::new(io, config);
    let (mut sent, mut items) = (0, Vec::<Item>::new());
    for heap in 0..heaps {
        for index in (0..packets).filter(|index| !lost.contains(&(heap, *index))) {
            let packet = Packet::nth(&geometry, 0, heap, index).unwrap();
            let mut header = ArrayVec::<u8, MAX_HEADER>::new();
            SPEAD.emit(&Link::default(), &packet, &mut header);
            let gather = [Sge { len: packet.len, ..wire }, Sge::EMPTY];
            sent += sender.send(to, &[TxPacket { header: &header, gather: &gather, seal: Seal::None }]).unwrap() as u64;
        }
        // With this spacing a batch of 16 ends sometimes within a heap, sometimes at its end.
        if heap % 3 == 0 {
            take(&mut receiver, sent, &mut items);
            items.clear();
        }
    }
    take(&mut receiver, sent, &mut items);
    receiver.finish(&[Some(heaps)], &mut items);
    let total = receiver.total();
    assert_eq!(total.balance(), Ok(()));
    total
}

/// Receives until this number of packets has arrived.
fn take(receiver: &mut Receiver<UdpIo>, sent: u64, items: &mut Vec<Item>) {
    wait_until("every packet that was sent", || {
        while receiver.poll(1, 4, items).unwrap() > 0 {}
        receiver.total().packets == sent
    });
}

#[test]
fn single_packets_in_order_land_in_place_for_any_shot_length() {
    for packets in [1, 2, 5, 16, 40] {
        let heaps = 600 / u64::from(packets);
        let total = received(packets, heaps, &[]);
        assert_eq!((total.complete, total.repaired), (heaps, 0), "shots of {packets} packets");
    }
}

#[test]
fn a_loss_among_single_packets_costs_only_some_copies() {
    let total = received(5, 200, &[(100, 2)]);
    assert_eq!((total.complete, total.partial, total.packets_missing), (199, 1, 1));
    assert!((1..40).contains(&total.repaired), "{} payloads moved", total.repaired);
}
