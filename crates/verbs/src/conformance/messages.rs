//! SEND and RECV.

use super::check::{Check, Needs};
use super::harness::{Harness, Q_KEY, QpOptions, pattern};
use crate::api::{CompletionKind, Data, Destination, Mtu, Operation, QpType, RecvWr, SendWr, Status};
use shotline_conformance::{Failure, ensure, ensure_eq, failed};

const RC: &[Needs] = &[Needs::Kind(QpType::Rc)];
const UC: &[Needs] = &[Needs::Kind(QpType::Uc)];
const UD: &[Needs] = &[Needs::Kind(QpType::Ud)];

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "RC: SENDs of 0 bytes to 3 MiB arrive",
        needs: RC,
        run: |s| sizes(s, QpOptions::new(QpType::Rc), 3 << 20),
    },
    Check {
        name: "RC: SENDs arrive with an MTU of 256 bytes",
        needs: RC,
        run: |s| sizes(s, QpOptions { mtu: Mtu::B256, ..QpOptions::new(QpType::Rc) }, 70_000),
    },
    Check {
        name: "UC: SENDs of 0 to 64 KiB arrive",
        needs: UC,
        run: |s| {
            let max_len = s.fixture.unreliable_bytes();
            sizes(s, QpOptions::new(QpType::Uc), max_len)
        },
    },
    Check {
        name: "UD: datagrams of 0 to 4096 bytes arrive, and the completion has the sender",
        needs: UD,
        run: datagrams,
    },
    Check { name: "UD: a datagram with a wrong queue key is dropped silently", needs: UD, run: wrong_q_key },
    Check { name: "SENDs gather from lists, and receives scatter to lists", needs: RC, run: lists },
    Check { name: "inline bytes can be reused after the post", needs: RC, run: inline },
    Check { name: "immediate data is in the receive's completion", needs: RC, run: immediate },
    Check {
        name: "a SEND with invalidate invalidates its key",
        needs: &[Needs::Kind(QpType::Rc), Needs::Invalidation],
        run: invalidate,
    },
    Check { name: "messages arrive in the order in which they were posted", needs: RC, run: order },
    Check { name: "several receives may use the same memory", needs: RC, run: same_memory },
    Check { name: "unsignalled requests complete silently and free their slots", needs: RC, run: unsignalled },
    Check { name: "a list of requests is posted up to its first invalid request", needs: RC, run: partial_post },
    Check { name: "a SEND waits for a receive (RNR)", needs: RC, run: receiver_not_ready },
    Check { name: "a SEND without a receive fails after its RNR retries", needs: RC, run: never_ready },
    Check { name: "a message longer than its receive fails at both ends", needs: RC, run: too_long },
];

fn sizes(s: &mut Harness<'_>, options: QpOptions, max_len: usize) -> Result<(), Failure> {
    let mtu = options.mtu.bytes() as usize;
    let [a, b] = s.two_sides(max_len)?;
    let [qa, qb] = s.connect([&a, &b], options)?;
    let sizes =
        [0, 1, 3, 4, 63, 64, 65, 255, 256, 257, mtu - 1, mtu, mtu + 1, 3 * mtu - 1, 3 * mtu, 3 * mtu + 5, max_len];
    for (round, len) in sizes.into_iter().filter(|len| *len <= max_len).enumerate() {
        b.region.zero(0, max_len);
        a.fill(0, len, round as u8);
        let into = [b.element(0, max_len as u32)];
        s.receive(1, qb, 7, &into)?;
        let from = [a.element(0, len as u32)];
        let send = SendWr::new(9, Operation::Send, Data::Elements(&from));
        s.post(0, qa, &[send])?;
        let received = s.successes(&b, 1)?[0];
        ensure_eq!(
            (received.id, received.kind, received.qp, received.bytes),
            (7, CompletionKind::Recv, qb.0, len as u32),
            "the receive"
        );
        let sent = s.successes(&a, 1)?[0];
        ensure_eq!((sent.id, sent.kind, sent.qp), (9, CompletionKind::Send, qa.0), "the SEND");
        ensure!(b.bytes(0, len) == pattern(len, round as u8), "the {len} bytes received differ from those sent");
        ensure!(
            b.bytes(len, (max_len - len).min(64)).iter().all(|byte| *byte == 0),
            "more than {len} bytes were written"
        );
    }
    Ok(())
}

