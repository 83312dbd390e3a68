//! WRITE and READ.

use super::check::{Check, Needs};
use super::harness::{Harness, QpOptions, Side, pattern};
use crate::api::{CompletionKind, Data, Mtu, Operation, Qp, QpType, Remote, SendWr};
use shotline_conformance::{Failure, ensure, ensure_eq, failed};
use shotline_memory::Addressing;

const RC: &[Needs] = &[Needs::Kind(QpType::Rc)];
const UC: &[Needs] = &[Needs::Kind(QpType::Uc)];

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "RC: WRITEs of 0 bytes to 3 MiB arrive at their remote address",
        needs: RC,
        run: |s| writes(s, QpOptions::new(QpType::Rc), 3 << 20),
    },
    Check {
        name: "RC: WRITEs arrive with an MTU of 256 bytes",
        needs: RC,
        run: |s| writes(s, QpOptions { mtu: Mtu::B256, ..QpOptions::new(QpType::Rc) }, 70_000),
    },
    Check {
        name: "UC: WRITEs of 0 to 64 KiB arrive at their remote address",
        needs: UC,
        run: |s| {
            let max_len = s.fixture.unreliable_bytes();
            writes(s, QpOptions::new(QpType::Uc), max_len)
        },
    },
    Check {
        name: "READs of 0 bytes to 3 MiB return the remote bytes",
        needs: RC,
        run: |s| reads(s, Mtu::B4096, 3 << 20),
    },
    Check {
        name: "READs return the remote bytes with an MTU of 256 bytes",
        needs: RC,
        run: |s| reads(s, Mtu::B256, 70_000),
    },
    Check { name: "concurrent READs arrive in their own elements", needs: RC, run: many_reads },
    Check { name: "WRITEs gather from lists, and READs scatter to lists", needs: RC, run: lists },
    Check {
        name: "a WRITE with immediate data consumes a receive and writes only its remote range",
        needs: RC,
        run: immediate,
    },
    Check { name: "operations of all kinds take effect in the order in which they were posted", needs: RC, run: order },
    Check { name: "virtual addresses refer to the same bytes as offsets", needs: RC, run: virtual_addresses },
    Check {
        name: "a registration of part of a region gives access to that part only",
        needs: &[Needs::Kind(QpType::Rc), Needs::PartialRegistration],
        run: part,
    },
    Check { name: "both ends write and read concurrently", needs: RC, run: both_directions },
    Check {
        name: "two initiators use one target concurrently",
        needs: &[Needs::Kind(QpType::Rc), Needs::ThirdEndpoint],
        run: two_initiators,
    },
    Check {
        name: "one-sided operations on watched memory are reported and counted",
        needs: &[Needs::Kind(QpType::Rc), Needs::Notices],
        run: notices,
    },
];

fn write(s: &mut Harness<'_>, qp: Qp, a: &Side, from: (u64, u32), to: Remote) -> Result<(), Failure> {
    s.post(a.end, qp, &[SendWr::new(9, Operation::Write(to), Data::Elements(&[a.element(from.0, from.1)]))])
}

fn read(s: &mut Harness<'_>, qp: Qp, a: &Side, into: (u64, u32), from: Remote) -> Result<(), Failure> {
    s.post(a.end, qp, &[SendWr::new(8, Operation::Read(from), Data::Elements(&[a.element(into.0, into.1)]))])
}

fn sizes(mtu: Mtu, max_len: usize) -> impl Iterator<Item = (usize, usize)> {
    let mtu = mtu.bytes() as usize;
    let lens = [0, 1, 3, 4, 64, 255, 256, 257, mtu - 1, mtu, mtu + 1, 3 * mtu - 1, 3 * mtu, 3 * mtu + 5, max_len - 3];
    lens.into_iter().filter(move |len| *len <= max_len - 3).enumerate()
}

