//! 01: SEND, WRITE and READ between two endpoints of this machine, over UDP and without privileges.
//!
//! `cargo run --package shotline-verbs --example 01-read-write-send`
//!
//! Both endpoints are in this one program to keep it short; in two programs the code is the same. They would then
//! exchange the contents of `Peer` over a separate connection (as `shotline target` does).

use shotline_memory::{Access, Addressing, Mr, Region};
use shotline_transport::udp::UdpIo;
use shotline_verbs::api::{
    Completion, Cq, Data, Element, Modify, Mtu, Operation, Provider, Qp, QpConfig, QpType, ReadyToReceive, ReadyToSend,
    RecvWr, Remote, SendWr, Status,
};
use shotline_verbs::soft::{SoftEndpoint, UdpOptions};
use shotline_wire::aeth::RnrTimer;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

const MEBIBYTE: u32 = 1 << 20;

/// One endpoint with two mebibytes of memory that its peer may read and write.
struct Side {
    endpoint: SoftEndpoint<UdpIo>,
    memory: Arc<Region>,
    mr: Mr,
    cq: Cq,
    qp: Qp,
}

/// The attributes of an endpoint that its peer needs to connect.
#[derive(Clone, Copy)]
struct Peer {
    address: SocketAddr,
    qp: u32,
    memory: Mr,
}

impl Side {
    fn open(address: &str) -> Result<Self, Box<dyn Error>> {
        // 1. An endpoint has an address. Port 0 selects any free port; the port of RoCEv2 is 4791.
        let mut endpoint = SoftEndpoint::udp(address.parse()?, UdpOptions::default())?;
        // 2. Memory is registered in a protection domain, which gives it keys.
        let pd = endpoint.alloc_pd()?;
        let memory = Region::host(2 * MEBIBYTE as usize)?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let mr = endpoint.reg_mr(pd, &memory, 0, 2 * u64::from(MEBIBYTE), access, Addressing::ZeroBased)?;
        // 3. A queue pair of a reliable connection, and the completion queue of its requests.
        let cq = endpoint.create_cq(16)?;
        let qp = endpoint.create_qp(&QpConfig::new(QpType::Rc, pd, cq, cq))?;
        Ok(Self { endpoint, memory, mr, cq, qp })
    }

    fn attributes(&self) -> Peer {
        Peer { address: self.endpoint.address(), qp: self.qp.0, memory: self.mr }
    }

    /// 4. Connects the queue pair: access rights, address and queue pair of the peer, timeouts.
    fn connect(&mut self, peer: Peer) -> Result<(), Box<dyn Error>> {
        let access = Access::REMOTE_READ | Access::REMOTE_WRITE;
        let receive = ReadyToReceive {
            peer: Some((peer.address, peer.qp)),
            mtu: Mtu::B4096,
            psn: 0, // should be random on a network with untrusted hosts
            max_dest_rd_atomic: 4,
            min_rnr_timer: RnrTimer::from_code(12).ok_or("codes are 0 to 31")?, // 0.64 ms
            ack_every: 0,
        };
        let timeout = Duration::from_millis(67);
        let send = ReadyToSend { psn: 0, timeout, retry_cnt: 7, rnr_retry: 7, max_rd_atomic: 4 };
        for change in [Modify::Init { access, q_key: 0 }, Modify::ReadyToReceive(receive), Modify::ReadyToSend(send)] {
            self.endpoint.modify_qp(self.qp, change)?;
        }
        Ok(())
    }

    fn element(&self, offset: u64, len: u32) -> [Element; 1] {
        [Element { address: self.mr.address + offset, len, lkey: self.mr.lkey }]
    }

    fn post(&mut self, operation: Operation, element: [Element; 1]) -> Result<(), Box<dyn Error>> {
        let request = SendWr::new(1, operation, Data::Elements(&element));
        self.endpoint.post_send(self.qp, &[request]).map_err(|(_, error)| error.into())
    }

    /// Polls for the next completion. Endpoints make progress only when they are called, so the other one is called,
    /// too.
    fn next(&mut self, other: &mut Self) -> Result<Completion, Box<dyn Error>> {
        let mut out = [Completion::default()];
        while self.endpoint.poll_cq(self.cq, &mut out)? == 0 {
            other.endpoint.progress()?;
        }
        match out[0].status {
            Status::Success => Ok(out[0]),
            status => Err(format!("the operation ended with {status:?}").into()),
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let (mut a, mut b) = (Side::open("127.0.0.2:0")?, Side::open("127.0.0.3:0")?);
    let (attributes_of_a, attributes_of_b) = (a.attributes(), b.attributes());
    a.connect(attributes_of_b)?;
    b.connect(attributes_of_a)?;
    let memory = attributes_of_b.memory;
    let remote = |offset| Remote { address: memory.address + offset, rkey: memory.rkey };
    let (here, there) = (a.endpoint.address().ip(), b.endpoint.address().ip());

    // SEND: b posts a receive, which is the destination of a's message.
    let into = b.element(0, 100);
    b.endpoint.post_recv(b.qp, &[RecvWr { id: 1, elements: &into }]).map_err(|(_, error)| error)?;
    a.memory.write(0, b"a message for a receive");
    a.post(Operation::Send, a.element(0, 23))?;
    let received = b.next(&mut a)?;
    a.next(&mut b)?;
    let mut text = vec![0; received.bytes as usize];
    b.memory.read(0, &mut text);
    println!("SEND: {there} received {} bytes: {:?}", received.bytes, String::from_utf8_lossy(&text));

    // WRITE: into b's memory with b's key, without a receive or a completion at b.
    let bytes: Vec<u8> = (0..MEBIBYTE).map(|i| (i % 251) as u8).collect();
    a.memory.write(0, &bytes);
    a.post(Operation::Write(remote(500)), a.element(0, MEBIBYTE))?;
    a.next(&mut b)?;
    let polled = b.endpoint.poll_cq(b.cq, &mut [Completion::default()])?;
    println!("WRITE: {there} has {MEBIBYTE} new bytes and {polled} completions");

    // READ: the same bytes back, to another offset.
    a.post(Operation::Read(remote(500)), a.element(MEBIBYTE.into(), MEBIBYTE))?;
    let read = a.next(&mut b)?;
    let mut back = vec![0; bytes.len()];
    a.memory.read(bytes.len(), &mut back);
    println!("READ: {here} fetched {} bytes, as they were written: {}", read.bytes, back == bytes);
    Ok(())
}
