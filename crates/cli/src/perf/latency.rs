//! How long single operations take.

use super::args::Args;
use super::connection::{Connection, Lanes, Need};
use super::measure::{LOST, Poller, Window, repeat};
use super::point::{Of, Point, operation, rights};
use super::report::{Iteration, Row};
use super::times::Times;
use crate::Result;
use shotline_memory::Access;
use shotline_verbs::api::{CompletionKind, Completion, Data, Element, RecvWr, Remote, SendWr};
use shotline_verbs::cm::Endpoint;
use shotline_verbs::cm::message::{Play, Receives, RegisteredMemory};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// Polls without a completion between two looks at the control connection: rare, to keep it out of the times.
const WAIT_TIMEOUT: u32 = 1 << 14;
/// Inline up to this: what queue pairs are made for, unless told otherwise.
const INLINE: u32 = 64;

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
        mtu: args.mtu(),
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
            let memory = RegisteredMemory { address: own.address + back, bytes: back, rkey: own.rkey };
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
    // Another side's write makes no event.
    let mut poller = Poller::new(args.event && of != Of::Ping, WAIT_TIMEOUT);
    let mut done = [Completion::default(); 16];

    let window = Window::open(connection, lanes, point, stop)?;
    let (mut last, mut operations) = (window.began, 0_u64);
    while !window.is_over(last) {
        operations += 1;
        if of == Of::Send {
            let receive = RecvWr { id: 0, elements: &here };
            connection.provider.post_recv(qp, &[receive]).map_err(|(_, error)| error)?;
        }
        if of == Of::Ping {
            // A number that differs from what is in either memory.
            let at = size as usize - 8;
            message[at..size as usize].copy_from_slice(&window.from.number(operations).to_ne_bytes());
        }
        let data = if inline { Data::Inline(&message[..size as usize]) } else { Data::Elements(&there) };
        let request = SendWr::new(operations, operation(of.verb(), remote), data);
        connection.provider.post_send(qp, &[request]).map_err(|(_, error)| error)?;
        let wanted = if of == Of::Send { CompletionKind::Recv } else { of.verb().completed() };
        let (mut acknowledged, mut answered) = (of == Of::Send, of != Of::Ping);
        let mut heard = of != Of::Send;
        while !(acknowledged && answered && heard) {
            for completion in poller.poll(connection, lanes, &mut done)? {
                heard |= completion.kind == wanted;
                acknowledged |= completion.kind == wanted;
            }
            if !answered {
                let mut word = [0; 8];
                connection.region.read((step + u64::from(size)) as usize - 8, &mut word);
                answered = u64::from_ne_bytes(word) == window.from.number(operations);
            }
            if poller.checked && last.elapsed() > LOST {
                return Err("an operation was not answered: the target does not play its part".into());
            }
        }
        let now = Instant::now();
        times.enter(if of.is_halved() { (now - last) / 2 } else { now - last });
        last = now;
    }
    window.close(connection, lanes, last, operations, size, times)
}
