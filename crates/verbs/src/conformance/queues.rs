//! Completion queues, events, shared receive queues.

use super::check::{Check, Needs};
use super::harness::{CHECK_TIMEOUT, Harness, QpOptions};
use crate::api::{
    AsyncEvent, Completion, CompletionKind, Data, Modify, Operation, PostError, QpConfig, QpState, QpType, RecvWr,
    SendWr, Status, VerbsError,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use shotline_conformance::{Failure, ensure, ensure_eq, failed};
use std::time::Duration;

const RC: &[Needs] = &[Needs::Kind(QpType::Rc)];

pub(super) const CHECKS: &[Check] = &[
    Check { name: "completions are polled in batches, in order", needs: RC, run: partial_polls },
    Check {
        name: "an overrun of a completion queue moves its queue pairs to the error state",
        needs: RC,
        run: overrun,
    },
    Check {
        name: "an armed completion queue raises one event and makes the file descriptor readable",
        needs: RC,
        run: event,
    },
    Check {
        name: "a completion queue armed for solicited completions raises no event for others",
        needs: RC,
        run: solicited,
    },
    Check {
        name: "a completion reports the solicited-event bit",
        needs: &[Needs::Kind(QpType::Rc), Needs::Solicitation],
        run: solicited_flag,
    },
    Check { name: "a wait returns at its timeout", needs: &[Needs::Nothing], run: wait_timeout },
    Check { name: "queue pairs share a receive queue", needs: RC, run: shared },
    Check {
        name: "destroying or resetting a queue pair frees its slots in the shared receive queue",
        needs: RC,
        run: srq_receives_returned,
    },
    Check {
        name: "a shared receive queue raises SrqLimit once when it falls below its limit",
        needs: RC,
        run: srq_limit,
    },
    Check { name: "objects in use cannot be destroyed", needs: RC, run: in_use },
    Check { name: "handles of destroyed objects are invalid", needs: RC, run: stale_handles },
];

fn partial_polls(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(4096)?;
    let [qa, qb] = s.connect([&a, &b], QpOptions::new(QpType::Rc))?;
    let (from, into) = ([a.element(0, 8)], [b.element(0, 8)]);
    for id in 0..50 {
        s.receive(1, qb, id, &into)?;
        s.post(0, qa, &[SendWr::new(id, Operation::Send, Data::Elements(&from))])?;
    }
    s.run_until_idle()?;
    let mut ids = Vec::new();
    let mut out = [Completion::default(); 7];
    while ids.len() < 50 {
        let count = s.end(1).poll_cq(b.cq, &mut out).map_err(failed("poll"))?;
        ensure!(count > 0, "only {} of 50 completions", ids.len());
        ids.extend(out[..count].iter().map(|c| c.id));
    }
    ensure_eq!(ids, (0..50).collect::<Vec<_>>(), "ids");
    ensure_eq!(s.end(1).poll_cq(b.cq, &mut []).map_err(failed("poll"))?, 0, "completions polled into an empty slice");
    Ok(())
}

fn overrun(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(4096)?;
    let small = s.end(0).create_cq(4).map_err(failed("create a completion queue"))?;
    let config = QpConfig::new(QpType::Rc, a.pd, small, a.cq);
    let qa = s.end(0).create_qp(&config).map_err(failed("create a queue pair"))?;
    let qb = s.create(&b, QpOptions::new(QpType::Rc))?;
    let (to_b, to_a) = ((s.ends[1].address, qb.0), (s.ends[0].address, qa.0));
    s.bring_up(0, qa, to_b, QpOptions::new(QpType::Rc))?;
    s.bring_up(1, qb, to_a, QpOptions::new(QpType::Rc))?;
    let elements = [a.element(0, 8)];
    let write = SendWr::new(1, Operation::Write(b.remote(0)), Data::Elements(&elements));
    // A queue may be deeper than requested, but not unlimited.
    let mut posted = 4;
    s.post(0, qa, &[write; 4])?;
    while s.end(0).qp_state(qa).map_err(failed("query a state"))? != QpState::Error {
        ensure!(posted < 100, "a queue of 4 holds {posted} completions");
        s.post(0, qa, &[write])?;
        s.run_until_idle()?;
        posted += 1;
    }
    ensure_eq!(s.end(0).next_async(), Some(AsyncEvent::CqOverrun(small)), "the event");
    let mut out = [Completion::default(); 100];
    let left = s.end(0).poll_cq(small, &mut out).map_err(failed("poll"))?;
    ensure!(
        (4..posted).contains(&left),
        "{left} completions of {posted} after the overrun, expected at least 4 and not all"
    );
    ensure!(out[..left].iter().all(|c| c.status == Status::Success), "completions: {:?}", &out[..left]);
    Ok(())
}

/// Returns `true` if an endpoint's descriptor becomes readable within `timeout`.
fn readable(s: &mut Harness<'_>, end: usize, timeout: Duration) -> Result<bool, Failure> {
    let fd = s.end(end).fd();
    let timespec = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timespec)).map(|count| count > 0).map_err(failed("wait"))
}

