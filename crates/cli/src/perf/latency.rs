//! How long single operations take.

use super::args::Args;
use super::connection::{Connection, Lanes, Need};
use super::drive::{LOST, repeat};
use super::point::{Of, Point, operation, rights};
use super::report::{Iteration, Row};
use super::times::Times;
use crate::Result;
use shotline_memory::Access;
use shotline_verbs::api::{Completed, Completion, Data, Element, RecvWr, Remote, SendWr, Status};
use shotline_verbs::cm::Endpoint;
use shotline_verbs::cm::message::{Keyed, Play, Receives};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Operations between two looks at the time that is left.
const ROUNDS: u64 = 16;
/// Inline up to this: what queue pairs are made for, unless told otherwise.
const INLINE: u32 = 64;
/// Polls without a completion between two looks at the control connection.
const SILENT: u32 = 1 << 14;

/// Makes a queue pair to measure a latency with, or says why the target does not take part.
pub fn open<P: Endpoint>(connection: &mut Connection<P>, args: &Args, point: &Point, of: Of) -> Result<Lanes> {
    let size = point.size;
    if of == Of::Ping && !(8..=INLINE).contains(&size) {
        return Err(format!("a ping has 8 to {INLINE} bytes, found {size}").into());
    }
    let talks = of.is_halved();
    connection.open(&Need {
        service: args.qp,
        pairs: 1,
        sends: 16,
        receives: 4,
        target_receives: if of == Of::Send { Receives { count: 4, bytes: size } } else { Receives::default() },
        target_sends: if talks { 16 } else { 0 },
        completions: 64,
        mtu: args.mtu,
        rights: if of == Of::Ping { Access::REMOTE_READ | Access::REMOTE_WRITE } else { rights(of.verb()) },
        bytes: if of == Of::Send { 0 } else { u64::from(size) },
    })
}

/// Measures a latency.
pub fn measure<P: Endpoint>(
    connection: &mut Connection<P>,
    lanes: Lanes,
    args: &Args,
    point: &Point,
    of: Of,
    stop: &AtomicBool,
) -> Result<Row> {
    let size = point.size;
    let own = connection.own_key();
    let back = u64::from(size.max(8));
    match of {
        Of::Send => connection.play(&lanes.all[0], Play::Echo)?,
        Of::Ping => {
            let memory = Keyed { address: own.address + back, bytes: back, rkey: own.rkey };
            let region = lanes.place as u16;
            connection.play(&lanes.all[0], Play::Ping { region, bytes: size, memory })?;
        }
        _ => {}
    }
    let row = Row::new(of.verb(), args, point, connection.provider.capabilities().name);
    repeat(connection, lanes, row, point, stop, |connection, lanes| iterate(connection, lanes, args, point, of, stop))
}

fn iterate<P: Endpoint>(
    connection: &mut Connection<P>,
    lanes: &Lanes,
    args: &Args,
    point: &Point,
    of: Of,
    stop: &AtomicBool,
) -> Result<Iteration> {
    let size = point.size;
    let step = u64::from(size.max(8));
    let qp = lanes.all[0].qp;
    let element = |place: u64| Element {
        address: connection.memory.address + place * step,
        len: size,
        lkey: connection.memory.lkey,
    };
    let (there, here) = ([element(0)], [element(1)]);
    let remote = Remote { address: lanes.key.address, rkey: lanes.key.rkey };
    let mut message = [0; INLINE as usize];
    let inline = size <= INLINE && matches!(of, Of::Write | Of::Send | Of::Ping);
    let mut times = Times::new();
    let mut done = [Completion::default(); 16];

    let from = connection.moment(lanes)?;
    let began = Instant::now();
    let (mut last, mut operations) = (began, 0_u64);
    let end = began + point.seconds;
    while last < end && !(operations % ROUNDS == 0 && stop.load(Ordering::Relaxed)) {
        operations += 1;
        if of == Of::Send {
            let receive = RecvWr { id: 0, elements: &here };
            connection.provider.post_recv(qp, &[receive]).map_err(|(_, error)| error)?;
        }
        if of == Of::Ping {
            // A number that differs from what is in either memory.
            let at = size as usize - 8;
            message[at..size as usize].copy_from_slice(&from.number(operations).to_ne_bytes());
        }
        let data = if inline { Data::Inline(&message[..size as usize]) } else { Data::Elements(&there) };
        let request = SendWr::new(operations, operation(of.verb(), remote), data);
        connection.provider.post_send(qp, &[request]).map_err(|(_, error)| error)?;
        let wanted = if of == Of::Send { Completed::Recv } else { of.verb().completed() };
        let (mut acknowledged, mut answered, mut silent) = (of == Of::Send, of != Of::Ping, 0);
        let mut heard = of != Of::Send;
        while !(acknowledged && answered && heard) {
            let mut count = connection.provider.poll_cq(lanes.cq, &mut done)?;
            if count == 0 && args.event && of != Of::Ping {
                count = connection.sleep(lanes, &mut done)?;
            }
            for completion in &done[..count] {
                if completion.status != Status::Success {
                    return Err(connection.failed(completion));
                }
                heard |= completion.completed == wanted;
                acknowledged |= completion.completed == wanted;
            }
            if !answered {
                let mut word = [0; 8];
                connection.region.read((step + u64::from(size)) as usize - 8, &mut word);
                answered = u64::from_ne_bytes(word) == from.number(operations);
            }
            silent += u32::from(count == 0);
            if silent > SILENT {
                silent = 0;
                connection.check()?;
                if last.elapsed() > LOST {
                    return Err("an operation was not answered: the target does not play its part".into());
                }
            }
        }
        let now = Instant::now();
        times.enter(if of.is_halved() { (now - last) / 2 } else { now - last });
        last = now;
    }
    let to = connection.moment(lanes)?;
    Ok(Iteration::new(from, to, last - began, operations, operations * u64::from(size), times))
}