fn writes(s: &mut Harness<'_>, options: QpOptions, max_len: usize) -> Result<(), Failure> {
    let [a, b] = s.two_sides(max_len)?;
    let [qa, _] = s.connect([&a, &b], options)?;
    for (round, len) in sizes(options.mtu, max_len) {
        b.region.zero(0, max_len);
        a.fill(0, len, round as u8);
        write(s, qa, &a, (0, len as u32), b.remote(1))?;
        let done = s.successes(&a, 1)?[0];
        ensure_eq!((done.id, done.kind, done.qp), (9, CompletionKind::Write, qa.0), "the WRITE");
        s.expect_no_completions(&b)?; // also waits for an unreliable WRITE to arrive
        ensure!(b.bytes(1, len) == pattern(len, round as u8), "the {len} bytes written differ from those sent");
        ensure!(
            b.bytes(0, 1) == [0] && b.bytes(1 + len, 1) == [0],
            "a byte outside the range of {len} bytes was written"
        );
    }
    Ok(())
}

fn reads(s: &mut Harness<'_>, mtu: Mtu, max_len: usize) -> Result<(), Failure> {
    let [a, b] = s.two_sides(max_len)?;
    let [qa, _] = s.connect([&a, &b], QpOptions { mtu, ..QpOptions::new(QpType::Rc) })?;
    for (round, len) in sizes(mtu, max_len) {
        a.region.zero(0, max_len);
        b.fill(1, len, round as u8);
        read(s, qa, &a, (2, len as u32), b.remote(1))?;
        let done = s.successes(&a, 1)?[0];
        ensure_eq!((done.id, done.kind, done.bytes), (8, CompletionKind::Read, len as u32), "the READ");
        ensure!(a.bytes(2, len) == pattern(len, round as u8), "the {len} bytes read differ from the remote bytes");
        ensure!(
            a.bytes(0, 2) == [0, 0] && a.bytes(2 + len, 1) == [0],
            "a byte outside the range of {len} bytes was written"
        );
        s.expect_no_completions(&b)?;
    }
    Ok(())
}

fn many_reads(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(1 << 20)?;
    let [qa, _] = s.connect([&a, &b], QpOptions::new(QpType::Rc))?;
    b.fill(0, 1 << 20, 1);
    for id in 0..64_u64 {
        let elements = [a.element(id * 16_384, 16_384)];
        let source = b.remote((63 - id) * 16_384);
        s.post(0, qa, &[SendWr::new(id, Operation::Read(source), Data::Elements(&elements))])?;
    }
    let ids: Vec<_> = s.successes(&a, 64)?.iter().map(|c| c.id).collect();
    ensure!(ids.iter().enumerate().all(|(index, id)| *id == index as u64), "READs completed out of order: {ids:?}");
    for id in 0..64 {
        ensure!(a.bytes(id * 16_384, 16_384) == b.bytes((63 - id) * 16_384, 16_384), "READ {id} returned other bytes");
    }
    Ok(())
}

fn lists(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(64 << 10)?;
    let [qa, _] = s.connect([&a, &b], QpOptions::new(QpType::Rc))?;
    a.fill(0, 20_000, 9);
    let from = [a.element(5, 4000), a.element(9000, 5000), a.element(19_000, 999)];
    s.post(0, qa, &[SendWr::new(1, Operation::Write(b.remote(77)), Data::Elements(&from))])?;
    let into = [a.element(60_001, 1), a.element(30_000, 4200), a.element(40_000, 5798)];
    s.post(0, qa, &[SendWr::new(2, Operation::Read(b.remote(77)), Data::Elements(&into))])?;
    s.successes(&a, 2)?;
    let sent = [a.bytes(5, 4000), a.bytes(9000, 5000), a.bytes(19_000, 999)].concat();
    ensure!(b.bytes(77, 9999) == sent, "the WRITE's bytes are not in the order of its list");
    let received = [a.bytes(60_001, 1), a.bytes(30_000, 4200), a.bytes(40_000, 5798)].concat();
    ensure!(received == sent, "the READ's bytes are not in the order of its list");
    Ok(())
}