fn event(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(4096)?;
    let [qa, qb] = s.connect([&a, &b], QpOptions::new(QpType::Rc))?;
    for id in 0..4 {
        s.receive(1, qb, id, &[b.element(0, 8)])?;
    }
    s.run_until_idle()?;
    s.end(1).arm_cq(b.cq, false).map_err(failed("arm a completion queue"))?;
    ensure_eq!(s.end(1).next_event(), None, "events before the first completion");
    let from = [a.element(0, 8)];
    let send = SendWr::new(1, Operation::Send, Data::Elements(&from));
    s.post(0, qa, &[send])?;
    while s.end(0).progress().map_err(failed("make progress"))? {}
    ensure!(readable(s, 1, CHECK_TIMEOUT)?, "the file descriptor is not readable although a message arrived");
    let mut event = None;
    for _ in 0..100 {
        s.end(1).progress().map_err(failed("make progress"))?;
        event = event.or_else(|| s.end(1).next_event());
    }
    ensure_eq!(event, Some(b.cq), "the event");
    s.successes(&b, 1)?;
    s.post(0, qa, &[send])?;
    s.successes(&b, 1)?;
    ensure_eq!(s.end(1).next_event(), None, "events of a queue that is no longer armed");
    s.end(1).arm_cq(b.cq, false).map_err(failed("arm a completion queue"))?;
    s.post(0, qa, &[send])?;
    while s.end(0).progress().map_err(failed("make progress"))? {}
    ensure_eq!(s.end(1).wait(CHECK_TIMEOUT).map_err(failed("wait"))?, Some(b.cq), "the result of a wait");
    s.successes(&b, 1)?;
    Ok(())
}

fn solicited(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(4096)?;
    let [qa, qb] = s.connect([&a, &b], QpOptions::new(QpType::Rc))?;
    for id in 0..2 {
        s.receive(1, qb, id, &[b.element(0, 8)])?;
    }
    s.end(1).arm_cq(b.cq, true).map_err(failed("arm a completion queue"))?;
    let from = [a.element(0, 8)];
    let send = SendWr::new(1, Operation::Send, Data::Elements(&from));
    s.post(0, qa, &[send])?;
    s.successes(&b, 1)?;
    s.run_until_idle()?;
    ensure_eq!(s.end(1).next_event(), None, "events of an unsolicited SEND");
    s.post(0, qa, &[SendWr { solicited: true, ..send }])?;
    s.successes(&b, 1)?;
    s.run_until_idle()?;
    ensure_eq!(s.end(1).next_event(), Some(b.cq), "the event");
    Ok(())
}

fn solicited_flag(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(4096)?;
    let [qa, qb] = s.connect([&a, &b], QpOptions::new(QpType::Rc))?;
    for solicited in [false, true] {
        s.receive(1, qb, 1, &[b.element(0, 8)])?;
        let from = [a.element(0, 8)];
        let send = SendWr { solicited, ..SendWr::new(1, Operation::Send, Data::Elements(&from)) };
        s.post(0, qa, &[send])?;
        ensure_eq!(s.successes(&b, 1)?[0].solicited, solicited, "the receive");
    }
    Ok(())
}

fn wait_timeout(s: &mut Harness<'_>) -> Result<(), Failure> {
    let a = s.side(0, 4096)?;
    s.end(0).arm_cq(a.cq, false).map_err(failed("arm a completion queue"))?;
    ensure_eq!(s.end(0).wait(Duration::from_millis(3)).map_err(failed("wait"))?, None, "the result of a wait");
    ensure_eq!(
        s.end(0).wait(Duration::ZERO).map_err(failed("wait"))?,
        None,
        "the result of a wait with a timeout of 0"
    );
    Ok(())
}

