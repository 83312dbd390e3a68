//! Tests with two engines, driven packet by packet.

mod local;
mod parts;
mod picks;
mod rc_requester;
mod rc_responder;
mod refusals;
mod uc;

use super::*;
use crate::api::{
    Completion, CompletionKind, Cq, Data, Element, Mtu, Operation, ReadyToReceive, ReadyToSend, Remote, Status,
};
use shotline_memory::{Access, Addressing, Mr, Pd, Region, RegionId, Registrar};
use shotline_transport::{PayloadDestination, PayloadLocation};
use shotline_wire::aeth::{Aeth, NakCode, RnrTimer, Syndrome};
use shotline_wire::bth::{Bth, Opcode};
use shotline_wire::roce::{Extensions, Packet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Offsets of the scratch memory for payloads without a picked destination, and of the engines' own buffers.
const SCRATCH: u64 = 1 << 20;
const BUFFER: u64 = 3 << 19;
/// Acknowledgement timeout.
const TIMEOUT: Nanos = 1_000_000;
const MTU: u32 = 256;

#[derive(Default)]
struct Collected(Vec<Completion>);

impl Completions for Collected {
    fn push(&mut self, _cq: Cq, completion: Completion) {
        self.0.push(completion);
    }
}

/// Packet between the two engines, with its payload.
#[derive(Clone, Debug)]
struct TestPacket {
    bth: Bth,
    extensions: Extensions,
    /// Payload with its padding.
    payload: Vec<u8>,
    /// Part of the operation, in packets of an engine.
    part: Part,
}

impl TestPacket {
    fn new(opcode: Opcode, to: &Side, psn: u32, payload: &[u8]) -> Self {
        let pad = payload.len().wrapping_neg() & 3;
        let bth = Bth { pad: pad as u8, ..Bth::new(opcode, to.engine.number(), psn) };
        let payload = [payload, &[0; 3][..pad]].concat();
        Self { bth, extensions: Extensions::default(), payload, part: Part::default() }
    }
    fn reth(mut self, remote: Remote, length: u32) -> Self {
        let reth = shotline_wire::reth::Reth { address: remote.address, r_key: remote.rkey, length };
        self.extensions.reth = Some(reth);
        self
    }
    fn atomic(mut self, remote: Remote, compare: u64, swap_or_add: u64) -> Self {
        let (address, r_key) = (remote.address, remote.rkey);
        let atomic = shotline_wire::atomic::AtomicEth { address, r_key, swap_or_add, compare };
        self.extensions.atomic = Some(atomic);
        self
    }
    fn acknowledgement(to: &Side, psn: u32, syndrome: Syndrome) -> Self {
        let mut packet = Self::new(Opcode::RcAcknowledge, to, psn, &[]);
        packet.extensions.aeth = Some(Aeth { syndrome, msn: 0 });
        packet
    }
    fn syndrome(&self) -> Option<Syndrome> {
        self.extensions.aeth.map(|aeth| aeth.syndrome)
    }
}

/// One endpoint: an engine and its context.
struct Side {
    engine: Engine,
    protection: Protection,
    pd: Pd,
    memory: Arc<Region>,
    /// Registration of the first MiB, with all rights, zero-based.
    mr: Mr,
    receives: RecvQueue,
    done: Collected,
    counters: QpCounters,
    address: SocketAddr,
    now: Nanos,
}

#[derive(Clone, Copy)]
struct Options {
    kind: QpType,
    mtu: Mtu,
    strict: bool,
    accept_any_source_port: bool,
    psn: [u32; 2],
    access: Access,
    max_rd_atomic: u8,
    retry_cnt: u8,
    rnr_retry: u8,
    max_sge: u32,
}

const RC: Options = Options {
    kind: QpType::Rc,
    mtu: Mtu::B256,
    strict: false,
    accept_any_source_port: false,
    psn: [100, 7000],
    access: Access::ALL,
    max_rd_atomic: 2,
    retry_cnt: 3,
    rnr_retry: 2,
    max_sge: 4,
};
const UC: Options = Options { kind: QpType::Uc, ..RC };

impl Side {
    fn new(number: u32, options: &Options) -> Self {
        let memory = Region::host(2 << 20).unwrap();
        let mut registrar = Registrar::new();
        let region = registrar.add(Arc::clone(&memory));
        let mut protection = Protection::new(registrar.finish());
        let pd = protection.allocate();
        let mr = protection.register(pd, &memory, 0, SCRATCH, Access::ALL, Addressing::ZeroBased).unwrap();
        let base = QpConfig::new(options.kind, pd, Cq(0), Cq(1));
        let Options { strict, accept_any_source_port, max_sge, .. } = *options;
        let config = QpConfig { strict, accept_any_source_port, max_sge, ..base };
        let buffer = Sge { region, offset: BUFFER, len: Engine::buffer_bytes(&config) };
        Self {
            engine: Engine::new(number, &config, buffer),
            protection,
            pd,
            memory,
            mr,
            receives: RecvQueue::new(pd, 8, 4),
            done: Collected::default(),
            counters: QpCounters::default(),
            address: SocketAddr::from(([10, 0, 0, number as u8], 4791)),
            now: 1,
        }
    }

    fn with<T>(&mut self, act: impl FnOnce(&mut Engine, &mut Context<'_>) -> T) -> T {
        let mut ctx = Context {
            now: self.now,
            protection: &mut self.protection,
            receives: &mut self.receives,
            completions: &mut self.done,
            counters: &mut self.counters,
        };
        act(&mut self.engine, &mut ctx)
    }
    fn modify(&mut self, change: Modify) -> Result<(), VerbsError> {
        self.with(|engine, ctx| engine.modify(ctx, &change))
    }
    fn bring_up(&mut self, peer: (SocketAddr, u32), options: &Options, send: u32, receive: u32) {
        self.modify(Modify::Init { access: options.access, q_key: 0 }).unwrap();
        self.modify(Modify::ReadyToReceive(ReadyToReceive {
            peer: Some(peer),
            mtu: options.mtu,
            psn: receive,
            max_dest_rd_atomic: options.max_rd_atomic,
            min_rnr_timer: RnrTimer::from_code(1).unwrap(),
            ack_every: 0,
        }))
        .unwrap();
        self.modify(Modify::ReadyToSend(ReadyToSend {
            psn: send,
            timeout: Duration::from_nanos(TIMEOUT),
            retry_cnt: options.retry_cnt,
            rnr_retry: options.rnr_retry,
            max_rd_atomic: options.max_rd_atomic,
        }))
        .unwrap();
    }

    /// Posts a request for bytes of this side's memory.
    fn post(&mut self, id: u64, operation: Operation, address: u64, len: u32) -> Result<(), PostError> {
        let elements = [Element { address, len, lkey: self.mr.lkey }];
        self.send(&SendWr::new(id, operation, Data::Elements(&elements)))
    }
    fn send(&mut self, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.with(|engine, ctx| engine.post_send(ctx, wr))
    }
    fn post_recv(&mut self, id: u64, pieces: &[(u64, u32)]) {
        let lkey = self.mr.lkey;
        let elements: Vec<_> = pieces.iter().map(|&(address, len)| Element { address, len, lkey }).collect();
        self.with(|engine, ctx| engine.post_recv(ctx, &RecvWr { id, elements: &elements })).unwrap();
    }
    fn remote(&self, address: u64) -> Remote {
        Remote { address, rkey: self.mr.rkey }
    }

    fn transmit(&mut self, max: usize) -> Vec<TestPacket> {
        let mut burst = Burst::default();
        let has_packets_to_send = self.engine.has_packets_to_send(self.now);
        self.with(|engine, ctx| engine.transmit(ctx, &mut burst, max));
        assert!(has_packets_to_send || burst.is_empty(), "has_packets_to_send returned false");
        assert!(burst.len() <= max);
        let packet = |outgoing: &OutgoingPacket| {
            let mut bytes = outgoing.header.to_vec();
            for sge in burst.elements(outgoing) {
                let start = bytes.len();
                bytes.resize(start + sge.len as usize, 0);
                self.memory.read(sge.offset as usize, &mut bytes[start..]);
            }
            bytes.extend([0; 4]);
            let packet = Packet::parse(&bytes).unwrap();
            let payload = bytes[packet.bth.opcode.header_len()..bytes.len() - 4].to_vec();
            TestPacket { bth: packet.bth, extensions: packet.extensions, payload, part: outgoing.part }
        };
        burst.packets.iter().map(packet).collect()
    }
    /// Delivers a packet whose payload is in scratch memory.
    fn receive(&mut self, from: SocketAddr, packet: &TestPacket) {
        self.memory.write(SCRATCH as usize, &packet.payload);
        let region = RegionId(0);
        let landed = PayloadLocation::Scratch(Sge { region, offset: SCRATCH, len: packet.payload.len() as u32 });
        self.receive_landed(from, packet, landed, false);
    }
    fn receive_landed(&mut self, source: SocketAddr, packet: &TestPacket, landed: PayloadLocation, congested: bool) {
        let (bth, extensions, len) = (packet.bth, &packet.extensions, packet.payload.len() as u32);
        let payload = Payload::Landed(landed);
        let packet = IncomingPacket { bth, extensions, part: None, payload, len, congested, source };
        self.with(|engine, ctx| engine.receive(ctx, &packet));
    }
    fn expire_at(&mut self, now: Nanos) {
        self.now = now;
        self.with(|engine, ctx| engine.expire(ctx));
    }
    /// Returns ids and status of the completions since the last call.
    fn completed(&mut self) -> Vec<(u64, Status)> {
        self.done.0.drain(..).map(|completion| (completion.id, completion.status)).collect()
    }
    fn read(&self, address: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read(address as usize, &mut bytes);
        bytes
    }
}

/// Two connected endpoints.
struct Ends {
    a: Side,
    b: Side,
}

impl Ends {
    fn new(options: Options) -> Self {
        let (mut a, mut b) = (Side::new(2, &options), Side::new(3, &options));
        a.bring_up((b.address, 3), &options, options.psn[0], options.psn[1]);
        b.bring_up((a.address, 2), &options, options.psn[1], options.psn[0]);
        // Pattern from which the origin of a byte can be recognised.
        let pattern: Vec<u8> = (0..SCRATCH / 2).map(|index| (index % 251) as u8).collect();
        a.memory.write(0, &pattern);
        Self { a, b }
    }
    fn arrive_at_b(&mut self, packets: &[TestPacket]) {
        packets.iter().for_each(|packet| self.b.receive(self.a.address, packet));
    }
    fn arrive_at_a(&mut self, packets: &[TestPacket]) {
        packets.iter().for_each(|packet| self.a.receive(self.b.address, packet));
    }
    /// Delivers packets in both directions until neither side sends any.
    fn settle(&mut self) {
        loop {
            let (from_a, from_b) = (self.a.transmit(64), self.b.transmit(64));
            if from_a.is_empty() && from_b.is_empty() {
                return;
            }
            self.arrive_at_b(&from_a);
            self.arrive_at_a(&from_b);
        }
    }
}

fn opcodes(packets: &[TestPacket]) -> Vec<Opcode> {
    packets.iter().map(|packet| packet.bth.opcode).collect()
}
fn psns(packets: &[TestPacket]) -> Vec<u32> {
    packets.iter().map(|packet| packet.bth.psn).collect()
}
