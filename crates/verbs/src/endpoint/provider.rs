//! [`Provider`] for [`Endpoint`].

use super::core::{Core, SharedReceives};
use super::datapath::Datapath;
use super::{Endpoint, wakeups};
use crate::api::{
    AsyncEvent, Capabilities, Completion, Cq, Modify, Notices, PostError, Provider, Qp, QpConfig, QpState, QpType,
    ReadyToReceive, RecvWr, RemoteAccess, SendWr, Srq, VerbsError, Window, Windows,
};
use crate::engine::{Context, Engine, RecvQueue};
use rustix::fd::BorrowedFd;
use shotline_memory::{Access, Addressing, Mr, Pd, Region, RegistrationCounters};
use std::sync::Arc;
use std::time::Duration;

impl<D: Datapath> Windows for Endpoint<D> {
    fn bind_window(
        &mut self,
        qp: Qp,
        mr: &Mr,
        offset: u64,
        len: u64,
        access: Access,
        lifetime: Option<Duration>,
    ) -> Result<Window, VerbsError> {
        let pair = self.core.pairs.by_number(qp.0).ok_or(VerbsError::NoSuch("queue pair"))?;
        let end = |lifetime: Duration| wakeups::now().saturating_add(nanos(lifetime));
        let (pd, expires) = (pair.engine.config().pd, lifetime.map(end));
        let rkey = self.core.protection.bind(pd, mr.lkey, qp.0, offset, len, access, expires)?;
        Ok(Window { rkey, len })
    }

    fn unbind_window(&mut self, window: &Window) -> Result<(), VerbsError> {
        self.core.protection.unbind(window.rkey).then_some(()).ok_or(VerbsError::NoSuch("window"))
    }
}

impl<D: Datapath> Notices for Endpoint<D> {
    fn watch_mr(&mut self, mr: &Mr, notify: bool) -> Result<(), VerbsError> {
        self.mr_usage(mr)?; // checks that it exists
        self.core.sinks.watch.set(mr.rkey, notify);
        Ok(())
    }

    fn next_access(&mut self) -> Option<RemoteAccess> {
        self.core.sinks.watch.next()
    }

    fn mr_usage(&self, mr: &Mr) -> Result<RegistrationCounters, VerbsError> {
        self.core.protection.counters(mr.lkey).ok_or(VerbsError::NoSuch("memory registration"))
    }
}

impl<D: Datapath> Provider for Endpoint<D> {
    fn capabilities(&self) -> Capabilities {
        D::DESCRIPTION.capabilities
    }

    fn alloc_pd(&mut self) -> Result<Pd, VerbsError> {
        Ok(self.core.protection.allocate())
    }

    fn dealloc_pd(&mut self, pd: Pd) -> Result<(), VerbsError> {
        Ok(self.core.protection.deallocate(pd)?)
    }

    fn reg_mr(
        &mut self,
        pd: Pd,
        region: &Arc<Region>,
        offset: u64,
        len: u64,
        access: Access,
        addressing: Addressing,
    ) -> Result<Mr, VerbsError> {
        Ok(self.core.protection.register(pd, region, offset, len, access, addressing)?)
    }

    fn dereg_mr(&mut self, mr: &Mr) -> Result<(), VerbsError> {
        if !self.core.protection.deregister(mr.lkey) {
            return Err(VerbsError::NoSuch("memory registration"));
        }
        self.core.sinks.watch.set(mr.rkey, false);
        Ok(())
    }

    fn create_cq(&mut self, depth: u32) -> Result<Cq, VerbsError> {
        if depth == 0 || depth > MAX_QUEUE_ENTRIES {
            return Err(VerbsError::Invalid(format!(
                "expected a depth of 1 to {MAX_QUEUE_ENTRIES} for a completion queue, found {depth}"
            )));
        }
        self.core
            .sinks
            .queues
            .create(depth)
            .ok_or(VerbsError::Unsupported("an endpoint supports at most 65,536 completion queues"))
    }

    fn destroy_cq(&mut self, cq: Cq) -> Result<(), VerbsError> {
        if self.core.pairs.iter().any(|(_, pair)| pair.completes_at(cq)) {
            return Err(VerbsError::InUse { what: "completion queue", by: "a queue pair" });
        }
        let found = self.core.sinks.queues.destroy(cq);
        found.then_some(()).ok_or(VerbsError::NoSuch("completion queue"))
    }

    fn poll_cq(&mut self, cq: Cq, out: &mut [Completion]) -> Result<usize, VerbsError> {
        const UNKNOWN: VerbsError = VerbsError::NoSuch("completion queue");
        let count = self.core.sinks.queues.take(cq, out).ok_or(UNKNOWN)?;
        if count > 0 || out.is_empty() {
            return Ok(count);
        }
        self.run_once()?;
        self.core.sinks.queues.take(cq, out).ok_or(UNKNOWN)
    }