fn shared(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(64 << 10)?;
    let srq = s.end(1).create_srq(b.pd, 64, 2).map_err(failed("create a shared receive queue"))?;
    let mut pairs = Vec::new();
    for _ in 0..3 {
        let qa = s.create(&a, QpOptions::new(QpType::Rc))?;
        let config = QpConfig { srq: Some(srq), ..QpConfig::new(QpType::Rc, b.pd, b.cq, b.cq) };
        let qb = s.end(1).create_qp(&config).map_err(failed("create a queue pair"))?;
        let (to_b, to_a) = ((s.ends[1].address, qb.0), (s.ends[0].address, qa.0));
        s.bring_up(0, qa, to_b, QpOptions::new(QpType::Rc))?;
        s.bring_up(1, qb, to_a, QpOptions::new(QpType::Rc))?;
        let own = [b.element(0, 8)];
        let refused = s.end(1).post_recv(qb, &[RecvWr { id: 0, elements: &own }]);
        ensure!(
            matches!(refused, Err((0, PostError::NoQueue))),
            "a receive was posted to a queue pair with a shared receive queue: {refused:?}"
        );
        pairs.push((qa, qb));
    }
    for id in 0..30 {
        let into = [b.element(id * 1024, 1024)];
        let posted = s.end(1).post_srq_recv(srq, &[RecvWr { id, elements: &into }]);
        posted.map_err(|(_, error)| format!("posting a receive: {error}"))?;
    }
    let from = [a.element(0, 1000)];
    for round in 0..30_usize {
        let send = SendWr::new(1, Operation::SendImm(round as u32), Data::Elements(&from));
        s.post(0, pairs[round % 3].0, &[send])?;
    }
    let mut received = s.successes(&b, 30)?;
    s.successes(&a, 30)?;
    for (_, qb) in &pairs {
        let order: Vec<_> = received.iter().filter(|c| c.qp == qb.0).map(|c| c.imm).collect();
        ensure!(order.len() == 10 && order.is_sorted(), "messages of one queue pair: {order:?}");
    }
    received.sort_unstable_by_key(|c| c.id);
    ensure_eq!(received.iter().map(|c| c.id).collect::<Vec<_>>(), (0..30).collect::<Vec<_>>(), "the receives consumed");
    Ok(())
}

fn srq_receives_returned(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(4096)?;
    let srq = s.end(1).create_srq(b.pd, 4, 1).map_err(failed("create a shared receive queue"))?;
    let (from, into) = ([a.element(0, 8)], [b.element(0, 64)]);
    for change in [None, Some(Modify::Reset)] {
        let qa = s.create(&a, QpOptions::new(QpType::Rc))?;
        let config = QpConfig { srq: Some(srq), ..QpConfig::new(QpType::Rc, b.pd, b.cq, b.cq) };
        let qb = s.end(1).create_qp(&config).map_err(failed("create a queue pair"))?;
        let (to_b, to_a) = ((s.ends[1].address, qb.0), (s.ends[0].address, qa.0));
        s.bring_up(0, qa, to_b, QpOptions::new(QpType::Rc))?;
        s.bring_up(1, qb, to_a, QpOptions::new(QpType::Rc))?;
        let posted = s.end(1).post_srq_recv(srq, &[RecvWr { id: 0, elements: &into }; 4]);
        posted.map_err(|(index, error)| format!("posting receive {index}, {change:?}: {error}"))?;
        for _ in 0..4 {
            s.post(0, qa, &[SendWr::new(1, Operation::Send, Data::Elements(&from))])?;
        }
        s.successes(&a, 4)?;
        s.run_until_idle()?;
        // The completions have not been polled.
        match change {
            Some(change) => s.end(1).modify_qp(qb, change).map_err(failed("reset a queue pair"))?,
            None => s.end(1).destroy_qp(qb).map_err(failed("destroy a queue pair"))?,
        }
    }
    let posted = s.end(1).post_srq_recv(srq, &[RecvWr { id: 0, elements: &into }; 4]);
    posted.map_err(|(index, error)| format!("posting receive {index} at the end: {error}"))
}

