//! Local errors: a request is refused before any of it is executed.

use super::check::{Check, Needs};
use super::harness::{Harness, QpOptions};
use crate::api::{
    Data, Destination, Element, Operation, PostError, QpConfig, QpType, RecvWr, Remote, SendWr, VerbsError,
};
use shotline_conformance::{Failure, ensure, ensure_eq, failed};
use shotline_memory::{Access, AccessError, Addressing};

const RC: &[Needs] = &[Needs::Kind(QpType::Rc)];
const UD: &[Needs] = &[Needs::Kind(QpType::Ud)];
const UC: &[Needs] = &[Needs::Kind(QpType::Uc)];

pub(super) const CHECKS: &[Check] = &[
    Check { name: "invalid registrations are refused", needs: &[Needs::Nothing], run: registrations },
    Check { name: "an lkey that is unknown or of another protection domain is refused", needs: RC, run: keys },
    Check { name: "an element outside its registration is refused, also if its end overflows", needs: RC, run: bounds },
    Check { name: "memory without local write access receives no data", needs: RC, run: rights },
    Check { name: "requests and elements beyond the limits of a queue are refused", needs: RC, run: queue_limits },
    Check { name: "operations that the queue pair type does not support are refused", needs: UC, run: unsupported },
    Check { name: "a destination is required for datagrams and refused for connections", needs: UD, run: destinations },
    Check { name: "an operation longer than the maximum is refused", needs: RC, run: too_long },
    Check { name: "a queue pair needs queues that exist", needs: RC, run: missing_queues },
];

fn registrations(s: &mut Harness<'_>) -> Result<(), Failure> {
    let (a, all) = (s.side(0, 4096)?, s.fixture.access());
    let len = a.region.len() as u64;
    let mut register =
        |offset, len, access, addressing| s.end(0).reg_mr(a.pd, &a.region, offset, len, access, addressing);
    let zero = Addressing::ZeroBased;
    let refused =
        |result: Result<_, VerbsError>| matches!(result, Err(VerbsError::Register(_) | VerbsError::Unsupported(_)));
    ensure!(refused(register(0, len + 1, all, zero)), "a byte after the end of the region was registered");
    ensure!(refused(register(len, 1, all, zero)), "a byte after the end of the region was registered");
    ensure!(refused(register(u64::MAX, 2, all, zero)), "an offset that overflows was accepted");
    ensure!(
        refused(register(0, len, all, Addressing::Virtual(u64::MAX - 1))),
        "an address that overflows was accepted"
    );
    ensure!(
        refused(register(0, len, Access::REMOTE_WRITE, zero)),
        "remote write access without local write access was granted"
    );
    ensure!(
        refused(register(0, len, Access::REMOTE_ATOMIC, zero)),
        "remote atomic access without local write access was granted"
    );
    Ok(())
}

/// Posts a request and a receive that must be refused because of their first element.
fn refused(
    s: &mut Harness<'_>,
    qp: crate::api::Qp,
    operation: Operation,
    element: Element,
    reason: AccessError,
) -> Result<(), Failure> {
    let elements = [element];
    let posted = s.end(0).post_send(qp, &[SendWr::new(1, operation, Data::Elements(&elements))]);
    ensure_eq!(posted, Err((0, PostError::Element { index: 0, refused: reason })), "the request");
    if !matches!(operation, Operation::Send) {
        let posted = s.end(0).post_recv(qp, &[RecvWr { id: 1, elements: &elements }]);
        ensure_eq!(posted, Err((0, PostError::Element { index: 0, refused: reason })), "the receive");
    }
    Ok(())
}

fn keys(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(4096)?;
    let [qa, _] = s.connect([&a, &b], QpOptions::new(QpType::Rc))?;
    let foreign = s.side(0, 4096)?;
    let (good, read) = (a.element(0, 8), Operation::Read(b.remote(0)));
    refused(s, qa, read, Element { lkey: good.lkey ^ 0x8000_0000, ..good }, AccessError::UnknownKey)?;
    refused(s, qa, read, Element { lkey: good.lkey ^ 1, ..good }, AccessError::UnknownKey)?;
    refused(s, qa, read, foreign.element(0, 8), AccessError::WrongDomain)?;
    s.end(0).dereg_mr(&a.mr).map_err(failed("deregister memory"))?;
    refused(s, qa, read, good, AccessError::UnknownKey)?;
    s.expect_no_completions(&a)
}

fn bounds(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(4096)?;
    let [qa, _] = s.connect([&a, &b], QpOptions::new(QpType::Rc))?;
    let (len, read) = (a.region.len() as u64, Operation::Read(b.remote(0)));
    for element in [
        a.element(len - 7, 8),
        a.element(len, 1),
        a.element(u64::MAX, 1),
        a.element(u64::MAX - 3, 8),
        a.element(1 << 40, 1),
    ] {
        refused(s, qa, read, element, AccessError::Bounds)?;
    }
    s.expect_no_completions(&a)
}

fn rights(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = [s.side_with(0, 4096, Access::REMOTE_READ)?, s.side(1, 4096)?];
    let [qa, _] = s.connect([&a, &b], QpOptions::new(QpType::Rc))?;
    refused(s, qa, Operation::Read(b.remote(0)), a.element(0, 8), AccessError::Rights)?;
    // Outgoing data needs no access right.
    s.post(0, qa, &[SendWr::new(1, Operation::Write(b.remote(0)), Data::Elements(&[a.element(0, 8)]))])?;
    s.successes(&a, 1)?;
    Ok(())
}

