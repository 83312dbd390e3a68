//! Checks of invariant CRCs.

use super::check::{Check, Needs};
use super::stage::{Stage, header};
use crate::{Icrc, PacketIo, Seal, TxPacket};
use shotline_conformance::{Failure, ensure_eq};
use shotline_wire::crc;
use shotline_wire::shot::DropCause;

pub(super) fn checks<T: PacketIo, R: PacketIo>() -> Vec<Check<T, R>> {
    vec![
        Check {
            name: "known remainders",
            proves: "A packet is sealed from the known CRC remainder of its payload.",
            needs: &[Needs::Seal],
            run: known_remainders,
        },
        Check {
            name: "wrong ICRCs",
            proves: "A packet with a wrong remainder or a forced ICRC is reported as bad.",
            needs: &[Needs::Seal],
            run: wrong_icrcs,
        },
    ]
}

fn known_remainders<T: PacketIo, R: PacketIo>(stage: &mut Stage<'_, T, R>) -> Result<(), Failure> {
    let remainder = crc::remainder(&stage.memory.payload(64, 4096).1);
    check_verdict(stage, Seal::Remainder(remainder), Icrc::Good)
}

fn wrong_icrcs<T: PacketIo, R: PacketIo>(stage: &mut Stage<'_, T, R>) -> Result<(), Failure> {
    let remainder = crc::remainder(&stage.memory.payload(64, 4096).1);
    check_verdict(stage, Seal::Remainder(remainder ^ 1), Icrc::Bad)?;
    check_verdict(stage, Seal::Forced(0x1234_5678), Icrc::Bad)
}

/// Sends a packet with this seal and checks the receiver's verdict.
fn check_verdict<T: PacketIo, R: PacketIo>(
    stage: &mut Stage<'_, T, R>,
    seal: Seal,
    verdict: Icrc,
) -> Result<(), Failure> {
    let head = header(7);
    let (gather, _) = stage.memory.payload(64, 4096);
    stage.send(&[TxPacket { header: &head, gather: &gather, seal }])?;
    let received = stage.receive(&[None])?;
    let fault = (verdict == Icrc::Bad).then_some(DropCause::BadIcrc);
    ensure_eq!((received[0].icrc, received[0].fault), (verdict, fault), "{seal:?}");
    Ok(())
}
