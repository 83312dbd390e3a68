//! Invariants of arbitrary messages of a connection manager, Shotline's or RDMA's.

use serde::Serialize;
use serde::de::DeserializeOwned;
use shotline_verbs::cm::message::{Answer, Hello, MAX_MESSAGE_BYTES, Request, Welcome, framed, parse};
use shotline_verbs::rdma_cm::message::{
    Datagram, Message, REP_PRIVATE_BYTES, RdAtomicLimits, Reply, reason, service_id,
};
use shotline_verbs::rdma_cm::{Event, MAD_LEN, Manager};
use std::hash::{BuildHasherDefault, Hasher};
use std::net::IpAddr;
use std::time::Duration;

/// A message is either refused or unchanged after it is serialised and parsed again.
pub fn cm_message(data: &[u8]) {
    if data.len() > MAX_MESSAGE_BYTES {
        return; // refused because of its length
    }
    fn again<T: DeserializeOwned + Serialize>(data: &[u8]) {
        let Ok(message) = parse::<T>(data) else { return };
        let bytes = framed(&message);
        let parsed: T = parse(&bytes[4..]).expect("a serialised message parses");
        assert!(framed(&parsed) == bytes);
    }
    again::<Request>(data);
    again::<Answer>(data);
    again::<Hello>(data);
    again::<Welcome>(data);
}

/// Deterministic hasher that numbers connections 1, 2, 3, so that a corpus can refer to them.
#[derive(Default)]
struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
    }
}

/// Management datagrams (MADs), each after a byte with its delay and the reaction of this side. A datagram is either
/// refused or unchanged after it is serialised and parsed again, and a connection manager sends only datagrams that can
/// be parsed.
pub fn rdma_cm(data: &[u8]) {
    let peer = IpAddr::from([10, 0, 0, 2]);
    let mut manager = Manager::with_hasher(BuildHasherDefault::<NumberHasher>::default());
    manager.listen(service_id(7174));
    let mut now = Duration::ZERO;
    let mut last = None;
    for step in data.chunks_exact(1 + MAD_LEN) {
        let Some((control, mad)) = step.split_first_chunk::<1>() else { return };
        let Ok(mad) = <&[u8; MAD_LEN]>::try_from(mad) else { return };
        if let Some(datagram) = Datagram::parse(mad) {
            assert_eq!(Datagram::parse(&datagram.emit()).as_ref(), Some(&datagram));
            if let (0x80.., Message::Req(request)) = (control[0], datagram.message) {
                manager.connect(now, peer, *request); // a simultaneous request of this side
            }
        }
        manager.receive(now, peer, mad);
        now += Duration::from_millis(100) * (control[0] & 0xF).into();
        manager.expire(now);
        while let Some(event) = manager.next_event() {
            match event {
                Event::Requested(connection, ..) if control[0] & 0x10 == 0 => {
                    let private_data = [0; REP_PRIVATE_BYTES];
                    let reply =
                        Reply { qp: 0x22, psn: 2, rd_atomic: RdAtomicLimits::default(), rnr_retry: 7, private_data };
                    manager.accept(now, connection, reply);
                    last = Some(connection);
                }
                Event::Requested(connection, ..) => manager.reject(now, connection, reason::CONSUMER),
                Event::Accepted(connection, _) => {
                    manager.ready(now, connection);
                    last = Some(connection);
                }
                _ => {}
            }
        }
        if let (Some(connection), 0x20) = (last, control[0] & 0x20) {
            manager.disconnect(now, connection);
        }
        while let Some((to, mad)) = manager.next_out() {
            assert!(to == peer && Datagram::parse(&mad).is_some());
        }
    }
    // Without further answers all timers must expire.
    for _ in 0..100 {
        now += Duration::from_secs(1);
        manager.expire(now);
    }
    assert_eq!(manager.deadline(), None);
}
