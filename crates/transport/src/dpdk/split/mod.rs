//! Header split: the device writes payloads to posted receives, and no copy of them is made.
//!
//! The port has a pool for headers and one for payloads, whose buffers have the memory of posted receives, in the order
//! in which the packets are expected ([`plan`]). Receives are filled in the order of posting, as by an RDMA device
//! ([`Capabilities::steers`](crate::Capabilities::steers)). A packet that did not land in the oldest receive is copied
//! there, and the copies are counted: frames of other hosts, and lost packets of another length, shift those after them
//! until the plan accounts for it.
//!
//! Only packets with an ICRC over IPv4, without options and VLAN tag, are received in place; others are copied. The ICRC
//! of a payload as long as a buffer is in another buffer. That of a shorter one is behind the payload in the receive.

mod header;
mod plan;
pub mod state;

use super::{DpdkIo, sys};
use crate::frame;
use crate::land::{self, Landing};
use crate::payload::payload_crc;
use crate::seal::ICRC_BYTES;
use crate::{BatchInfo, Icrc, IoError, MAX_HEADER, PayloadDestination, PayloadLocation, Recv, RxPacket, Steer};
use arrayvec::ArrayVec;
use header::Headers;
use plan::{Delivery, NextBuffer};
use shotline_memory::Sge;
use shotline_wire::shot::DropCause;
use shotline_wire::{crc, ethernet, icrc};
use state::GROUP;

impl DpdkIo {
    /// Posts receives, and starts the port with the first ones.
    pub(super) fn post_split(&mut self, receives: &[Recv]) {
        let Some(split) = &mut self.split else { return };
        for receive in receives {
            let [first, second] = receive.sge;
            let buffers = (first.len as usize + ICRC_BYTES).div_ceil(split.shape.payload as usize);
            let is_reachable = split.address(&self.posted.regions, receive.sge).is_some();
            split.plan.post(receive.id, first.len + second.len, buffers, is_reachable);
        }
        self.give_buffers();
        let Some(split) = &mut self.split else { return };
        if !split.is_started {
            split.is_started = true;
            if let Err(code) = self.port.start() {
                split.error = Some(IoError::System {
                    what: format!("DPDK port {}: starting it{}", self.device.name, super::eal::log_suffix()),
                    source: std::io::Error::from_raw_os_error(code),
                    hint: "",
                });
            }
        }
    }

    /// Returns the error of an earlier call.
    pub(super) fn split_error(&mut self) -> Option<IoError> {
        self.split.as_mut().and_then(|split| split.error.take())
    }

    /// Plans the buffers that the driver takes next.
    fn give_buffers(&mut self) {
        let Some(split) = &mut self.split else { return };
        let mut numbers = [0; 64];
        loop {
            let count = self.port.returned(&mut numbers);
            if count == 0 {
                break;
            }
            numbers[..count].iter().for_each(|buffer| split.plan.free(*buffer));
        }
        while split.plan.given() < split.ring {
            let next = split.plan.give();
            let next = next.or_else(|| if split.plan.given() < GROUP { split.plan.give_other() } else { None });
            let Some(NextBuffer { buffer, receive }) = next else { break };
            let sges = receive.and_then(|id| self.posted.get(id));
            let address = sges.and_then(|sges| split.address(&self.posted.regions, sges));
            let address = address.unwrap_or(std::ptr::null_mut());
            split.addresses[buffer as usize] = address as usize;
            // SAFETY: the plan gives only free buffers, and a receive's memory once: its owner does not access it until
            // it has landed, and `address` has checked that it is mapped and long enough.
            unsafe { self.port.plan(buffer, address) }
        }
    }

    /// Receives a burst. Returns `false` if there was none.
    pub(super) fn receive_split(&mut self, max: u16) -> bool {
        let count = self.port.receive_split(max);
        self.burst.rest = 0..count;
        // Buffers that a packet did not need are free before it is delivered.
        self.give_buffers();
        count > 0
    }

    /// Delivers a frame to the oldest receive. Returns `true` if it was a datagram for us.
    pub(super) fn land_split<S: Steer>(&mut self, index: usize, steer: &mut S) -> bool {
        let Some(split) = &mut self.split else { return false };
        let (head, parts, is_plain) = self.port.split_frame(index);
        let rest = parts.iter().map(|part| part.len as usize).sum();
        let buffers: ArrayVec<u32, { sys::PARTS }> = parts.iter().map(|part| part.buffer).collect();
        let headers = if is_plain { header::parse(head, rest) } else { None };
        let headers = headers.filter(|headers| {
            let Headers { destination, header, payload_len, source, .. } = *headers;
            let len = (header.len() + payload_len as usize + ICRC_BYTES) as u32;
            let seen = BatchInfo { first: header, packets: 1, segment: len, last: len, source };
            frame::is_same(destination, self.config.bind) && steer.header_len(&seen) == header.len()
        });
        let Some(headers) = headers else { return self.land_joined(index, &buffers, steer) };
        let in_place = split.landed_in(parts, headers.payload_len).is_some();
        let mut first = [0; MAX_HEADER];
        let header = &mut first[..headers.header.len()];
        header.copy_from_slice(headers.header);
        let headers = Headers { header, ..headers };
        self.counters.received += 1;
        let Some(delivery) = split.plan.deliver(&buffers, headers.payload_len, in_place) else {
            self.counters.no_receive += 1;
            return false;
        };
        let done = self.check_split(index, &headers, delivery);
        self.posted.consume(PayloadDestination::Posted(delivery.id));
        self.counters.landed += 1;
        if done.icrc == Icrc::Good {
            self.hosts.learn(done.source.ip(), headers.mac);
        }
        steer.landed(&[done]);
        true
    }