fn queue_limits(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(4096)?;
    let small = |config: &mut QpConfig| (config.max_send_wr, config.max_recv_wr, config.max_sge) = (3, 2, 2);
    let [qa, _] = s.connect([&a, &b], QpOptions { config: small, ..QpOptions::new(QpType::Rc) })?;
    let elements = [a.element(0, 8); 3];
    let send = SendWr::new(1, Operation::Write(b.remote(0)), Data::Elements(&elements[..2]));
    let receive = RecvWr { id: 1, elements: &elements[..2] };
    ensure_eq!(s.end(0).post_send(qa, &[send; 4]), Err((3, PostError::Full)), "four requests in a queue of three");
    ensure_eq!(s.end(0).post_recv(qa, &[receive; 3]), Err((2, PostError::Full)), "three receives in a queue of two");
    s.successes(&a, 3)?;
    let longer = SendWr { data: Data::Elements(&elements), ..send };
    let refused = Err((0, PostError::TooManyElements { max: 2, found: 3 }));
    ensure_eq!(s.end(0).post_send(qa, &[longer]), refused, "three elements in a request of at most two");
    s.post(0, qa, &[send; 3])?;
    s.successes(&a, 3)?;
    Ok(())
}

fn unsupported(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(4096)?;
    let [qa, _] = s.connect([&a, &b], QpOptions::new(QpType::Uc))?;
    let elements = [a.element(0, 8)];
    let remote = b.remote(0);
    for operation in [
        Operation::Read(remote),
        Operation::FetchAdd { remote, add: 1 },
        Operation::CompareSwap { remote, compare: 1, swap: 1 },
        Operation::SendInvalidate(remote.rkey),
    ] {
        let posted = s.end(0).post_send(qa, &[SendWr::new(1, operation, Data::Elements(&elements))]);
        ensure_eq!(posted, Err((0, PostError::Unsupported(QpType::Uc))), "{operation:?}");
    }
    Ok(())
}

fn destinations(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(4096)?;
    let elements = [a.element(0, 8)];
    let send = SendWr::new(1, Operation::Send, Data::Elements(&elements));
    let destination = Some(Destination { address: s.ends[1].address, qp: 5, q_key: 1 });
    let [datagrams, _] = s.connect([&a, &b], QpOptions::new(QpType::Ud))?;
    ensure_eq!(
        s.end(0).post_send(datagrams, &[send]),
        Err((0, PostError::Destination)),
        "a datagram without a destination"
    );
    let write = SendWr { destination, ..SendWr::new(1, Operation::Write(b.remote(0)), Data::Elements(&elements)) };
    ensure_eq!(
        s.end(0).post_send(datagrams, &[write]),
        Err((0, PostError::Unsupported(QpType::Ud))),
        "a WRITE on a datagram queue pair"
    );
    let [connected, _] = s.connect([&a, &b], QpOptions::new(QpType::Rc))?;
    let addressed = SendWr { destination, ..send };
    ensure_eq!(
        s.end(0).post_send(connected, &[addressed]),
        Err((0, PostError::Destination)),
        "a request with a destination on a connected queue pair"
    );
    Ok(())
}

fn too_long(s: &mut Harness<'_>) -> Result<(), Failure> {
    let a = s.side(0, 4096)?;
    let max = s.end(0).capabilities().max_operation;
    // The elements share one region: with as many elements as a queue pair allows, it needs little memory.
    let mut created = Err("a queue pair allows only one element".into());
    let mut element_count = 2048;
    while created.is_err() && element_count > 1 {
        element_count /= 2;
        let config = QpConfig { max_sge: element_count + 1, ..QpConfig::new(QpType::Rc, a.pd, a.cq, a.cq) };
        created = s.end(0).create_qp(&config).map_err(failed("create a queue pair"));
    }
    let qa = created?;
    s.bring_up(0, qa, (s.ends[1].address, 77), QpOptions::new(QpType::Rc))?;
    let region = s.fixture.region((max / u64::from(element_count)) as usize)?;
    let (all, zero) = (s.fixture.access(), Addressing::ZeroBased);
    let mr = s.end(0).reg_mr(a.pd, &region, 0, region.len() as u64, all, zero).map_err(failed("register memory"))?;
    let piece = Element { address: mr.address, len: (max / u64::from(element_count)) as u32, lkey: mr.lkey };
    let mut elements = vec![piece; element_count as usize];
    elements.push(Element { len: (max % u64::from(element_count)) as u32 + 1, ..piece });
    let remote = Remote { address: 0, rkey: 1 };
    let send = SendWr::new(1, Operation::Write(remote), Data::Elements(&elements));
    let refused = Err((0, PostError::Length { max, found: max + 1 }));
    ensure_eq!(s.end(0).post_send(qa, &[send]), refused, "a WRITE one byte longer than the maximum");
    Ok(())
}

fn missing_queues(s: &mut Harness<'_>) -> Result<(), Failure> {
    let a = s.side(0, 4096)?;
    let destroyed = s.end(0).create_cq(8).map_err(failed("create a completion queue"))?;
    s.end(0).destroy_cq(destroyed).map_err(failed("destroy a queue"))?;
    let created = s.end(0).create_qp(&QpConfig::new(QpType::Rc, a.pd, destroyed, a.cq));
    ensure!(
        matches!(created, Err(VerbsError::NoSuch(_))),
        "a queue pair with a destroyed completion queue: {created:?}"
    );
    let srq = s.end(0).create_srq(a.pd, 8, 1).map_err(failed("create a shared receive queue"))?;
    s.end(0).destroy_srq(srq).map_err(failed("destroy a queue"))?;
    let config = QpConfig { srq: Some(srq), ..QpConfig::new(QpType::Rc, a.pd, a.cq, a.cq) };
    ensure!(s.end(0).create_qp(&config).is_err(), "a queue pair was created with a destroyed shared receive queue");
    ensure!(s.end(0).create_cq(0).is_err(), "a completion queue for 0 completions was created");
    Ok(())
}
