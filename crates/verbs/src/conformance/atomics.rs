//! Atomic operations: compare and swap, fetch and add.

use super::check::{Check, Needs};
use super::harness::{Harness, QpOptions, Side};
use crate::api::{CompletionKind, Data, Operation, PostError, QpType, SendWr, Status};
use shotline_conformance::{Failure, ensure, ensure_eq};

const ATOMICS: &[Needs] = &[Needs::Atomics];

pub(super) const CHECKS: &[Check] = &[
    Check { name: "fetch and add adds modulo 2^64 and returns the original value", needs: ATOMICS, run: add },
    Check { name: "compare and swap writes only if the value matches", needs: ATOMICS, run: swap },
    Check {
        name: "concurrent atomic operations of two queue pairs lose no update",
        needs: ATOMICS,
        run: two_queue_pairs,
    },
    Check { name: "an unaligned atomic operation is refused", needs: ATOMICS, run: misaligned },
    Check { name: "an atomic operation needs a local buffer of exactly 8 bytes", needs: ATOMICS, run: wrong_length },
];

/// Returns the 8 bytes at `offset` as a number. Operands and results are in native byte order.
fn number(side: &Side, offset: usize) -> u64 {
    u64::from_ne_bytes(side.bytes(offset, 8).try_into().unwrap_or_default())
}

fn add(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(4096)?;
    let [qa, _] = s.connect([&a, &b], QpOptions::new(QpType::Rc))?;
    b.region.write(64, &5_u64.to_ne_bytes());
    for (add, before) in [(7, 5), (u64::MAX, 12), (u64::MAX - 11, 11)] {
        let operation = Operation::FetchAdd { remote: b.remote(64), add };
        s.post(0, qa, &[SendWr::new(1, operation, Data::Elements(&[a.element(16, 8)]))])?;
        let done = s.successes(&a, 1)?[0];
        ensure_eq!((done.kind, done.bytes), (CompletionKind::FetchAdd, 8), "the completion");
        ensure_eq!(number(&a, 16), before, "the original value");
        ensure_eq!(number(&b, 64), add.wrapping_add(before), "the new value");
    }
    ensure!(b.bytes(72, 8) == [0; 8] && b.bytes(56, 8) == [0; 8], "a byte outside the operand was written");
    Ok(())
}

fn swap(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(4096)?;
    let [qa, _] = s.connect([&a, &b], QpOptions::new(QpType::Rc))?;
    b.region.write(8, &100_u64.to_ne_bytes());
    for (compare, swap, before, after) in [(99, 1, 100, 100), (100, 1 << 60, 100, 1 << 60), (100, 2, 1 << 60, 1 << 60)]
    {
        let operation = Operation::CompareSwap { remote: b.remote(8), compare, swap };
        s.post(0, qa, &[SendWr::new(1, operation, Data::Elements(&[a.element(0, 8)]))])?;
        ensure_eq!(s.successes(&a, 1)?[0].kind, CompletionKind::CompareSwap, "the completion");
        ensure_eq!((number(&a, 0), number(&b, 8)), (before, after), "the original and the new value");
    }
    Ok(())
}

fn two_queue_pairs(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(4096)?;
    let [first, _] = s.connect([&a, &b], QpOptions::new(QpType::Rc))?;
    let [second, _] = s.connect([&a, &b], QpOptions::new(QpType::Rc))?;
    for _ in 0..10 {
        for qp in [first, second] {
            let operation = Operation::FetchAdd { remote: b.remote(0), add: 1 };
            for _ in 0..20 {
                s.post(0, qp, &[SendWr::new(1, operation, Data::Elements(&[a.element(0, 8)]))])?;
            }
        }
        s.successes(&a, 40)?;
    }
    ensure_eq!(number(&b, 0), 400, "the sum");
    Ok(())
}

fn misaligned(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(4096)?;
    let [qa, _] = s.connect([&a, &b], QpOptions { strict: true, ..QpOptions::short_timeouts(QpType::Rc) })?;
    let operation = Operation::FetchAdd { remote: b.remote(4), add: 1 };
    match s.end(0).post_send(qa, &[SendWr::new(1, operation, Data::Elements(&[a.element(0, 8)]))]) {
        Ok(()) => ensure_eq!(s.completions(&a, 1)?[0].status, Status::RemoteInvalid, "the operation"),
        Err((_, PostError::Element { .. })) => {}
        Err((_, error)) => return Err(error.to_string()),
    }
    ensure!(b.bytes(0, 16) == [0; 16], "the unaligned operation was executed");
    Ok(())
}

fn wrong_length(s: &mut Harness<'_>) -> Result<(), Failure> {
    let [a, b] = s.two_sides(4096)?;
    let [qa, _] = s.connect([&a, &b], QpOptions::new(QpType::Rc))?;
    for len in [0, 4, 7, 9, 16] {
        let operation = Operation::FetchAdd { remote: b.remote(0), add: 1 };
        let posted = s.end(0).post_send(qa, &[SendWr::new(1, operation, Data::Elements(&[a.element(0, len)]))]);
        ensure!(posted.is_err(), "a local buffer of {len} bytes was accepted");
    }
    s.expect_no_completions(&a)
}