fn srq_limit(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(4096)?;
    let srq = s.end(1).create_srq(b.pd, 8, 1).map_err(failed("create a shared receive queue"))?;
    let qa = s.create(&a, QpOptions::new(QpType::Rc))?;
    let config = QpConfig { srq: Some(srq), ..QpConfig::new(QpType::Rc, b.pd, b.cq, b.cq) };
    let qb = s.end(1).create_qp(&config).map_err(failed("create a queue pair"))?;
    let (to_b, to_a) = ((s.ends[1].address, qb.0), (s.ends[0].address, qa.0));
    s.bring_up(0, qa, to_b, QpOptions::new(QpType::Rc))?;
    s.bring_up(1, qb, to_a, QpOptions::new(QpType::Rc))?;
    let into = [b.element(0, 64)];
    let posted = s.end(1).post_srq_recv(srq, &[RecvWr { id: 0, elements: &into }; 4]);
    posted.map_err(|(_, error)| format!("posting receives: {error}"))?;
    s.end(1).arm_srq(srq, 3).map_err(failed("arm a shared receive queue"))?;
    let from = [a.element(0, 8)];
    for expected in [None, Some(AsyncEvent::SrqLimit(srq)), None] {
        s.post(0, qa, &[SendWr::new(1, Operation::Send, Data::Elements(&from))])?;
        s.successes(&b, 1)?;
        ensure_eq!(s.end(1).next_async(), expected, "the event at a limit of 3");
    }
    Ok(())
}

fn in_use(s: &mut Harness<'_>) -> Result<(), Failure> {
    let a = s.side(0, 4096)?;
    let srq = s.end(0).create_srq(a.pd, 8, 1).map_err(failed("create a shared receive queue"))?;
    let config = QpConfig { srq: Some(srq), ..QpConfig::new(QpType::Rc, a.pd, a.cq, a.cq) };
    let qp = s.end(0).create_qp(&config).map_err(failed("create a queue pair"))?;
    let in_use = |result: Result<(), VerbsError>| matches!(result, Err(VerbsError::InUse { .. }));
    ensure!(in_use(s.end(0).destroy_cq(a.cq)), "a completion queue in use was destroyed");
    ensure!(in_use(s.end(0).destroy_srq(srq)), "a shared receive queue in use was destroyed");
    s.end(0).destroy_qp(qp).map_err(failed("destroy a queue pair"))?;
    s.end(0).destroy_srq(srq).map_err(failed("destroy a shared receive queue"))?;
    s.end(0).destroy_cq(a.cq).map_err(failed("destroy a completion queue"))?;
    match s.end(0).dealloc_pd(a.pd) {
        Err(VerbsError::Unsupported(_)) => return Ok(()),
        result => ensure!(result.is_err(), "a protection domain with registered memory was deallocated"),
    }
    s.end(0).dereg_mr(&a.mr).map_err(failed("deregister memory"))?;
    s.end(0).dealloc_pd(a.pd).map_err(failed("deallocate a protection domain"))
}

fn stale_handles(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(4096)?;
    let [qa, qb] = s.connect([&a, &b], QpOptions::short_timeouts(QpType::Rc))?;
    let from = [a.element(0, 8)];
    s.receive(1, qb, 1, &[b.element(0, 8)])?;
    s.end(1).destroy_qp(qb).map_err(failed("destroy a queue pair"))?;
    s.post(0, qa, &[SendWr::new(1, Operation::Send, Data::Elements(&from))])?;
    let refused = s.completions(&a, 1)?[0];
    ensure_eq!(
        (refused.status, refused.kind),
        (Status::RetryExceeded, CompletionKind::Send),
        "a SEND to a destroyed queue pair"
    );
    s.expect_no_completions(&b)?;
    ensure!(s.end(1).qp_state(qb).is_err() && s.end(1).destroy_qp(qb).is_err(), "a destroyed queue pair still exists");
    let posted = s.end(1).post_recv(qb, &[]);
    ensure!(matches!(posted, Err((0, PostError::NoQueue))), "a destroyed queue pair accepts receives: {posted:?}");
    s.end(1).destroy_cq(b.cq).map_err(failed("destroy a completion queue"))?;
    let another = s.end(1).create_cq(4).map_err(failed("create a completion queue"))?;
    ensure!(
        another != b.cq && s.end(1).poll_cq(b.cq, &mut [Completion::default()]).is_err(),
        "the handle of a destroyed queue refers to a new one"
    );
    s.end(1).dereg_mr(&b.mr).map_err(failed("deregister memory"))?;
    ensure!(s.end(1).dereg_mr(&b.mr).is_err(), "memory was deregistered twice");
    Ok(())
}
