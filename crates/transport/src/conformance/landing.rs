//! Checks of where payloads land.

use super::check::{Check, Needs};
use super::stage::{BUFFERS, Collector, HEADER, Stage, header, receive};
use crate::{PacketIo, PayloadDestination, PayloadLocation, Recv, TxPacket};
use shotline_conformance::{Failure, ensure, ensure_eq};
use shotline_memory::Sge;
use shotline_wire::crc;
use shotline_wire::shot::DropCause;

pub(super) fn checks<T: PacketIo, R: PacketIo>() -> Vec<Check<T, R>> {
    vec![
        Check {
            name: "batches",
            proves: "Each payload of a batch lands at the destination that was chosen for it, including a shorter last one.",
            needs: &[Needs::Steering],
            run: batches,
        },
        Check {
            name: "scratch memory",
            proves: "A payload lands in scratch memory if its destination is used up, withdrawn, too small, or unknown.",
            needs: &[Needs::Steering],
            run: scratch_memory,
        },
        Check {
            name: "duplicate picks",
            proves: "A receive that is picked twice takes one payload, and the other payload is intact.",
            needs: &[Needs::Steering],
            run: duplicate_picks,
        },
        Check {
            name: "two pieces",
            proves: "A receive of two pieces takes a payload that is gathered from two pieces.",
            needs: &[Needs::Steering],
            run: two_pieces,
        },
        Check {
            name: "short packets",
            proves: "A packet without a payload is valid, and a packet shorter than its header is malformed.",
            needs: &[],
            run: short_packets,
        },
        Check {
            name: "predicted header lengths",
            proves: "A header length that the steer predicts, right or wrong, changes no byte and no verdict.",
            needs: &[Needs::Steering],
            run: predicted_header_lens,
        },
        Check {
            name: "chosen memory",
            proves: "A payload lands in the memory that the steer chooses, in one piece or two, or else in scratch memory, \
                     and no adjacent byte changes.",
            needs: &[Needs::Steering],
            run: chosen_memory,
        },
        Check {
            name: "mixed sizes",
            proves: "Each payload of a sequence of mixed sizes lands at its destination.",
            needs: &[Needs::Steering],
            run: mixed_sizes,
        },
    ]
}

fn batches<T: PacketIo, R: PacketIo>(stage: &mut Stage<'_, T, R>) -> Result<(), Failure> {
    let (good, seal) = (stage.good(), stage.seal());
    stage.post(0..40)?;
    let headers: Vec<_> = (0..40).map(header).collect();
    let len = |index| if index == 39 { 1344 } else { 4096 };
    let packets: Vec<_> = (0..40_u32).map(|i| stage.memory.payload(u64::from(i) * 8, len(i))).collect();
    let sends: Vec<_> =
        headers.iter().zip(&packets).map(|(header, (gather, _))| TxPacket { header, gather, seal }).collect();
    stage.send(&sends)?;
    let ids: Vec<_> = (0..40).rev().map(Some).collect();
    for (index, received) in stage.receive(&ids)?.iter().enumerate() {
        ensure_eq!(received.landed, PayloadLocation::Posted(39 - index as u32), "packet {index}");
        ensure_eq!(
            (received.bytes == packets[index].1, received.icrc, received.fault),
            (true, good, None),
            "packet {index}"
        );
        ensure_eq!(received.header, headers[index], "header {index}");
        ensure_eq!(received.payload_crc, crc::remainder(&packets[index].1), "remainder {index}");
    }
    Ok(())
}

fn scratch_memory<T: PacketIo, R: PacketIo>(stage: &mut Stage<'_, T, R>) -> Result<(), Failure> {
    let (good, seal) = (stage.good(), stage.seal());
    stage.post(50..53)?;
    stage.rx.withdraw(&[52]);
    let small = Recv { id: 53, sge: [stage.memory.buffer(53, 100), Sge::EMPTY] };
    ensure_eq!(stage.rx.post(&[small]), 1, "small receives accepted");
    let head = header(7);
    let (gather, bytes) = stage.memory.payload(64, 4096);
    for (id, slot) in [
        (Some(50), Some(50)),
        (Some(50), None),
        (Some(52), None),
        (Some(53), None),
        (None, None),
        (Some(u32::MAX), None),
    ] {
        stage.send(&[TxPacket { header: &head, gather: &gather, seal }])?;
        let received = stage.receive(&[id])?;
        let landed = matches!(received[0].landed, PayloadLocation::Posted(id) if Some(id) == slot);
        ensure_eq!(landed, slot.is_some(), "receive {id:?}");
        ensure_eq!((received[0].bytes == bytes, received[0].icrc), (true, good), "receive {id:?}");
    }
    Ok(())
}

