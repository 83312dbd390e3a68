//! A full path, two busy ends, and a peer that goes.

use super::check::Check;
use super::stage::{TIMEOUT, build, contents, expect, expect_nothing, has_gone, receive, send};
use crate::carrier::{Carrier, wait};
use shotline_conformance::{Failure, ensure, ensure_eq, failed};
use shotline_random::SplitMix64;
use std::time::{Duration, Instant};

/// More bytes than any path holds.
const MAX_PATH_BYTES: usize = 256 << 20;

pub(super) fn checks<C: Carrier + Send>() -> Vec<Check<C>> {
    let check = |name, proves, needs_lossless, run| Check { name, proves, needs_lossless, run };
    vec![
        check("full path", "a full path refuses a datagram and accepts it later; none is lost", true, full_path),
        check("space wakes", "an end that sleeps because the path is full is woken", true, space_wakes),
        check("busy ends", "random datagrams of two busy ends arrive in order, each once", true, busy_ends),
        check("vanished peer", "sending to a peer that has gone neither blocks nor panics", false, vanished_peer),
        check("last datagrams", "those of a peer that has gone arrive before it is reported", true, last_datagrams),
        check("vanishing wakes", "a peer that goes wakes an end that sleeps", true, vanishing_wakes),
    ]
}

/// Sends numbered datagrams until the path is full. Returns their number.
fn fill<C: Carrier>(carrier: &mut C, first: u64, len: usize) -> Result<u64, Failure> {
    let mut number = first;
    while carrier.remaining() > 0 {
        carrier.append(&contents(number, len));
        carrier.finish().map_err(failed("complete a datagram"))?;
        if number.is_multiple_of(5) {
            carrier.flush().map_err(failed("pass datagrams on"))?;
        }
        number += 1;
        ensure!((number - first) as usize * len < MAX_PATH_BYTES, "the path is never full");
    }
    carrier.flush().map_err(failed("pass datagrams on"))?;
    Ok(number - first)
}

fn full_path<C: Carrier>(mut near: C, mut far: C) -> Result<(), Failure> {
    let mut first = 0;
    for round in 0..6 {
        let len = near.max_datagram() / (1 + round % 3);
        let sent = fill(&mut near, first, len)?;
        ensure!(sent > 0, "the path is full although everything was received");
        ensure_eq!(near.remaining(), 0, "remaining bytes of a full path");
        for number in first..first + sent {
            expect(&mut far, &contents(number, len), &format!("datagram {number}"))?;
        }
        expect_nothing(&mut far)?;
        ensure!(near.remaining() > 0, "the path stays full after all {sent} datagrams were received");
        first += sent;
    }
    Ok(())
}

fn space_wakes<C: Carrier + Send>(mut near: C, mut far: C) -> Result<(), Failure> {
    const DATAGRAMS: u64 = 3000;
    let len = near.max_datagram().min(20_000);
    std::thread::scope(|scope| {
        let receiver = scope.spawn(move || {
            for number in 0..DATAGRAMS {
                if number.is_multiple_of(100) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                expect(&mut far, &contents(number, len), &format!("datagram {number}"))?;
            }
            Ok::<_, Failure>(far)
        });
        for number in 0..DATAGRAMS {
            while near.remaining() == 0 {
                near.flush().map_err(failed("pass datagrams on"))?;
                let begin = Instant::now();
                wait(&mut near, TIMEOUT).map_err(failed("wait"))?;
                ensure!(begin.elapsed() < TIMEOUT / 2, "space does not wake the end that sleeps");
            }
            near.append(&contents(number, len));
            near.finish().map_err(failed("complete a datagram"))?;
        }
        near.flush().map_err(failed("pass datagrams on"))?;
        receiver.join().map_err(|_| "the receiver panics".to_owned())?.map(drop)
    })
}

fn busy_ends<C: Carrier + Send>(mut near: C, mut far: C) -> Result<(), Failure> {
    std::thread::scope(|scope| {
        let other = scope.spawn(|| busy_end(&mut far, 1, 0));
        busy_end(&mut near, 0, 1)?;
        other.join().map_err(|_| "the other end panics".to_owned())?
    })
}

