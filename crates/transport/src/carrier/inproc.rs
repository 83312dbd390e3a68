//! A queue in each direction between two ends in one process, for tests and examples.

use super::{Carrier, MAX_DATAGRAM};
use crate::IoError;
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One direction.
#[derive(Debug, Default)]
struct Queue {
    datagrams: VecDeque<Vec<u8>>,
    /// Empty buffers of received datagrams.
    free: Vec<Vec<u8>>,
    /// The receiver sleeps until a datagram arrives.
    receiver_sleeps: bool,
    /// The sender sleeps until there is space.
    sender_sleeps: bool,
    /// One of the ends was dropped.
    is_closed: bool,
}

/// State that both ends own.
#[derive(Debug)]
struct Shared {
    /// The queue to each end.
    queues: [Mutex<Queue>; 2],
    /// Eventfd of each end, which wakes it.
    wakeups: [OwnedFd; 2],
}

impl Shared {
    fn queue_to(&self, end: usize) -> MutexGuard<'_, Queue> {
        // A panic of the other end cannot leave a partial datagram in the queue.
        self.queues[end].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self, end: usize) {
        // It can only fail if the count is 2^64 - 2 already, and then it is readable.
        let _ = rustix::io::write(&self.wakeups[end], &1_u64.to_ne_bytes());
    }
}

/// One end of an in-process path.
#[derive(Debug)]
pub struct InprocCarrier {
    shared: Arc<Shared>,
    /// Index of this end.
    this: usize,
    /// Maximum number of datagrams in a queue.
    capacity: usize,
    /// Datagrams that were in the outgoing queue when it was last looked at; there can only be fewer now.
    queued: usize,
    building: Vec<u8>,
    /// Bytes that may be appended to it; 0 also until that is known.
    space: usize,
    /// Completed datagrams that were not passed to the peer.
    completed: Vec<Vec<u8>>,
    /// [`Carrier::remaining`] has found no space.
    is_full: bool,
    received: Vec<u8>,
}

/// Creates the two ends of a path that holds up to `capacity` datagrams in each direction.
///
/// # Errors
/// [`IoError::System`] if the kernel refuses a descriptor.
///
/// # Panics
/// If `capacity` is 0.
pub fn pair(capacity: usize) -> Result<(InprocCarrier, InprocCarrier), IoError> {
    assert!(capacity > 0, "a path for no datagrams");
    let wakeup = || {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|error| IoError::System {
            what: "cannot create an eventfd".into(),
            source: error.into(),
            hint: "",
        })
    };
    let shared = Arc::new(Shared { queues: Default::default(), wakeups: [wakeup()?, wakeup()?] });
    let end = |this| InprocCarrier {
        shared: Arc::clone(&shared),
        this,
        capacity,
        queued: 0,
        building: Vec::with_capacity(MAX_DATAGRAM),
        space: 0,
        completed: Vec::new(),
        is_full: false,
        received: Vec::with_capacity(MAX_DATAGRAM),
    };
    Ok((end(0), end(1)))
}

impl InprocCarrier {
    fn peer(&self) -> usize {
        1 - self.this
    }

    /// Returns `true` if the queue, with the completed datagrams, has space for one more.
    fn has_space(&mut self) -> bool {
        if self.queued + self.completed.len() >= self.capacity {
            self.queued = self.shared.queue_to(self.peer()).datagrams.len();
        }
        self.queued + self.completed.len() < self.capacity
    }
}

impl Carrier for InprocCarrier {
    fn max_datagram(&self) -> usize {
        MAX_DATAGRAM
    }

    fn remaining(&mut self) -> usize {
        if self.space == 0 && self.building.is_empty() {
            self.is_full = !self.has_space();
            self.space = if self.is_full { 0 } else { MAX_DATAGRAM };
        }
        self.space
    }

    fn append(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.space, "{} bytes are appended, {} remain", bytes.len(), self.space);
        self.space -= bytes.len();
        self.building.extend_from_slice(bytes);
    }

    fn finish(&mut self) -> Result<(), IoError> {
        if !self.building.is_empty() {
            let next = self.shared.queue_to(self.peer()).free.pop();
            let next = next.unwrap_or_else(|| Vec::with_capacity(MAX_DATAGRAM));
            self.completed.push(std::mem::replace(&mut self.building, next));
            self.space = 0;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), IoError> {
        if self.completed.is_empty() {
            return Ok(());
        }
        let mut queue = self.shared.queue_to(self.peer());
        if queue.is_closed {
            self.completed.clear();
            return Ok(());
        }
        queue.datagrams.extend(self.completed.drain(..));
        self.queued = queue.datagrams.len();
        if std::mem::take(&mut queue.receiver_sleeps) {
            drop(queue);
            self.shared.wake(self.peer());
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<Option<&mut [u8]>, IoError> {
        let mut queue = self.shared.queue_to(self.this);
        let Some(datagram) = queue.datagrams.pop_front() else {
            return if queue.is_closed { Err(IoError::Disconnected) } else { Ok(None) };
        };
        let mut used = std::mem::replace(&mut self.received, datagram);
        used.clear();
        queue.free.push(used);
        if std::mem::take(&mut queue.sender_sleeps) {
            drop(queue);
            self.shared.wake(self.peer());
        }
        Ok(Some(&mut self.received))
    }

    fn prepare_sleep(&mut self) -> bool {
        // It fails if the count is 0, and then it is not readable.
        let _ = rustix::io::read(&self.shared.wakeups[self.this], &mut [0; 8]);
        {
            let mut inbox = self.shared.queue_to(self.this);
            if !inbox.datagrams.is_empty() || inbox.is_closed {
                return false;
            }
            inbox.receiver_sleeps = true;
        }
        if self.is_full {
            let mut outbox = self.shared.queue_to(self.peer());
            if outbox.datagrams.len() + self.completed.len() < self.capacity {
                return false;
            }
            outbox.sender_sleeps = true;
        }
        true
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.shared.wakeups[self.this].as_fd()
    }
}

impl Drop for InprocCarrier {
    fn drop(&mut self) {
        for end in 0..2 {
            self.shared.queue_to(end).is_closed = true;
        }
        self.shared.wake(self.peer());
    }
}