fn datagrams(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(8192)?;
    let [qa, qb] = s.connect([&a, &b], QpOptions::new(QpType::Ud))?;
    let destination = Some(Destination { address: s.ends[1].address, qp: qb.0, q_key: Q_KEY });
    for len in [0, 1, 64, 1000, 4093, 4096] {
        a.fill(0, len, len as u8);
        let into = [b.element(0, 4096)];
        s.receive(1, qb, 1, &into)?;
        let from = [a.element(0, len as u32)];
        let send = SendWr { destination, ..SendWr::new(2, Operation::SendImm(77), Data::Elements(&from)) };
        s.post(0, qa, &[send])?;
        let received = s.successes(&b, 1)?[0];
        ensure_eq!((received.bytes, received.imm), (len as u32, Some(77)), "the receive");
        ensure_eq!(
            received.source.map(|(from, qp)| (from.ip(), qp)),
            Some((s.ends[0].address.ip(), qa.0)),
            "the sender"
        );
        ensure!(b.bytes(0, len) == pattern(len, len as u8), "the {len} bytes received differ from those sent");
        s.successes(&a, 1)?;
    }
    let from = [a.element(0, 4097)];
    let send = SendWr { destination, ..SendWr::new(3, Operation::Send, Data::Elements(&from)) };
    ensure!(s.end(0).post_send(qa, &[send]).is_err(), "a datagram longer than the MTU was posted");
    Ok(())
}

fn wrong_q_key(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(8192)?;
    let [qa, qb] = s.connect([&a, &b], QpOptions::new(QpType::Ud))?;
    let into = [b.element(0, 64)];
    s.receive(1, qb, 1, &into)?;
    let from = [a.element(0, 8)];
    for q_key in [Q_KEY + 1, Q_KEY] {
        let destination = Some(Destination { address: s.ends[1].address, qp: qb.0, q_key });
        let send = SendWr { destination, ..SendWr::new(2, Operation::Send, Data::Elements(&from)) };
        s.post(0, qa, &[send])?;
        s.successes(&a, 1)?; // a datagram completes when it is sent
        if q_key != Q_KEY {
            s.expect_no_completions(&b)?;
        }
    }
    s.successes(&b, 1)?;
    Ok(())
}

fn lists(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(64 << 10)?;
    let [qa, qb] = s.connect([&a, &b], QpOptions::new(QpType::Rc))?;
    a.fill(0, 30_000, 5);
    let from = [a.element(100, 5), a.element(7000, 10_000), a.element(1, 0), a.element(20_000, 4097)];
    let into = [b.element(40_000, 4096), b.element(3, 1), b.element(10, 6000), b.element(20_000, 4006)];
    s.receive(1, qb, 1, &into)?;
    s.post(0, qa, &[SendWr::new(2, Operation::Send, Data::Elements(&from))])?;
    ensure_eq!(s.successes(&b, 1)?[0].bytes, 14_102, "the length");
    let sent = [a.bytes(100, 5), a.bytes(7000, 10_000), a.bytes(20_000, 4097)].concat();
    let received = [b.bytes(40_000, 4096), b.bytes(3, 1), b.bytes(10, 6000), b.bytes(20_000, 4005)].concat();
    ensure!(sent == received, "the bytes are not in the order of the lists");
    ensure!(b.bytes(24_005, 1) == [0], "more bytes were written than were sent");
    Ok(())
}

fn inline(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(4096)?;
    let [qa, qb] = s.connect([&a, &b], QpOptions::new(QpType::Rc))?;
    for id in 0..3_u8 {
        let into = [b.element(u64::from(id) * 64, 64)];
        s.receive(1, qb, 1, &into)?;
        let mut bytes = vec![id + 1; 50];
        s.post(0, qa, &[SendWr::new(2, Operation::Send, Data::Inline(&bytes))])?;
        bytes.fill(0xEE);
    }
    s.successes(&b, 3)?;
    for id in 0..3_u8 {
        ensure_eq!(b.bytes(usize::from(id) * 64, 50), vec![id + 1; 50], "inline bytes");
    }
    let too_long = [0; 65];
    let send = SendWr::new(3, Operation::Send, Data::Inline(&too_long));
    ensure!(s.end(0).post_send(qa, &[send]).is_err(), "more inline bytes were posted than the queue allows");
    Ok(())
}