fn immediate(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(64 << 10)?;
    let [qa, qb] = s.connect([&a, &b], QpOptions::new(QpType::Rc))?;
    for len in [0, 17, 10_000] {
        b.region.zero(0, 64 << 10);
        a.fill(0, len, 8);
        s.receive(1, qb, 5, &[b.element(0, 64)])?;
        let from = [a.element(0, len as u32)];
        s.post(0, qa, &[SendWr::new(1, Operation::WriteImm(b.remote(20_000), 42), Data::Elements(&from))])?;
        let received = s.successes(&b, 1)?[0];
        let found = (received.id, received.kind, received.imm, received.bytes);
        ensure_eq!(found, (5, CompletionKind::RecvWriteImm, Some(42), len as u32), "the receive");
        s.successes(&a, 1)?;
        ensure!(b.bytes(20_000, len) == pattern(len, 8), "the bytes are not at the remote address");
        ensure!(b.bytes(0, 64) == [0; 64], "the receive's elements were written");
    }
    Ok(())
}

fn order(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(64 << 10)?;
    let [qa, _] = s.connect([&a, &b], QpOptions::new(QpType::Rc))?;
    for round in 0..50_u8 {
        a.fill(0, 9000, round);
        a.fill(10_000, 9000, round ^ 0x55);
        let elements = [a.element(0, 9000), a.element(20_000, 9000), a.element(10_000, 9000), a.element(30_000, 9000)];
        let (write, read) = (Operation::Write(b.remote(0)), Operation::Read(b.remote(0)));
        let data = |index: usize| Data::Elements(&elements[index..=index]);
        // The fence keeps the second WRITE from overtaking the READ before it (IBTA 10.8.3.3).
        let second = SendWr { fence: true, ..SendWr::new(3, write, data(2)) };
        let group =
            [SendWr::new(1, write, data(0)), SendWr::new(2, read, data(1)), second, SendWr::new(4, read, data(3))];
        s.post(0, qa, &group)?;
        ensure_eq!(s.successes(&a, 4)?.iter().map(|c| c.id).collect::<Vec<_>>(), [1, 2, 3, 4], "completions");
        ensure!(
            a.bytes(20_000, 9000) == pattern(9000, round),
            "the first READ did not return the bytes of the first WRITE"
        );
        ensure!(
            a.bytes(30_000, 9000) == pattern(9000, round ^ 0x55),
            "the second READ did not return the bytes of the second WRITE"
        );
    }
    Ok(())
}

fn virtual_addresses(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(4096)?;
    let [qa, _] = s.connect([&a, &b], QpOptions::new(QpType::Rc))?;
    let base = 0xFFFF_FFFF_FFFF_0000;
    let all = s.fixture.access();
    let registered = s.end(1).reg_mr(b.pd, &b.region, 0, 4096, all, Addressing::Virtual(base));
    let mr = registered.map_err(failed("register memory"))?;
    a.fill(0, 100, 1);
    write(s, qa, &a, (0, 100), Remote { address: base + 50, rkey: mr.rkey })?;
    s.successes(&a, 1)?;
    ensure!(b.bytes(50, 100) == pattern(100, 1), "the bytes are not at the offset of the virtual address");
    Ok(())
}

fn part(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(4096)?;
    let [qa, _] = s.connect([&a, &b], QpOptions::short_timeouts(QpType::Rc))?;
    let all = s.fixture.access();
    let registered = s.end(1).reg_mr(b.pd, &b.region, 1000, 100, all, Addressing::ZeroBased);
    let mr = registered.map_err(failed("register memory"))?;
    a.fill(0, 101, 1);
    write(s, qa, &a, (0, 100), Remote { address: mr.address, rkey: mr.rkey })?;
    s.successes(&a, 1)?;
    ensure!(b.bytes(1000, 100) == pattern(100, 1), "the address of the registration is not the first byte of the part");
    write(s, qa, &a, (0, 100), Remote { address: mr.address + 1, rkey: mr.rkey })?;
    ensure!(s.successes(&a, 1).is_err(), "a byte after the end of the part was written");
    ensure!(b.bytes(1100, 1) == [0] && b.bytes(1000, 100) == pattern(100, 1), "a refused WRITE changed memory");
    Ok(())
}

