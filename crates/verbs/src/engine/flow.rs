//! Congestion control of one connection: pacing of its packets, and pending notifications to its peer.

use super::common::Common;
use super::congestion::{Congestion, Notifier, notification};
use super::{Burst, IncomingPacket, Nanos, QpCounters};
use shotline_wire::bth::Opcode;

#[derive(Debug, Default)]
pub(super) struct Flow {
    congestion: Congestion,
    notifier: Notifier,
    cnp_pending: bool,
}

impl Flow {
    /// Charges a packet of `bytes` if pacing allows it now, and returns `true` then.
    pub fn try_charge(&mut self, now: Nanos, bytes: u32) -> bool {
        let may_send = self.congestion.may_send(now);
        if may_send {
            self.congestion.on_sent(now, bytes);
        }
        may_send
    }
    /// Returns `true` if pacing allows a packet now.
    pub fn is_ready(&self, now: Nanos) -> bool {
        self.congestion.next_send_time(now).is_none()
    }
    /// Returns the time at which pacing allows the next packet, if a rate limit is active.
    pub fn deadline(&self) -> Option<Nanos> {
        self.congestion.next_send_time(0)
    }
    /// Records an accepted packet, which may be marked as congested.
    pub fn on_accepted(&mut self, now: Nanos, packet: &IncomingPacket<'_>) {
        self.cnp_pending |= packet.congested && self.notifier.on_marked(now);
    }
    /// Returns `true` if a CNP to the peer is pending.
    pub fn has_pending_cnp(&self) -> bool {
        self.cnp_pending
    }
    /// Adds the pending CNP, if there is one.
    pub fn push_cnp(&mut self, burst: &mut Burst, common: &Common, counters: &mut QpCounters) {
        if let (true, Some((to, qp))) = (std::mem::take(&mut self.cnp_pending), common.peer) {
            burst.push(to, notification(qp));
            counters.cnps_out += 1;
        }
    }
    /// Handles the packet and returns `true` if it is a congestion notification.
    pub fn handle_cnp(&mut self, now: Nanos, packet: &IncomingPacket<'_>, counters: &mut QpCounters) -> bool {
        let is_cnp = packet.bth.opcode == Opcode::CongestionNotification;
        if is_cnp {
            counters.cnps_in += 1;
            self.congestion.on_cnp(now);
        }
        is_cnp
    }
}
