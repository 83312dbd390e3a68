//! Invalid requests of a peer: they are dropped or, on a strict queue pair, answered by a NAK and the error state. No
//! memory is changed.

use super::check::{Check, Needs};
use super::harness::{Harness, QpOptions, Side, pattern};
use crate::api::{Data, Operation, Qp, QpState, QpType, Remote, SendWr, Status, VerbsError};
use shotline_conformance::{Failure, ensure, ensure_eq, failed};
use shotline_memory::Access;
use std::time::Duration;

const RC: &[Needs] = &[Needs::Kind(QpType::Rc)];

pub(super) const CHECKS: &[Check] = &[
    Check { name: "an rkey that is unknown or of another protection domain is refused", needs: RC, run: keys },
    Check {
        name: "a remote access outside its registration is refused, also if its end overflows",
        needs: RC,
        run: bounds,
    },
    Check { name: "the access rights of the memory are enforced", needs: RC, run: memory_rights },
    Check {
        name: "each access right is enforced independently of the others",
        needs: &[Needs::Kind(QpType::Rc), Needs::SeparateRights],
        run: separate_rights,
    },
    Check { name: "the access rights of the queue pair are enforced", needs: RC, run: pair_rights },
    Check {
        name: "a refused operation does not affect the target's queue pair",
        needs: &[Needs::Kind(QpType::Rc), Needs::Lenience],
        run: target_unaffected,
    },
    Check { name: "strict: a refused operation moves both queue pairs to the error state", needs: RC, run: strict },
    Check { name: "a deregistered key is refused", needs: &[Needs::Kind(QpType::Rc), Needs::Revocation], run: revoked },
    Check {
        name: "a window grants its rights on its bytes to its queue pair until it is unbound or expires",
        needs: &[Needs::Kind(QpType::Rc), Needs::Windows],
        run: window,
    },
    Check { name: "memory stays valid until the requests that use it complete", needs: RC, run: in_flight },
    Check {
        name: "packets from an address other than the peer's are dropped",
        needs: &[Needs::Kind(QpType::Rc), Needs::ThirdAddress],
        run: wrong_source,
    },
];

/// Posts an operation that the target must refuse, over a new connection, and checks that the target's memory is
/// unchanged.
fn refused(
    s: &mut Harness<'_>,
    a: &Side,
    b: &Side,
    options: QpOptions,
    operation: Operation,
    len: u32,
) -> Result<(), Failure> {
    let before = b.bytes(0, b.region.len());
    let [qa, qb] = s.connect([a, b], options)?;
    s.post(0, qa, &[SendWr::new(1, operation, Data::Elements(&[a.element(0, len)]))])?;
    let status = s.completions(a, 1)?[0].status;
    // If the target drops the request, the initiator stops retrying; if it is strict, it sends a NAK with the reason.
    let expected = if options.strict { Status::RemoteAccess } else { Status::RetryExceeded };
    let either = status == expected || status == Status::RemoteAccess;
    // An operation that a queue pair does not allow may be as invalid as an unknown opcode (IBTA 9.9.3, table 61).
    let invalid = options.access != Access::ALL && status == Status::RemoteInvalid;
    ensure!(either || invalid, "{operation:?} completed with {status:?}, expected {expected:?}");
    ensure!(b.bytes(0, b.region.len()) == before, "{operation:?} was refused but changed memory");
    s.end(0).destroy_qp(qa).map_err(failed("destroy a queue pair"))?;
    s.end(1).destroy_qp(qb).map_err(failed("destroy a queue pair"))
}

fn short_timeouts() -> QpOptions {
    QpOptions::short_timeouts(QpType::Rc)
}

fn keys(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(4096)?;
    let foreign = s.side(1, 4096)?;
    a.fill(0, 64, 1);
    for remote in [Remote { rkey: b.mr.rkey ^ 1, ..b.remote(0) }, Remote { rkey: 0, ..b.remote(0) }, foreign.remote(0)]
    {
        for operation in [Operation::Write(remote), Operation::Read(remote), Operation::FetchAdd { remote, add: 1 }] {
            refused(s, &a, &b, short_timeouts(), operation, 8)?;
        }
    }
    refused(s, &a, &b, QpOptions { strict: true, ..short_timeouts() }, Operation::Write(foreign.remote(0)), 8)?;
    ensure!(foreign.bytes(0, 8) == [0; 8], "another domain's memory was written");
    // The key of an empty operation is not checked (IBTA C9-88).
    let [qa, _] = s.connect([&a, &b], short_timeouts())?;
    let nothing = Operation::Write(Remote { address: 5, rkey: 0 });
    s.post(0, qa, &[SendWr::new(1, nothing, Data::Elements(&[]))])?;
    s.successes(&a, 1)?;
    Ok(())
}