fn both_directions(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(4 << 20)?;
    let qps = s.connect([&a, &b], QpOptions::new(QpType::Rc))?;
    let mib = 1 << 20;
    a.fill(0, mib, 1);
    b.fill(0, mib, 2);
    for (this, that, qp) in [(&a, &b, qps[0]), (&b, &a, qps[1])] {
        write(s, qp, this, (0, mib as u32), that.remote(mib as u64))?;
        read(s, qp, this, (2 * mib as u64, mib as u32), that.remote(0))?;
    }
    s.successes(&a, 2)?;
    s.successes(&b, 2)?;
    for (side, other) in [(&a, 2), (&b, 1)] {
        ensure!(side.bytes(mib, mib) == pattern(mib, other), "the bytes written differ from those sent");
        ensure!(side.bytes(2 * mib, mib) == pattern(mib, other), "the bytes read differ from the remote bytes");
    }
    Ok(())
}

fn two_initiators(s: &mut Harness<'_>) -> Result<(), Failure> {
    let target = s.side(0, 4 << 20)?;
    let initiators = [s.side(1, 1 << 20)?, s.side(2, 1 << 20)?];
    let mut qps = [Qp(0); 2];
    for (qp, initiator) in qps.iter_mut().zip(&initiators) {
        *qp = s.connect([initiator, &target], QpOptions::new(QpType::Rc))?[0];
    }
    for (index, initiator) in initiators.iter().enumerate() {
        initiator.fill(0, 1 << 20, index as u8 + 1);
        for piece in 0..16_u64 {
            let offset = index as u64 * (2 << 20) + piece * 65_536;
            write(s, qps[index], initiator, (piece * 65_536, 65_536), target.remote(offset))?;
        }
    }
    for initiator in &initiators {
        s.successes(initiator, 16)?;
    }
    for index in 0..2 {
        let found = target.bytes(index * (2 << 20), 1 << 20);
        ensure!(
            found == pattern(1 << 20, index as u8 + 1),
            "the bytes written by initiator {index} differ from those sent"
        );
    }
    Ok(())
}

fn notices(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(64 << 10)?;
    let [qa, qb] = s.connect([&a, &b], QpOptions::new(QpType::Rc))?;
    write(s, qa, &a, (0, 10), b.remote(0))?;
    s.successes(&a, 1)?;
    ensure_eq!(s.end(1).next_access(), None, "an access to unwatched memory");
    s.end(1).watch_mr(&b.mr, true).map_err(failed("watch memory"))?;
    write(s, qa, &a, (0, 9000), b.remote(100))?;
    read(s, qa, &a, (0, 20), b.remote(200))?;
    let add = Operation::FetchAdd { remote: b.remote(304), add: 1 };
    s.post(0, qa, &[SendWr::new(1, add, Data::Elements(&[a.element(0, 8)]))])?;
    s.successes(&a, 3)?;
    let found: Vec<_> =
        std::iter::from_fn(|| s.end(1).next_access()).map(|n| (n.qp, n.rkey, n.kind, n.address, n.len)).collect();
    let notice = |kind, address, len| (qb.0, b.mr.rkey, kind, address, len);
    let expected = [
        notice(CompletionKind::Write, 100, 9000),
        notice(CompletionKind::Read, 200, 20),
        notice(CompletionKind::FetchAdd, 304, 8),
    ];
    ensure_eq!(found, expected, "accesses");
    let counted = s.end(1).mr_usage(&b.mr).map_err(failed("query the usage"))?;
    let counts = (counted.writes, counted.bytes_in, counted.reads, counted.bytes_out, counted.atomics);
    ensure_eq!(counts, (2, 9010, 1, 20, 1), "the usage");
    Ok(())
}