fn immediate(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(16_384)?;
    let [qa, qb] = s.connect([&a, &b], QpOptions::new(QpType::Rc))?;
    for (len, imm) in [(0, 0), (10, 0xFFFF_FFFF), (9000, 0x0102_0304)] {
        let into = [b.element(0, 16_384)];
        s.receive(1, qb, 1, &into)?;
        let from = [a.element(0, len)];
        s.post(0, qa, &[SendWr::new(2, Operation::SendImm(imm), Data::Elements(&from))])?;
        let received = s.successes(&b, 1)?[0];
        ensure_eq!((received.imm, received.bytes), (Some(imm), len), "immediate data");
    }
    Ok(())
}

fn invalidate(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(4096)?;
    let [qa, qb] = s.connect([&a, &b], QpOptions::short_timeouts(QpType::Rc))?;
    let extra = s.side(1, 4096)?;
    // The key must be of the queue pair's domain.
    let all = (s.fixture.access(), shotline_memory::Addressing::ZeroBased);
    let mr = s.end(1).reg_mr(b.pd, &extra.region, 0, 4096, all.0, all.1).map_err(failed("register memory"))?;
    let into = [b.element(0, 64)];
    s.receive(1, qb, 1, &into)?;
    let from = [a.element(0, 16)];
    s.post(0, qa, &[SendWr::new(2, Operation::SendInvalidate(mr.rkey), Data::Elements(&from))])?;
    ensure_eq!(s.successes(&b, 1)?[0].invalidated, Some(mr.rkey), "the invalidated key");
    s.successes(&a, 1)?;
    let remote = crate::api::Remote { address: mr.address, rkey: mr.rkey };
    s.post(0, qa, &[SendWr::new(3, Operation::Write(remote), Data::Elements(&from))])?;
    ensure!(s.completions(&a, 1)?[0].status != Status::Success, "an invalidated key was accepted");
    Ok(())
}

fn order(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(1 << 20)?;
    let [qa, qb] = s.connect([&a, &b], QpOptions::new(QpType::Rc))?;
    for round in 0..10_u64 {
        for id in 0..100_u64 {
            let into = [b.element(id * 8192, 8192)];
            s.receive(1, qb, id, &into)?;
            let from = [a.element(id * 8192, (id * 83 + round) as u32 % 8192)];
            let send = SendWr::new(id, Operation::SendImm(id as u32), Data::Elements(&from));
            s.post(0, qa, &[send])?;
        }
        let received: Vec<_> = s.successes(&b, 100)?.iter().map(|c| (c.id, c.imm)).collect();
        ensure!(
            received.iter().enumerate().all(|(index, c)| *c == (index as u64, Some(index as u32))),
            "receives: {received:?}"
        );
        let sent: Vec<_> = s.successes(&a, 100)?.iter().map(|c| c.id).collect();
        ensure!(sent.iter().enumerate().all(|(index, id)| *id == index as u64), "SENDs: {sent:?}");
    }
    Ok(())
}

fn same_memory(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(64 << 10)?;
    let [qa, qb] = s.connect([&a, &b], QpOptions::new(QpType::Rc))?;
    for len in [40, 4096, 20_000] {
        a.fill(0, len, len as u8);
        let (from, into) = ([a.element(0, len as u32)], [b.element(0, len as u32)]);
        let both = [b.element(100, len as u32 / 2), b.element(90, len as u32)]; // overlapping elements in one list
        for id in 0..20 {
            s.receive(1, qb, id, if id == 7 { &both } else { &into })?;
        }
        for id in 0..20 {
            s.post(0, qa, &[SendWr::new(id, Operation::Send, Data::Elements(&from))])?;
        }
        ensure_eq!(s.successes(&b, 20)?.len(), 20, "receives");
        s.successes(&a, 20)?;
        ensure!(b.bytes(0, len) == pattern(len, len as u8), "the memory does not contain the last message");
    }
    Ok(())
}

