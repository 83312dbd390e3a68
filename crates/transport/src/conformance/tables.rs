//! Checks of capabilities, tables of regions, and the descriptor.

use super::check::{Check, Needs};
use super::stage::{Collector, Stage, TIMEOUT, header, receive};
use crate::{PacketIo, PayloadDestination, PayloadLocation, TxPacket};
use rustix::event::{PollFd, PollFlags, Timespec};
use shotline_conformance::{Failure, ensure, ensure_eq};
use shotline_memory::{Region, Sge};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

pub(super) fn checks<T: PacketIo, R: PacketIo>() -> Vec<Check<T, R>> {
    vec![
        Check {
            name: "capabilities",
            proves: "The receiver reports its documented capabilities, so that no check is skipped unnoticed.",
            needs: &[],
            run: capabilities,
        },
        Check {
            name: "region tables",
            proves: "Memory can be used once a table with it is registered, receives stay posted, and a replaced table is \
                     released.",
            needs: &[Needs::Steering],
            run: region_tables,
        },
        Check {
            name: "readiness",
            proves: "The descriptor is readable exactly while packets are queued.",
            needs: &[Needs::Descriptor],
            run: readiness,
        },
    ]
}

fn capabilities<T: PacketIo, R: PacketIo>(stage: &mut Stage<'_, T, R>) -> Result<(), Failure> {
    ensure_eq!(stage.rx.capabilities(), stage.capabilities, "the receiver's capabilities");
    Ok(())
}

fn region_tables<T: PacketIo, R: PacketIo>(stage: &mut Stage<'_, T, R>) -> Result<(), Failure> {
    let memory = stage.memory;
    stage.post(90..91)?;
    let region = Region::host(8192).map_err(|error| error.to_string())?;
    region.write(0, &[0xA5; 4096]);
    let (regions, id) = memory.regions.with(Arc::clone(&region)).ok_or("the table of regions is full")?;
    stage.tx.register(&regions);
    stage.rx.register(&regions);
    let head = header(13);
    let payload = Sge { region: id, offset: 0, len: 3000 };
    let buffer = Sge { region: id, offset: 5000, len: 3000 };
    stage.send(&[TxPacket { header: &head, gather: &[payload], seal: stage.seal() }; 2])?;
    let mut larger = memory.clone();
    larger.regions = regions;
    let choices = VecDeque::from([PayloadDestination::Memory([buffer, Sge::EMPTY]), PayloadDestination::Posted(90)]);
    let received = receive(&mut stage.rx, Collector::new(&larger, choices), 2)?;
    let expected = (PayloadLocation::Memory([buffer, Sge::EMPTY]), PayloadLocation::Posted(90));
    ensure_eq!((received[0].landed, received[1].landed), expected, "the payloads' locations");
    ensure!(received.iter().all(|received| received.bytes == [0xA5; 3000]), "a payload is not what was sent");
    stage.tx.register(&memory.regions);
    stage.rx.register(&memory.regions);
    // One reference is this check's, the other its table's.
    ensure_eq!(Arc::strong_count(&region), 2, "references to memory whose table was replaced");
    Ok(())
}

fn readiness<T: PacketIo, R: PacketIo>(stage: &mut Stage<'_, T, R>) -> Result<(), Failure> {
    let head = header(7);
    let (gather, _) = stage.memory.payload(64, 4096);
    ensure!(!is_readable(&stage.rx, Duration::ZERO)?, "readable before a packet was sent");
    stage.send(&[TxPacket { header: &head, gather: &gather, seal: stage.seal() }])?;
    ensure!(is_readable(&stage.rx, TIMEOUT)?, "not readable although a packet was sent");
    stage.receive(&[None])?;
    ensure!(!is_readable(&stage.rx, Duration::ZERO)?, "readable after the last packet was received");
    Ok(())
}

fn is_readable(rx: &impl PacketIo, duration: Duration) -> Result<bool, Failure> {
    let fd = rx.fd().ok_or("no descriptor")?;
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let timeout = Timespec { tv_sec: duration.as_secs() as i64, tv_nsec: i64::from(duration.subsec_nanos()) };
    Ok(rustix::event::poll(&mut fds, Some(&timeout)).map_err(|error| error.to_string())? == 1)
}