fn duplicate_picks<T: PacketIo, R: PacketIo>(stage: &mut Stage<'_, T, R>) -> Result<(), Failure> {
    stage.post(51..52)?;
    let head = header(7);
    let (gather, bytes) = stage.memory.payload(64, 4096);
    stage.send(&[TxPacket { header: &head, gather: &gather, seal: stage.seal() }; 2])?;
    let twice = stage.receive(&[Some(51), Some(51)])?;
    ensure_eq!(
        twice.iter().filter(|received| received.landed == PayloadLocation::Posted(51)).count(),
        1,
        "payloads in the receive"
    );
    ensure!(twice.iter().all(|received| received.bytes == bytes), "a payload is not what was sent");
    Ok(())
}

fn two_pieces<T: PacketIo, R: PacketIo>(stage: &mut Stage<'_, T, R>) -> Result<(), Failure> {
    let (memory, head) = (stage.memory, header(7));
    let (gather, bytes) = memory.payload(64, 4096);
    let (front, back) = (memory.buffer(60, 1000), memory.buffer(70, 4000));
    ensure_eq!(stage.rx.post(&[Recv { id: 60, sge: [front, back] }]), 1, "receives accepted");
    let halves = [Sge { len: 2000, ..gather[0] }, Sge { offset: gather[0].offset + 2000, len: 2096, ..gather[0] }];
    stage.send(&[TxPacket { header: &head, gather: &halves, seal: stage.seal() }])?;
    let received = stage.receive(&[Some(60)])?;
    ensure_eq!((received[0].landed, received[0].icrc), (PayloadLocation::Posted(60), stage.good()), "the packet");
    ensure!(memory.read(front) == bytes[..1000], "the first piece is not the payload's front");
    ensure!(memory.read(memory.buffer(70, 3096)) == bytes[1000..], "the second piece is not the payload's rest");
    Ok(())
}

fn short_packets<T: PacketIo, R: PacketIo>(stage: &mut Stage<'_, T, R>) -> Result<(), Failure> {
    let (head, seal) = (header(7), stage.seal());
    stage.send(&[TxPacket { header: &head, gather: &[], seal }])?;
    stage.send(&[TxPacket { header: &head[..9], gather: &[], seal }])?;
    let received = stage.receive(&[None, None])?;
    ensure_eq!(
        (received[0].bytes.len(), received[0].icrc, received[0].fault),
        (0, stage.good(), None),
        "without a payload"
    );
    ensure_eq!(received[1].fault, Some(DropCause::Malformed), "shorter than its header");
    Ok(())
}

fn predicted_header_lens<T: PacketIo, R: PacketIo>(stage: &mut Stage<'_, T, R>) -> Result<(), Failure> {
    let (memory, good, seal, head) = (stage.memory, stage.good(), stage.seal(), header(7));
    stage.post(80..83)?;
    let payloads: Vec<_> = (0..3).map(|i| memory.payload(512 * i, if i == 2 { 60 } else { 1000 })).collect();
    let sends: Vec<_> = payloads.iter().map(|(gather, _)| TxPacket { header: &head, gather, seal }).collect();
    stage.send(&sends)?;
    let header_lens = vec![None, Some(32), Some(200)];
    let steer = Collector { header_lens, ..Collector::new(memory, (80..83).map(PayloadDestination::Posted).collect()) };
    let received = receive(&mut stage.rx, steer, 3)?;
    for (index, (received, (_, bytes))) in received.iter().zip(&payloads).enumerate() {
        let whole = [received.header.as_slice(), &received.bytes].concat() == [head.as_slice(), bytes].concat();
        ensure_eq!((whole, received.icrc, received.fault), (true, good, None), "packet {index}");
    }
    // A backend that saw each packet alone has no lengths to override.
    let one_by_one = received[1].header.len() == HEADER;
    let split = (received[1].header.len(), received[1].bytes.len(), received[2].bytes.len());
    ensure!(one_by_one || split == (32, 992, 0), "split at {split:?}");
    Ok(())
}

