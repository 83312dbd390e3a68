//! States of queue pairs.

use super::check::{Check, Needs};
use super::harness::{Harness, QpOptions};
use crate::api::{CompletionKind, Data, Modify, Operation, PostError, Qp, QpState, QpType, RecvWr, SendWr, Status};
use shotline_conformance::{Failure, ensure, ensure_eq, failed};
use shotline_memory::Access;

const RC: &[Needs] = &[Needs::Kind(QpType::Rc)];

pub(super) const CHECKS: &[Check] = &[
    Check { name: "queue pair numbers have 24 bits, are unique, and are neither 0 nor 1", needs: RC, run: numbers },
    Check {
        name: "queue pair numbers are random",
        needs: &[Needs::Kind(QpType::Rc), Needs::RandomNumbers],
        run: random_numbers,
    },
    Check { name: "only the specified state transitions are allowed", needs: RC, run: changes },
    Check { name: "the state determines which requests can be posted", needs: RC, run: posting },
    Check { name: "a transition to the error state flushes all requests, in order", needs: RC, run: flush },
    Check { name: "requests posted in the error state are flushed", needs: RC, run: posted_in_error },
    Check { name: "a reset queue pair discards all requests and can be connected again", needs: RC, run: reset },
];

fn state(s: &mut Harness<'_>, end: usize, qp: Qp) -> Result<QpState, Failure> {
    s.end(end).qp_state(qp).map_err(failed("query a state"))
}

/// Returns the numbers of 50 new queue pairs.
fn fifty_numbers(s: &mut Harness<'_>) -> Result<Vec<u32>, Failure> {
    let a = s.side(0, 4096)?;
    (0..50).map(|_| s.create(&a, QpOptions::new(QpType::Rc)).map(|qp| qp.0)).collect()
}

fn numbers(s: &mut Harness<'_>) -> Result<(), Failure> {
    let mut numbers = fifty_numbers(s)?;
    ensure!(numbers.iter().all(|number| (2..1 << 24).contains(number)), "numbers: {numbers:?}");
    numbers.sort_unstable();
    ensure!(numbers.windows(2).all(|two| two[0] != two[1]), "two queue pairs have the same number");
    Ok(())
}

fn random_numbers(s: &mut Harness<'_>) -> Result<(), Failure> {
    let numbers = fifty_numbers(s)?;
    let ascending = numbers.windows(2).filter(|two| two[1] > two[0]).count();
    ensure!((5..45).contains(&ascending), "the numbers are consecutive: {numbers:?}"); // 2^-29 by chance
    Ok(())
}

fn changes(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(4096)?;
    let qp = s.create(&a, QpOptions::new(QpType::Rc))?;
    ensure_eq!(state(s, 0, qp)?, QpState::Reset, "the state of a new queue pair");
    let peer = (s.ends[b.end].address, 77);
    let init = Modify::Init { access: Access::ALL, q_key: 0 };
    let other = s.create(&a, QpOptions::new(QpType::Rc))?;
    s.bring_up(0, other, peer, QpOptions::new(QpType::Rc))?;
    ensure_eq!(state(s, 0, other)?, QpState::ReadyToSend, "the state of a connected queue pair");
    ensure!(s.end(0).modify_qp(other, init).is_err(), "a transition from ReadyToSend to Init was allowed");
    s.end(0).modify_qp(other, Modify::Error).map_err(failed("change the state to Error"))?;
    ensure!(s.end(0).modify_qp(other, init).is_err(), "a transition from Error to Init was allowed");
    s.end(0).modify_qp(other, Modify::Reset).map_err(failed("change the state to Reset"))?;
    s.bring_up(0, other, peer, QpOptions::new(QpType::Rc))?;
    s.end(0).modify_qp(qp, Modify::Error).map_err(failed("change the state from Reset to Error"))?;
    ensure_eq!(state(s, 0, qp)?, QpState::Error, "the state");
    ensure!(s.bring_up(0, qp, peer, QpOptions::new(QpType::Rc)).is_err(), "a queue pair left Error without Reset");
    Ok(())
}

