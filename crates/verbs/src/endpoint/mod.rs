//! Endpoints in software, over any [`Datapath`].
//!
//! An [`Endpoint`] owns protection domains, memory regions, queues and queue pairs. The queue pairs' engines make packets
//! and execute those of their peers; a datapath moves the packets between engines and a link. The providers in software
//! differ only in their datapaths: [`soft`](crate::soft) sends RoCEv2.
//!
//! An endpoint makes progress only while it is called ([`Provider::progress`](crate::api::Provider::progress),
//! `poll_cq`, `wait`): a post queues a request, and the next call sends all queued requests and pending
//! acknowledgements. While a completion queue is armed, the application may be asleep until its event, so a post then
//! sends at once.
//!
//! One call reads the clock once. An idle queue pair costs nothing, however many there are.
//!
//! | content | module |
//! |---|---|
//! | the verbs | `provider` |
//! | send scheduling across queue pairs | `core` |
//! | queue pairs by number, their memory | `pairs`, `arena` |
//! | deadlines | `timers` |
//! | completions, notices, events | `queues`, `watch`, `wakeups` |

mod arena;
mod core;
mod datapath;
mod pairs;
mod provider;
mod queues;
#[cfg(test)]
mod tests;
mod timers;
mod wakeups;
mod watch;

pub use self::core::Core;
pub(crate) use self::core::MAX_BURST_PACKETS;
pub use datapath::Datapath;

use crate::api::{Capabilities, Qp, VerbsError};
use crate::engine::{Nanos, QpCounters};
use shotline_memory::Regions;
use wakeups::Wakeups;

/// Capabilities of every endpoint in software. A datapath adds its name, and the services that its packets have.
pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    name: "",
    ud: false,
    uc: false,
    rc: true,
    atomics: true,
    target_cpu_is_idle: false,
    partial_registration: true,
    separate_rights: true,
    revokes: true,
    windows: true,
    invalidates: true,
    lenient: true,
    random_numbers: true,
    reports_solicited: true,
    max_operation: 1 << 31,
};

/// Queue pairs with their queues and memory, over a datapath.
pub struct Endpoint<D: Datapath> {
    pub(crate) datapath: D,
    pub(crate) core: Core,
    wakeups: Wakeups,
}

impl<D: Datapath> Endpoint<D> {
    /// Creates an endpoint. `regions` are the regions that the datapath was created with: its own memory.
    pub(crate) fn new(datapath: D, regions: Regions) -> Result<Self, VerbsError> {
        let wakeups = Wakeups::new(datapath.fd())?;
        Ok(Self { datapath, core: Core::new(regions), wakeups })
    }

    /// Returns the counters of a queue pair.
    pub fn qp_counters(&self, qp: Qp) -> Option<&QpCounters> {
        self.core.pairs.by_number(qp.0).map(|pair| &pair.counters)
    }

    /// Sends what is ready, receives what has arrived, and runs expired timers. Packets that result from this are sent
    /// by the next call: so an acknowledgement goes out together with the response that the caller may post next, which
    /// saves a system call and a third of a small message's latency.
    fn run_once(&mut self) -> Result<bool, VerbsError> {
        self.core.now = wakeups::now();
        self.register_regions();
        let sent = self.datapath.transmit(&mut self.core);
        let received = self.datapath.receive(&mut self.core);
        let expired = self.core.expire();
        self.core.fail_overrun_qps();
        self.wakeups.signal(self.core.sinks.queues.has_events());
        // An error of one link does not stop what does not need it.
        let received = received?;
        let busy = sent || received || expired || self.core.can_send();
        if !busy {
            self.prepare_sleep();
        }
        Ok(busy)
    }

    /// Sends posted requests at once, for callers that may sleep now.
    fn doorbell(&mut self) {
        self.core.now = wakeups::now();
        self.register_regions();
        self.datapath.transmit(&mut self.core);
        self.core.fail_overrun_qps();
        self.wakeups.signal(self.core.sinks.queues.has_events());
        self.prepare_sleep();
    }

    /// Sets the timer for the next deadline.
    fn prepare_sleep(&mut self) {
        self.wakeups.set_timer(self.core.now, self.next_deadline());
    }

    fn next_deadline(&self) -> Option<Nanos> {
        [self.datapath.deadline(self.core.now), self.core.timers.next()].into_iter().flatten().min()
    }

    /// Passes the changed table of regions to the datapath, if memory was registered or deregistered.
    fn register_regions(&mut self) {
        if let Some(regions) = self.core.take_changed_regions() {
            self.datapath.register(regions);
        }
    }
}

impl<D: Datapath> Drop for Endpoint<D> {
    /// Sends pending acknowledgements: an application that exits right after its last message must not leave the sender
    /// without a response.
    fn drop(&mut self) {
        self.register_regions();
        self.datapath.transmit(&mut self.core);
    }
}