    /// Brings a payload to its receive if it is elsewhere, and checks its packet.
    fn check_split<'a>(&mut self, index: usize, headers: &Headers<'a>, delivery: Delivery) -> RxPacket<'a> {
        let Headers { source, payload_len, .. } = *headers;
        let mut received = [0; ICRC_BYTES];
        self.port.read_behind_header(index, payload_len as usize, &mut received);
        let sges = self.posted.get(delivery.id).unwrap_or([Sge::EMPTY; 2]);
        let payload_crc = if delivery.in_place {
            self.counters.placed_bytes += u64::from(payload_len);
            payload_crc(&self.posted.regions, 0, Sge { len: payload_len, ..sges[0] })
        } else {
            self.counters.moved_bytes += u64::from(payload_len);
            self.move_payload(index, payload_len, sges)
        };
        let mut done = RxPacket {
            landed: PayloadLocation::Posted(delivery.id),
            header: headers.header,
            len: payload_len,
            source,
            stamp_ns: 0,
            icrc: Icrc::Absent,
            payload_crc,
            congested: headers.congested,
            fault: None,
        };
        let ports = [source.port(), headers.destination.port()];
        done.icrc = self.sealer.check_known(headers.network, ports, &done, u32::from_le_bytes(received));
        if done.icrc == Icrc::Bad {
            // The sender may use inputs that our sockets do not, as in `land`.
            self.port.join(index);
            let packet = self.port.frame(index).0.get(ethernet::Header::LEN..).unwrap_or_default();
            match icrc::verify_ip_packet(packet) {
                Ok(true) => done.icrc = Icrc::Good,
                _ => done.fault = Some(DropCause::BadIcrc),
            }
        }
        done
    }

    /// Copies a payload to its receive, in blocks of private memory. Returns its CRC remainder.
    fn move_payload(&self, index: usize, len: u32, sges: [Sge; 2]) -> u32 {
        let (mut register, mut block, mut at) = (0, [0; 4096], 0);
        for sge in sges {
            let end = (at + sge.len).min(len);
            let mut to = sge.offset as usize;
            while at < end {
                let block = &mut block[..(end - at).min(4096) as usize];
                self.port.read_behind_header(index, at as usize, block);
                register = crc::register(register, block);
                self.posted.regions.get(sge.region).write(to, block);
                to += block.len();
                at += block.len() as u32;
            }
        }
        register
    }

    /// Delivers a frame that is not a plain datagram, after it was copied to contiguous memory.
    fn land_joined<S: Steer>(&mut self, index: usize, buffers: &[u32], steer: &mut S) -> bool {
        self.port.join(index);
        self.counters.received += 1;
        let (bytes, faults) = self.port.frame(index);
        let parsed = if faults == 0 { Some(frame::parse(bytes)) } else { None };
        let Some(split) = &mut self.split else { return false };
        let datagram = match parsed {
            Some(Ok(datagram)) => datagram,
            Some(Err(error)) => {
                split.plan.discard(buffers);
                self.refuse(index, &error);
                return false;
            }
            None => {
                split.plan.discard(buffers);
                self.counters.count_fault(faults);
                return false;
            }
        };
        let seen = land::seen(&datagram);
        let is_ours = frame::is_same(datagram.destination, self.config.bind);
        let header = if is_ours { steer.header_len(&seen).min(MAX_HEADER) } else { 0 };
        let Some(len) = datagram.payload.len().checked_sub(header + ICRC_BYTES).filter(|_| is_ours) else {
            split.plan.discard(buffers);
            *(if is_ours { &mut self.counters.malformed } else { &mut self.counters.not_ours }) += 1;
            return false;
        };
        let Some(delivery) = split.plan.deliver(buffers, len as u32, false) else {
            self.counters.no_receive += 1;
            return false;
        };
        // Once to contiguous memory, once to the receive.
        self.counters.moved_bytes += 2 * len as u64;
        let mut landing = Landing {
            posted: &mut self.posted,
            sealer: &mut self.sealer,
            scratch: self.config.scratch,
            sealed: self.config.sealed,
            remainders: self.config.remainders,
        };
        let verdict = landing.land_at(&datagram, header, PayloadDestination::Posted(delivery.id), steer);
        self.counters.landed += 1;
        if verdict == Icrc::Good {
            self.hosts.learn(datagram.source.ip(), datagram.mac);
        }
        true
    }
}