    fn arm_cq(&mut self, cq: Cq, solicited_only: bool) -> Result<(), VerbsError> {
        let found = self.core.sinks.queues.arm(cq, solicited_only);
        found.then_some(()).ok_or(VerbsError::NoSuch("completion queue"))?;
        // Requests posted before must have been sent when the caller sleeps.
        self.doorbell();
        Ok(())
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.wakeups.fd()
    }

    fn next_event(&mut self) -> Option<Cq> {
        let event = self.core.sinks.queues.next_event();
        self.wakeups.signal(self.core.sinks.queues.has_events());
        event
    }

    fn wait(&mut self, timeout: Duration) -> Result<Option<Cq>, VerbsError> {
        let end = wakeups::now().saturating_add(nanos(timeout));
        loop {
            let busy = self.run_once()?;
            if let Some(cq) = self.next_event() {
                return Ok(Some(cq));
            }
            let now = wakeups::now();
            if now >= end {
                return Ok(None);
            }
            if !busy {
                let until = self.next_deadline().map_or(end, |deadline| deadline.min(end));
                self.datapath.wait(Duration::from_nanos(until.saturating_sub(now)))?;
            }
        }
    }

    fn create_srq(&mut self, pd: Pd, depth: u32, max_sge: u32) -> Result<Srq, VerbsError> {
        check_depth("shared receive queue", depth)?;
        self.core.protection.join(pd)?;
        let shared = SharedReceives { pd, receives: RecvQueue::new(pd, depth, max_sge), limit: None };
        let created = self.core.shared.insert(shared).map(Srq);
        if created.is_none() {
            self.core.protection.leave(pd);
        }
        created.ok_or(VerbsError::Unsupported("an endpoint supports at most 65,536 shared receive queues"))
    }

    fn destroy_srq(&mut self, srq: Srq) -> Result<(), VerbsError> {
        if self.core.pairs.iter().any(|(_, pair)| pair.srq() == Some(srq)) {
            return Err(VerbsError::InUse { what: "shared receive queue", by: "a queue pair" });
        }
        let mut shared = self.core.shared.remove(srq.0).ok_or(VerbsError::NoSuch("shared receive queue"))?;
        shared.receives.flush(&mut self.core.protection, |_| ());
        self.core.protection.leave(shared.pd);
        Ok(())
    }

    fn arm_srq(&mut self, srq: Srq, limit: u32) -> Result<(), VerbsError> {
        let shared = self.core.shared.get_mut(srq.0).ok_or(VerbsError::NoSuch("shared receive queue"))?;
        shared.limit = (limit > 0).then_some(limit);
        self.core.check_limit(srq);
        Ok(())
    }

    fn next_async(&mut self) -> Option<AsyncEvent> {
        self.core.sinks.events.pop_front()
    }

    fn post_srq_recv(&mut self, srq: Srq, requests: &[RecvWr<'_>]) -> Result<(), (usize, PostError)> {
        let shared = self.core.shared.get_mut(srq.0).ok_or((0, PostError::NoQueue))?;
        for (index, request) in requests.iter().enumerate() {
            shared.receives.post(&mut self.core.protection, request).map_err(|error| (index, error))?;
        }
        Ok(())
    }

    fn create_qp(&mut self, config: &QpConfig) -> Result<Qp, VerbsError> {
        self.create_numbered(config, None)
    }

    fn modify_qp(&mut self, qp: Qp, change: Modify) -> Result<(), VerbsError> {
        const UNKNOWN: VerbsError = VerbsError::NoSuch("queue pair");
        let index = self.core.pairs.index_of(qp.0).ok_or(UNKNOWN)?;
        if let (Modify::ReadyToReceive(ReadyToReceive { mtu, .. }), Some(max)) = (&change, D::DESCRIPTION.mtu)
            && *mtu > max
        {
            let (max, found) = (max.bytes(), mtu.bytes());
            return Err(VerbsError::Invalid(format!("expected a path MTU of at most {max} bytes, found {found}")));
        }
        let connected = match change {
            Modify::ReadyToReceive(ReadyToReceive { peer: Some((address, _)), .. }) => {
                Some(self.datapath.connect(address, self.service_level(index))?)
            }
            _ => None,
        };
        if let Some(pair) = self.core.pairs.get_mut(index) {
            // A requested transition to the error state raises no event.
            pair.failed = matches!(change, Modify::Error);
        }
        let window = self.core.window();
        let modify = |engine: &mut Engine, context: &mut Context<'_>| {
            if let Modify::ReadyToSend(_) = change {
                engine.limit_window(window);
            }
            engine.modify(context, &change)
        };
        let result = self.core.with(index, modify).ok_or(UNKNOWN)?;
        match connected {
            Some(queue) if result.is_ok() => self.core.assign(index, queue),
            Some(queue) => self.datapath.disconnect(queue),
            None if matches!(change, Modify::Reset) => self.disconnect(index),
            None => {}
        }
        self.core.reschedule(index);
        self.core.fail_overrun_qps();
        result
    }

