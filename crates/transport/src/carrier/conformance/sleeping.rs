//! An end that sleeps is woken, and no other.

use super::check::Check;
use super::stage::{TIMEOUT, build, contents, expect, expect_nothing, receive, send};
use crate::carrier::{Carrier, wait};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use shotline_conformance::{Failure, ensure, ensure_eq, failed};
use std::time::{Duration, Instant};

/// Sleeps of a check that alternates.
const ROUNDS: u64 = 500;

pub(super) fn checks<C: Carrier + Send>() -> Vec<Check<C>> {
    let check = |name, proves, run| Check { name, proves, needs_lossless: false, run };
    vec![
        check("timeout", "a wait for nothing ends at its timeout", timeout),
        check("pending datagram", "an end does not sleep while there are datagrams", pending_datagram),
        check("descriptor", "the descriptor is readable when a datagram has arrived, and then no longer", descriptor),
        check("wake-up", "every datagram wakes an end that sleeps", wake_up),
        check("stale wake-up", "an end sleeps again after it was woken", stale_wake_up),
    ]
}

/// Fails unless a wait lasts until its timeout.
fn expect_sleep<C: Carrier>(carrier: &mut C) -> Result<(), Failure> {
    const TIME: Duration = Duration::from_millis(30);
    let begin = Instant::now();
    let mut waits = 0;
    while begin.elapsed() < TIME {
        wait(carrier, TIME).map_err(failed("wait"))?;
        waits += 1;
        // Each wait may end early for no reason, but not all do.
        ensure!(waits < 10, "{waits} waits of {TIME:?} end in {:?}", begin.elapsed());
        ensure!(carrier.receive().map_err(failed("receive"))?.is_none(), "a datagram arrives that was not sent");
    }
    ensure!(begin.elapsed() < TIMEOUT / 2, "a wait of {TIME:?} takes {:?}", begin.elapsed());
    Ok(())
}

fn timeout<C: Carrier>(mut near: C, mut far: C) -> Result<(), Failure> {
    expect_sleep(&mut near)?;
    expect_sleep(&mut far)?;
    wait(&mut far, Duration::ZERO).map_err(failed("wait"))
}

fn pending_datagram<C: Carrier>(mut near: C, mut far: C) -> Result<(), Failure> {
    for number in 0..100 {
        for _ in 0..3 {
            build(&mut near, &contents(number, 50))?;
        }
        near.flush().map_err(failed("pass datagrams on"))?;
        for which in ["first", "second", "third"] {
            let begin = Instant::now();
            wait(&mut far, TIMEOUT).map_err(failed("wait"))?;
            ensure!(begin.elapsed() < TIMEOUT / 2, "an end sleeps although the {which} of three datagrams is there");
            expect(&mut far, &contents(number, 50), &format!("the {which} datagram"))?;
        }
    }
    Ok(())
}

fn is_readable(carrier: &impl Carrier, timeout: Duration) -> Result<bool, Failure> {
    let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: 0 };
    let ready = poll(&mut [PollFd::from_borrowed_fd(carrier.fd(), PollFlags::IN)], Some(&timeout));
    Ok(ready.map_err(failed("poll"))? > 0)
}

fn descriptor<C: Carrier>(mut near: C, mut far: C) -> Result<(), Failure> {
    for number in 0..100 {
        ensure!(far.prepare_sleep(), "an end must not sleep, although there is no datagram");
        ensure!(!is_readable(&far, Duration::ZERO)?, "the descriptor is readable without a datagram");
        send(&mut near, &contents(number, 50))?;
        ensure!(is_readable(&far, TIMEOUT)?, "the descriptor is not readable, although a datagram has arrived");
        expect(&mut far, &contents(number, 50), "the datagram")?;
        expect_nothing(&mut far)?;
    }
    Ok(())
}

/// Receives a datagram and sends it back, and sleeps in between.
fn echo<C: Carrier>(carrier: &mut C, rounds: u64) -> Result<(), Failure> {
    for _ in 0..rounds {
        let bytes = receive_asleep(carrier)?;
        send(carrier, &bytes)?;
    }
    Ok(())
}

/// Returns the next datagram; fails if a sleep is not ended by it.
fn receive_asleep<C: Carrier>(carrier: &mut C) -> Result<Vec<u8>, Failure> {
    loop {
        if let Some(bytes) = carrier.receive().map_err(failed("receive"))? {
            return Ok(bytes.to_vec());
        }
        let begin = Instant::now();
        wait(carrier, TIMEOUT).map_err(failed("wait"))?;
        ensure!(begin.elapsed() < TIMEOUT / 2, "no datagram wakes the end that sleeps");
    }
}

fn wake_up<C: Carrier + Send>(mut near: C, mut far: C) -> Result<(), Failure> {
    std::thread::scope(|scope| {
        let other = scope.spawn(|| echo(&mut far, ROUNDS));
        for number in 0..ROUNDS {
            // Sometimes the other end sleeps already, sometimes it does not.
            if number % 8 == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            send(&mut near, &contents(number, 100))?;
            ensure_eq!(receive_asleep(&mut near)?, contents(number, 100), "echo {number}");
        }
        other.join().map_err(|_| "the other end panics".to_owned())?
    })
}

fn stale_wake_up<C: Carrier>(mut near: C, mut far: C) -> Result<(), Failure> {
    for number in 0..20 {
        // Woken, or about to be, when the datagram is received without sleep.
        far.prepare_sleep();
        send(&mut near, &contents(number, 10))?;
        receive(&mut far)?;
    }
    expect_sleep(&mut far)
}