fn bounds(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(64 << 10)?;
    a.fill(0, 64 << 10, 3);
    let end = b.region.len() as u64;
    for (address, len) in
        [(end - 7, 8), (end, 8), (u64::MAX - 7, 8), (1 << 40, 8), (end - 8999, 9000), (u64::MAX - 99, 9000)]
    {
        let remote = Remote { address, ..b.remote(0) };
        refused(s, &a, &b, short_timeouts(), Operation::Write(remote), len)?;
        refused(s, &a, &b, QpOptions { strict: true, ..short_timeouts() }, Operation::Read(remote), len)?;
    }
    Ok(())
}

fn memory_rights(s: &mut Harness<'_>) -> Result<(), Failure> {
    rights(s, [(Access::LOCAL_WRITE, 0), (Access::REMOTE_READ, 1)])
}

fn separate_rights(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [write, atomic] = [Access::REMOTE_WRITE, Access::REMOTE_ATOMIC].map(|access| Access::LOCAL_WRITE | access);
    rights(s, [(write, 2), (atomic, 4)])
}

/// Tries READ (1), WRITE (2) and an atomic operation (4) on memory with each of these access rights. The second element
/// of a case is the sum of the allowed ones.
fn rights(s: &mut Harness<'_>, cases: [(Access, u8); 2]) -> Result<(), Failure> {
    let a = s.side(0, 4096)?;
    a.fill(0, 64, 1);
    for (access, allowed) in cases {
        let side = s.side_with(1, 4096, access)?;
        let remote = side.remote(0);
        let operations =
            [(Operation::Read(remote), 1), (Operation::Write(remote), 2), (Operation::FetchAdd { remote, add: 1 }, 4)];
        for (operation, needed) in operations {
            if allowed & needed == 0 {
                refused(s, &a, &side, short_timeouts(), operation, 8)?;
                continue;
            }
            let [qa, _] = s.connect([&a, &side], short_timeouts())?;
            s.post(0, qa, &[SendWr::new(1, operation, Data::Elements(&[a.element(0, 8)]))])?;
            s.successes(&a, 1)?;
        }
    }
    Ok(())
}

fn pair_rights(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(4096)?;
    let remote = b.remote(0);
    let options = |access| QpOptions { access, ..short_timeouts() };
    refused(s, &a, &b, options(Access::REMOTE_READ), Operation::Write(remote), 8)?;
    refused(s, &a, &b, options(Access::REMOTE_WRITE), Operation::Read(remote), 8)?;
    refused(s, &a, &b, options(Access::REMOTE_WRITE), Operation::FetchAdd { remote, add: 1 }, 8)
}

fn write(s: &mut Harness<'_>, a: &Side, qp: Qp, to: Remote) -> Result<Status, Failure> {
    s.post(a.end, qp, &[SendWr::new(1, Operation::Write(to), Data::Elements(&[a.element(0, 8)]))])?;
    Ok(s.completions(a, 1)?[0].status)
}

fn target_unaffected(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(4096)?;
    let [qa, qb] = s.connect([&a, &b], short_timeouts())?;
    ensure!(write(s, &a, qa, Remote { rkey: 1, ..b.remote(0) })? != Status::Success, "a wrong key was accepted");
    ensure_eq!(s.end(1).qp_state(qb).map_err(failed("query a state"))?, QpState::ReadyToSend, "the target's state");
    s.expect_no_completions(&b)?;
    ensure_eq!(s.end(0).qp_state(qa).map_err(failed("query a state"))?, QpState::Error, "the initiator's state");
    // Another connection is unaffected.
    let [other, _] = s.connect([&a, &b], short_timeouts())?;
    ensure_eq!(write(s, &a, other, b.remote(0))?, Status::Success, "another connection's WRITE");
    Ok(())
}

fn strict(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(4096)?;
    let [qa, qb] = s.connect([&a, &b], QpOptions { strict: true, ..short_timeouts() })?;
    s.receive(1, qb, 5, &[b.element(0, 8)])?;
    ensure_eq!(write(s, &a, qa, Remote { rkey: 1, ..b.remote(0) })?, Status::RemoteAccess, "the WRITE");
    for (end, qp) in [(0, qa), (1, qb)] {
        ensure_eq!(s.end(end).qp_state(qp).map_err(failed("query a state"))?, QpState::Error, "the state at end {end}");
    }
    let flushed = s.completions(&b, 1)?[0];
    ensure_eq!((flushed.id, flushed.status), (5, Status::Flushed), "the target's receive");
    Ok(())
}

