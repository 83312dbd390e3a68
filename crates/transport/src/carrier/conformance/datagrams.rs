//! Datagrams arrive unchanged, in order, once.

use super::check::Check;
use super::stage::{await_space, build, contents, expect, expect_nothing, receive_with, send};
use crate::carrier::{Carrier, MAX_DATAGRAM};
use shotline_conformance::{Failure, ensure, ensure_eq, failed};

pub(super) fn checks<C: Carrier + Send>() -> Vec<Check<C>> {
    let check = |name, proves, run| Check { name, proves, needs_lossless: false, run };
    vec![
        check("lengths", "datagrams of every length up to the maximum arrive unchanged", lengths),
        check("pieces", "a datagram may be appended in pieces, and `remaining` counts them", pieces),
        check("empty datagrams", "a datagram without bytes is not sent", empty_datagrams),
        check("order", "datagrams in both directions arrive in order, each once", order),
        check("partial flush", "a flush does not affect the datagram being built", partial_flush),
        check("private buffer", "changing received bytes affects nothing else", private_buffer),
    ]
}

fn lengths<C: Carrier>(mut near: C, mut far: C) -> Result<(), Failure> {
    let max = near.max_datagram();
    ensure!((1..=MAX_DATAGRAM).contains(&max), "a maximum length of {max} bytes");
    let few = (2048..max).step_by(509).flat_map(|len| [len, len.next_multiple_of(4), len.next_multiple_of(64)]);
    let lens = (1..max.min(2048)).chain(few).chain(max.saturating_sub(70)..=max).filter(|len| (1..=max).contains(len));
    for len in lens {
        let bytes = contents(len as u64, len);
        send(&mut near, &bytes)?;
        expect(&mut far, &bytes, &format!("a datagram of {len} bytes"))?;
    }
    let bytes = contents(0, far.max_datagram());
    send(&mut far, &bytes)?;
    expect(&mut near, &bytes, "a datagram of the maximum length in the other direction")
}

fn pieces<C: Carrier>(mut near: C, mut far: C) -> Result<(), Failure> {
    let max = near.max_datagram();
    for piece in [1, 3, 4, 64, 100, 1024, 4095] {
        let bytes = contents(piece as u64, max.min(300 * piece));
        await_space(&mut near)?;
        for (index, chunk) in bytes.chunks(piece).enumerate() {
            ensure_eq!(near.remaining(), max - index * piece, "remaining bytes after {index} pieces of {piece}");
            near.append(chunk);
            near.append(&[]);
        }
        ensure_eq!(near.remaining(), max - bytes.len(), "remaining bytes after {} bytes", bytes.len());
        near.finish().map_err(failed("complete a datagram"))?;
        near.flush().map_err(failed("pass it on"))?;
        expect(&mut far, &bytes, &format!("a datagram of pieces of {piece} bytes"))?;
    }
    Ok(())
}

fn empty_datagrams<C: Carrier>(mut near: C, mut far: C) -> Result<(), Failure> {
    for number in 0..100 {
        near.finish().map_err(failed("complete no datagram"))?;
        near.flush().map_err(failed("pass nothing on"))?;
        await_space(&mut near)?;
        near.append(&[]);
        near.finish().map_err(failed("complete an empty datagram"))?;
        send(&mut near, &contents(number, 9))?;
        expect(&mut far, &contents(number, 9), "the datagram after empty ones")?;
    }
    expect_nothing(&mut far)
}

fn order<C: Carrier>(mut near: C, mut far: C) -> Result<(), Failure> {
    let max = near.max_datagram().min(far.max_datagram());
    let len = |number: u64| 1 + (number * number * 37) as usize % max.min(1500);
    let mut number = 0;
    for burst in (1..=40).cycle().take(600) {
        // Runs of equal length alternate with different ones.
        let of = |number: u64| contents(number, if burst % 3 == 0 { len(burst) } else { len(number) });
        let back = |number: u64| contents(!number, len(number + 1));
        for number in number..number + burst {
            build(&mut near, &of(number))?;
            build(&mut far, &back(number))?;
        }
        near.flush().map_err(failed("pass datagrams on"))?;
        far.flush().map_err(failed("pass datagrams on"))?;
        for number in number..number + burst {
            expect(&mut far, &of(number), &format!("datagram {number}"))?;
            expect(&mut near, &back(number), &format!("datagram {number} of the other direction"))?;
        }
        number += burst;
    }
    expect_nothing(&mut far)?;
    expect_nothing(&mut near)
}

fn partial_flush<C: Carrier>(mut near: C, mut far: C) -> Result<(), Failure> {
    let max = near.max_datagram();
    for number in 0..50 {
        let (whole, later) = (contents(number, max.min(900)), contents(number + 1000, max.min(1000)));
        build(&mut near, &whole)?;
        await_space(&mut near)?;
        let (first, second) = later.split_at(later.len() / 3);
        near.append(first);
        near.flush().map_err(failed("pass datagrams on"))?;
        expect(&mut far, &whole, "the datagram before one that is being built")?;
        expect_nothing(&mut far)?;
        ensure_eq!(near.remaining(), max - first.len(), "remaining bytes after a flush");
        near.append(second);
        near.finish().map_err(failed("complete a datagram"))?;
        near.flush().map_err(failed("pass datagrams on"))?;
        expect(&mut far, &later, "the datagram that was being built")?;
    }
    Ok(())
}

fn private_buffer<C: Carrier>(mut near: C, mut far: C) -> Result<(), Failure> {
    let bytes = contents(1, near.max_datagram().min(1000));
    for round in 0..200 {
        for _ in 0..4 {
            build(&mut near, &bytes)?;
        }
        near.flush().map_err(failed("pass datagrams on"))?;
        for number in 0..4 {
            expect(&mut far, &bytes, &format!("datagram {number} of round {round}"))?;
        }
        send(&mut near, &bytes)?;
        // Changes it in the buffer.
        receive_with(&mut far, |found| found.fill(round as u8))?;
    }
    Ok(())
}