fn chosen_memory<T: PacketIo, R: PacketIo>(stage: &mut Stage<'_, T, R>) -> Result<(), Failure> {
    const BUFFER_BYTES: u32 = 4096;
    let (memory, good, seal, head) = (stage.memory, stage.good(), stage.seal(), header(11));
    let payloads: Vec<_> = (0..10).map(|i| memory.payload(i * 40, if i == 9 { 77 } else { 1000 })).collect();
    let sends: Vec<_> = payloads.iter().map(|(gather, _)| TxPacket { header: &head, gather, seal }).collect();
    let single = |buffer: u64, len| PayloadDestination::Memory([memory.buffer(buffer, len), Sge::EMPTY]);
    let pair = |buffer: u64, first, second| {
        PayloadDestination::Memory([memory.buffer(buffer, first), memory.buffer(buffer + 1, second)])
    };
    let destinations = [
        (single(0, 1000), true),
        (single(1, BUFFER_BYTES), true),
        (single(2, 999), false),
        (pair(3, 1, 999), true),
        (pair(5, 999, 1), true),
        (pair(7, 600, 399), false),
        (PayloadDestination::Memory([Sge::EMPTY; 2]), false),
        (pair(9, 1000, 5), true),
        (PayloadDestination::Scratch, false),
        (single(11, 77), true),
    ];
    for together in [true, false] {
        for buffer in 0..12 {
            memory.fill(memory.buffer(buffer, BUFFER_BYTES), 0xEE);
        }
        for some in sends.chunks(if together { sends.len() } else { 1 }) {
            stage.send(some)?;
        }
        let steer = Collector::new(memory, destinations.iter().map(|(to, _)| *to).collect());
        for (index, (received, (to, fits))) in receive(&mut stage.rx, steer, 10)?.iter().zip(destinations).enumerate() {
            let landed_there = matches!((received.landed, to), (PayloadLocation::Memory(at), PayloadDestination::Memory(chosen)) if at == chosen);
            ensure_eq!(landed_there, fits, "packet {index} landed in the chosen memory");
            ensure_eq!(
                (received.bytes == payloads[index].1, received.icrc, received.fault),
                (true, good, None),
                "packet {index}"
            );
        }
        // Bytes next to the payloads are unchanged.
        for (buffer, used) in
            [(0, 1000), (1, 1000), (2, 0), (3, 1), (4, 999), (5, 999), (6, 1), (7, 0), (8, 0), (10, 0)]
        {
            let bytes = memory.read(memory.buffer(buffer, BUFFER_BYTES));
            ensure!(
                bytes[used..].iter().all(|byte| *byte == 0xEE),
                "bytes next to the payload changed in buffer {buffer}"
            );
        }
    }
    Ok(())
}

fn mixed_sizes<T: PacketIo, R: PacketIo>(stage: &mut Stage<'_, T, R>) -> Result<(), Failure> {
    let (memory, seal) = (stage.memory, stage.seal());
    let lens = (0..20).chain([1500; 20]).chain([4000, 7, 4000, 4000]).chain([64; 30]).chain([3000, 64, 0, 9]);
    let lens: Vec<u32> = lens.collect();
    for burst in [1, 5, 98] {
        stage.post(0..BUFFERS as u32)?;
        for (at, lens) in lens.chunks(burst).enumerate() {
            let payloads: Vec<_> = lens.iter().map(|len| memory.payload(u64::from(*len), *len)).collect();
            let heads: Vec<_> = (0..lens.len()).map(|i| header(i as u8)).collect();
            for (head, (gather, _)) in heads.iter().zip(&payloads) {
                stage.send(&[TxPacket { header: head, gather, seal }])?;
            }
            let first = (at * burst) as u32;
            let ids: Vec<_> = (first..first + lens.len() as u32).map(Some).collect();
            for (index, received) in stage.receive(&ids)?.iter().enumerate() {
                let what = (received.header == heads[index], received.bytes == payloads[index].1, received.fault);
                ensure_eq!(what, (true, true, None), "{} bytes, number {index} of {burst}", lens[index]);
                let slot = PayloadLocation::Posted(first + index as u32);
                ensure!(
                    received.landed == slot || lens[index] == 0,
                    "number {index} of {burst} landed in {:?}",
                    received.landed
                );
            }
        }
        stage.withdraw_all();
    }
    Ok(())
}