fn unsignalled(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(4096)?;
    let [qa, qb] = s.connect([&a, &b], QpOptions::new(QpType::Rc))?;
    let (from, into) = ([a.element(0, 8)], [b.element(0, 8)]);
    for _ in 0..20 {
        for id in 0..64_u64 {
            s.receive(1, qb, id, &into)?;
            let send = SendWr { signalled: id == 63, ..SendWr::new(id, Operation::Send, Data::Elements(&from)) };
            s.post(0, qa, &[send])?;
        }
        ensure_eq!(s.successes(&a, 1)?[0].id, 63, "the only signalled request");
        s.successes(&b, 64)?;
    }
    s.expect_no_completions(&a)
}

fn partial_post(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(4096)?;
    let [qa, qb] = s.connect([&a, &b], QpOptions::new(QpType::Rc))?;
    let (from, into, bad) = ([a.element(0, 8)], [b.element(0, 8)], [a.element(1 << 40, 8)]);
    let receives = [RecvWr { id: 1, elements: &into }; 8];
    s.end(1).post_recv(qb, &receives).map_err(|(index, error)| format!("receive {index}: {error}"))?;
    let good = |id| SendWr::new(id, Operation::Send, Data::Elements(&from));
    let sends = [good(0), good(1), good(2), SendWr::new(3, Operation::Send, Data::Elements(&bad)), good(4)];
    let (index, _) = s.end(0).post_send(qa, &sends).err().ok_or("a list with an invalid element was accepted")?;
    ensure_eq!(index, 3, "the index of the invalid request");
    ensure_eq!(s.successes(&a, 3)?.iter().map(|c| c.id).collect::<Vec<_>>(), [0, 1, 2], "the requests before it");
    s.expect_no_completions(&a)?;
    s.successes(&b, 3)?;
    s.expect_no_completions(&b)
}

fn receiver_not_ready(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(16_384)?;
    let [qa, qb] = s.connect([&a, &b], QpOptions::new(QpType::Rc))?;
    a.fill(0, 9000, 3);
    let (from, into) = ([a.element(0, 9000)], [b.element(0, 9000)]);
    let sends = [1, 2].map(|id| SendWr::new(id, Operation::Send, Data::Elements(&from)));
    s.post(0, qa, &sends)?;
    for _ in 0..20 {
        s.progress()?;
    }
    for id in [3, 4] {
        s.receive(1, qb, id, &into)?;
        ensure_eq!(s.successes(&b, 1)?[0].id, id, "the receive posted late");
    }
    s.successes(&a, 2)?;
    ensure!(b.bytes(0, 9000) == pattern(9000, 3), "the bytes received differ from those sent");
    Ok(())
}

fn never_ready(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(4096)?;
    let [qa, _] = s.connect([&a, &b], QpOptions::short_timeouts(QpType::Rc))?;
    let from = [a.element(0, 8)];
    s.post(0, qa, &[SendWr::new(1, Operation::Send, Data::Elements(&from))])?;
    ensure_eq!(s.completions(&a, 1)?[0].status, Status::RnrRetryExceeded, "the SEND");
    Ok(())
}

fn too_long(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(16_384)?;
    let [qa, qb] = s.connect([&a, &b], QpOptions { strict: true, ..QpOptions::short_timeouts(QpType::Rc) })?;
    let (from, into) = ([a.element(0, 9000)], [b.element(0, 8000)]);
    s.receive(1, qb, 1, &into)?;
    s.post(0, qa, &[SendWr::new(2, Operation::Send, Data::Elements(&from))])?;
    let statuses = (s.completions(&b, 1)?[0].status, s.completions(&a, 1)?[0].status);
    // The statuses of the standard (IBTA 9.9.3), or those of a device that reports a failed receive (rxe).
    let known = [(Status::LocalLength, Status::RemoteInvalid), (Status::LocalOperation, Status::RemoteOperation)];
    ensure!(known.contains(&statuses), "the receive and the SEND completed with {statuses:?}");
    ensure!(b.bytes(8000, 1000).iter().all(|byte| *byte == 0), "bytes were written after the end of the receive");
    Ok(())
}