    fn qp_state(&self, qp: Qp) -> Result<QpState, VerbsError> {
        self.core.pairs.by_number(qp.0).map(|pair| pair.engine.state()).ok_or(VerbsError::NoSuch("queue pair"))
    }

    fn destroy_qp(&mut self, qp: Qp) -> Result<(), VerbsError> {
        let index = self.core.pairs.index_of(qp.0).ok_or(VerbsError::NoSuch("queue pair"))?;
        // Unpins the memory of its outstanding requests.
        self.core.with(index, |engine, context| engine.modify(context, &Modify::Reset));
        self.disconnect(index);
        if let Some(pair) = self.core.pairs.remove(qp.0) {
            self.core.remove_in_flight(&pair);
            self.core.protection.leave(pair.engine.config().pd);
            self.core.arena.free(pair.memory);
        }
        Ok(())
    }

    fn post_send(&mut self, qp: Qp, requests: &[SendWr<'_>]) -> Result<(), (usize, PostError)> {
        let index = self.core.pairs.index_of(qp.0).ok_or((0, PostError::NoQueue))?;
        let posted = self.core.with(index, |engine, context| {
            for (index, request) in requests.iter().enumerate() {
                engine.post_send(context, request).map_err(|error| (index, error))?;
            }
            Ok(())
        });
        self.core.reschedule(index);
        if self.core.sinks.queues.any_armed() {
            self.doorbell();
        }
        posted.unwrap_or(Err((0, PostError::NoQueue)))
    }

    fn post_recv(&mut self, qp: Qp, requests: &[RecvWr<'_>]) -> Result<(), (usize, PostError)> {
        let index = self.core.pairs.index_of(qp.0).ok_or((0, PostError::NoQueue))?;
        let posted = self.core.with(index, |engine, context| {
            for (index, request) in requests.iter().enumerate() {
                engine.post_recv(context, request).map_err(|error| (index, error))?;
            }
            Ok(())
        });
        posted.unwrap_or(Err((0, PostError::NoQueue)))
    }

    fn progress(&mut self) -> Result<bool, VerbsError> {
        self.run_once()
    }
}

impl<D: Datapath> Endpoint<D> {
    fn service_level(&self, index: u32) -> u8 {
        self.core.pairs.get(index).map_or(0, |pair| pair.engine.config().service_level)
    }

    /// Ends the use of the datapath by a queue pair, if it is connected.
    fn disconnect(&mut self, index: u32) {
        if let Some(queue) = self.core.unassign(index) {
            self.datapath.disconnect(queue);
        }
    }

    /// Creates a queue pair with this number, or with a random one.
    pub(crate) fn create_numbered(&mut self, config: &QpConfig, number: Option<u32>) -> Result<Qp, VerbsError> {
        let Capabilities { ud, uc, rc, .. } = self.capabilities();
        let supported = match config.kind {
            QpType::Ud => ud,
            QpType::Uc => uc,
            QpType::Rc => rc,
        };
        if !supported {
            return Err(VerbsError::Unsupported("this provider has no queue pairs of this type"));
        }
        for cq in [config.send_cq, config.recv_cq] {
            if !self.core.sinks.queues.exists(cq) {
                return Err(VerbsError::NoSuch("completion queue"));
            }
        }
        check_depth("send queue", config.max_send_wr)?;
        match config.srq {
            Some(srq) if self.core.shared.get(srq.0).is_none() => {
                return Err(VerbsError::NoSuch("shared receive queue"));
            }
            Some(_) => {}
            None => check_depth("receive queue", config.max_recv_wr)?,
        }
        let Core { pairs, arena, protection, .. } = &mut self.core;
        protection.join(config.pd)?;
        let created = arena
            .alloc(protection, Engine::buffer_bytes(config))
            .and_then(|memory| pairs.create(config, memory, number).map(Qp).inspect_err(|_| arena.free(memory)));
        created.inspect_err(|_| protection.leave(config.pd))
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Maximum depth of a queue, in entries.
const MAX_QUEUE_ENTRIES: u32 = 1 << 22;

fn check_depth(what: &str, depth: u32) -> Result<(), VerbsError> {
    if (1..=MAX_QUEUE_ENTRIES).contains(&depth) {
        return Ok(());
    }
    Err(VerbsError::Invalid(format!("expected a depth of 1 to {MAX_QUEUE_ENTRIES} for a {what}, found {depth}")))
}