/// Sends random datagrams, and receives those of the other end.
fn busy_end<C: Carrier>(carrier: &mut C, mine: u64, theirs: u64) -> Result<(), Failure> {
    const DATAGRAMS: u64 = 4000;
    let number_in = |stream: u64, number: u64| number | stream << 48;
    let max = carrier.max_datagram();
    // Both ends know the lengths of each.
    let lens = |stream| SplitMix64::new(stream + 77);
    let next_len = |random: &mut SplitMix64| match random.below(8) {
        0 => random.between(1, max as u64) as usize,
        _ => random.between(1, max.min(2000) as u64) as usize,
    };
    let (mut my_lens, mut their_lens) = (lens(mine), lens(theirs));
    let mut pieces = SplitMix64::new(mine);
    let (mut sent, mut received) = (0, 0);
    let mut progressed_at = Instant::now();
    while sent < DATAGRAMS || received < DATAGRAMS {
        let before = (sent, received);
        if let Some(bytes) = carrier.receive().map_err(failed("receive"))? {
            let expected = contents(number_in(theirs, received), next_len(&mut their_lens));
            ensure!(*bytes == expected[..], "datagram {received} differs, of {} bytes", expected.len());
            received += 1;
        }
        if sent < DATAGRAMS && carrier.remaining() > 0 {
            let bytes = contents(number_in(mine, sent), next_len(&mut my_lens));
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let (piece, later) = rest.split_at(rest.len().min(pieces.between(1, 3000) as usize));
                carrier.append(piece);
                rest = later;
            }
            carrier.finish().map_err(failed("complete a datagram"))?;
            sent += 1;
        }
        if pieces.below(4) == 0 || sent == DATAGRAMS {
            carrier.flush().map_err(failed("pass datagrams on"))?;
        }
        if (sent, received) != before {
            progressed_at = Instant::now();
            continue;
        }
        carrier.flush().map_err(failed("pass datagrams on"))?;
        wait(carrier, TIMEOUT).map_err(failed("wait"))?;
        ensure!(progressed_at.elapsed() < TIMEOUT, "both ends wait after {sent} sent and {received} received");
    }
    Ok(())
}

fn vanished_peer<C: Carrier>(mut near: C, mut far: C) -> Result<(), Failure> {
    send(&mut near, &contents(1, 100))?;
    receive(&mut far)?;
    drop(far);
    let bytes = contents(2, near.max_datagram().min(5000));
    for _ in 0..20_000 {
        if near.remaining() > 0 {
            near.append(&bytes);
        }
        near.finish().map_err(failed("complete a datagram"))?;
        near.flush().map_err(failed("pass datagrams on"))?;
        has_gone(&mut near)?;
    }
    let begin = Instant::now();
    for _ in 0..5 {
        wait(&mut near, Duration::from_millis(10)).map_err(failed("wait"))?;
    }
    ensure!(begin.elapsed() < TIMEOUT / 2, "waits of 10 ms take {:?}", begin.elapsed());
    Ok(())
}

fn last_datagrams<C: Carrier>(mut near: C, mut far: C) -> Result<(), Failure> {
    for number in 0..10 {
        build(&mut far, &contents(number, 1000))?;
    }
    far.flush().map_err(failed("pass datagrams on"))?;
    drop(far);
    for number in 0..10 {
        expect(&mut near, &contents(number, 1000), &format!("datagram {number} of a peer that has gone"))?;
    }
    expect_gone(&mut near)?;
    ensure!(has_gone(&mut near)?, "it is reported only once that the peer has gone");
    Ok(())
}

/// Fails unless the carrier reports that the peer has gone, without other sleeps than those that end by that.
fn expect_gone<C: Carrier>(carrier: &mut C) -> Result<(), Failure> {
    let begin = Instant::now();
    while !has_gone(carrier)? {
        wait(carrier, TIMEOUT).map_err(failed("wait"))?;
        ensure!(begin.elapsed() < TIMEOUT / 2, "it is not reported that the peer has gone");
    }
    Ok(())
}

fn vanishing_wakes<C: Carrier + Send>(mut near: C, far: C) -> Result<(), Failure> {
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| expect_gone(&mut near));
        std::thread::sleep(Duration::from_millis(5));
        drop(far);
        sleeper.join().map_err(|_| "the end that sleeps panics".to_owned())?
    })
}