fn revoked(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(4096)?;
    let [qa, _] = s.connect([&a, &b], short_timeouts())?;
    ensure_eq!(write(s, &a, qa, b.remote(0))?, Status::Success, "a WRITE before the deregistration");
    s.end(1).dereg_mr(&b.mr).map_err(failed("deregister memory"))?;
    a.fill(0, 8, 0xAA);
    let before = b.bytes(0, 8);
    ensure!(write(s, &a, qa, b.remote(0))? != Status::Success, "a WRITE with a deregistered key was accepted");
    ensure!(b.bytes(0, 8) == before, "a WRITE with a deregistered key changed memory");
    Ok(())
}

fn window(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = [s.side(0, 4096)?, s.side_with(1, 4096, Access::LOCAL_WRITE)?];
    a.fill(0, 64, 1);
    for case in ["valid", "another queue pair", "past its end", "no right", "unbound", "expired", "memory deregistered"]
    {
        let [qa, qb] = s.connect([&a, &b], short_timeouts())?;
        let [_, other] = s.connect([&a, &b], short_timeouts())?;
        let bound_to = if case == "another queue pair" { other } else { qb };
        let lifetime = if case == "expired" { Duration::ZERO } else { Duration::from_secs(3600) };
        let bound = s.end(1).bind_window(bound_to, &b.mr, 100, 8, Access::REMOTE_WRITE, Some(lifetime));
        let window = bound.map_err(failed("bind a window"))?;
        let remote = Remote { address: u64::from(case == "past its end"), rkey: window.rkey };
        if case == "unbound" {
            s.end(1).unbind_window(&window).map_err(failed("unbind a window"))?;
            ensure!(s.end(1).unbind_window(&window).is_err(), "a window was unbound twice");
        }
        if case == "memory deregistered" {
            s.end(1).dereg_mr(&b.mr).map_err(failed("deregister memory"))?;
        }
        b.region.zero(0, 200);
        let operation = if case == "no right" { Operation::Read(remote) } else { Operation::Write(remote) };
        s.post(0, qa, &[SendWr::new(1, operation, Data::Elements(&[a.element(0, 8)]))])?;
        let status = s.completions(&a, 1)?[0].status;
        ensure_eq!(status == Status::Success, case == "valid", "{case}: a success");
        let written = if case == "valid" { pattern(8, 1) } else { vec![0; 8] };
        ensure_eq!(b.bytes(100, 8), written, "{case}: the window's bytes");
        ensure!(b.bytes(108, 8) == [0; 8] && b.bytes(92, 8) == [0; 8], "{case}: a byte outside the window was written");
    }
    Ok(())
}

fn in_flight(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(1 << 20)?;
    let [qa, qb] = s.connect([&a, &b], QpOptions::new(QpType::Rc))?;
    a.fill(0, 1 << 20, 4);
    let extra = s.side(1, 1 << 20)?; // memory that stays registered
    let all = s.fixture.access();
    let mine = s.end(0).reg_mr(a.pd, &a.region, 0, 1 << 20, all, shotline_memory::Addressing::ZeroBased);
    let mine = mine.map_err(failed("register memory"))?;
    s.receive(1, qb, 1, &[b.element(0, 1 << 20)])?;
    let from = [crate::api::Element { address: 0, len: 1 << 20, lkey: mine.lkey }];
    s.post(0, qa, &[SendWr::new(2, Operation::Send, Data::Elements(&from))])?;
    s.progress()?;
    // Outstanding requests either pin the memory or make the deregistration fail.
    let mut later = Vec::new();
    for (end, mr) in [(0, &mine), (1, &b.mr)] {
        match s.end(end).dereg_mr(mr) {
            Err(VerbsError::InUse { .. }) => later.push((end, mr)),
            result => result.map_err(failed("deregister memory"))?,
        }
    }
    s.successes(&a, 1)?;
    s.successes(&b, 1)?;
    for (end, mr) in later {
        s.end(end).dereg_mr(mr).map_err(failed("deregister memory that is no longer in use"))?;
    }
    ensure!(a.bytes(0, 1 << 20) == b.bytes(0, 1 << 20), "the bytes received differ from those sent");
    drop(extra);
    Ok(())
}

fn wrong_source(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(4096)?;
    let c = s.side(2, 4096)?;
    let [_, qb] = s.connect([&a, &b], short_timeouts())?;
    let attacker = s.create(&c, short_timeouts())?;
    let victim = (s.ends[1].address, qb.0);
    s.bring_up(2, attacker, victim, short_timeouts())?;
    c.fill(0, 8, 0xEE);
    ensure_eq!(write(s, &c, attacker, b.remote(0))?, Status::RetryExceeded, "a WRITE from another address");
    ensure!(b.bytes(0, 8) == [0; 8], "a WRITE from another address changed memory");
    Ok(())
}