fn posting(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(4096)?;
    let qp = s.create(&a, QpOptions::new(QpType::Rc))?;
    let elements = [a.element(0, 8)];
    let send = SendWr::new(1, Operation::Write(b.remote(0)), Data::Elements(&elements));
    let receive = RecvWr { id: 2, elements: &elements };
    ensure!(s.end(0).post_recv(qp, &[receive]).is_err(), "a receive was posted in Reset");
    let refused = s.end(0).post_send(qp, &[send]);
    ensure!(matches!(refused, Err((0, PostError::State(QpState::Reset)))), "a request in Reset: {refused:?}");
    s.end(0)
        .modify_qp(qp, Modify::Init { access: Access::ALL, q_key: 0 })
        .map_err(failed("change the state to Init"))?;
    s.end(0).post_recv(qp, &[receive]).map_err(|(_, error)| format!("a receive in Init: {error}"))?;
    ensure!(s.end(0).post_send(qp, &[send]).is_err(), "a request was posted in Init");
    Ok(())
}

fn flush(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(4096)?;
    let [qa, _] = s.connect([&a, &b], QpOptions::new(QpType::Rc))?;
    let elements = [a.element(0, 8)];
    for id in 0..10 {
        s.receive(0, qa, 100 + id, &elements)?;
    }
    // The peer has no receives posted, so none of these completes before the change.
    s.end(1).destroy_cq(b.cq).err().ok_or("the completion queue is not in use")?;
    let sends: Vec<_> = (0..10)
        .map(|id| SendWr { signalled: id % 2 == 0, ..SendWr::new(id, Operation::Send, Data::Elements(&elements)) })
        .collect();
    s.post(0, qa, &sends)?;
    s.end(0).modify_qp(qa, Modify::Error).map_err(failed("change the state to Error"))?;
    let all = s.completions(&a, 20)?;
    ensure!(all.iter().all(|c| c.status == Status::Flushed && c.qp == qa.0), "completions: {all:?}");
    let ids = |from: u64| all.iter().map(|c| c.id).filter(|id| (from..from + 100).contains(id)).collect::<Vec<_>>();
    ensure_eq!(ids(0), (0..10).collect::<Vec<_>>(), "flushed requests, including unsignalled ones");
    ensure_eq!(ids(100), (100..110).collect::<Vec<_>>(), "flushed receives");
    s.expect_no_completions(&a)
}

fn posted_in_error(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(4096)?;
    let [qa, _] = s.connect([&a, &b], QpOptions::new(QpType::Rc))?;
    s.end(0).modify_qp(qa, Modify::Error).map_err(failed("change the state to Error"))?;
    let elements = [a.element(0, 8)];
    s.receive(0, qa, 1, &elements)?;
    s.post(0, qa, &[SendWr::new(2, Operation::Send, Data::Elements(&elements))])?;
    let mut all = s.completions(&a, 2)?;
    all.sort_unstable_by_key(|c| c.id);
    let found: Vec<_> = all.iter().map(|c| (c.id, c.status, c.kind)).collect();
    ensure_eq!(
        found,
        [(1, Status::Flushed, CompletionKind::Recv), (2, Status::Flushed, CompletionKind::Send)],
        "completions"
    );
    Ok(())
}

fn reset(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(4096)?;
    let [qa, qb] = s.connect([&a, &b], QpOptions::new(QpType::Rc))?;
    let elements = [a.element(0, 8)];
    s.receive(0, qa, 1, &elements)?;
    s.post(0, qa, &[SendWr::new(2, Operation::Send, Data::Elements(&elements))])?;
    for (end, qp) in [(0, qa), (1, qb)] {
        s.end(end).modify_qp(qp, Modify::Reset).map_err(failed("change the state to Reset"))?;
    }
    s.expect_no_completions(&a)?;
    let peers = [(s.ends[1].address, qb.0), (s.ends[0].address, qa.0)];
    s.bring_up(0, qa, peers[0], QpOptions::new(QpType::Rc))?;
    s.bring_up(1, qb, peers[1], QpOptions::new(QpType::Rc))?;
    s.receive(1, qb, 3, &[b.element(0, 8)])?;
    s.post(0, qa, &[SendWr::new(4, Operation::Send, Data::Elements(&elements))])?;
    ensure_eq!(s.successes(&b, 1)?[0].id, 3, "the receive");
    ensure_eq!(s.successes(&a, 1)?[0].id, 4, "the SEND");
    Ok(())
}
