//! Threads that compress shots for a recorder, which never waits for them.

use super::{Codec, Encoder};
use crate::sys::drive::Wake;
use shotline_memory::{Buffer, MemoryError, Pool, Regions};
use shotline_wire::shot::Geometry;
use std::collections::VecDeque;
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Shots that wait for each thread, at most: enough to ride out one that was interrupted, few enough that the pool of
/// shot buffers hardly notices.
const BACKLOG: usize = 4;

/// Shot buffers that compression on `threads` threads holds at most.
pub fn held(threads: usize) -> usize {
    threads * (1 + BACKLOG)
}

/// A shot to compress.
struct Job {
    tag: u64,
    link: usize,
    shot: Buffer,
    out: Buffer,
}

/// A shot that a thread is done with.
#[derive(Debug)]
pub(crate) struct Made {
    /// As it was handed in.
    pub tag: u64,
    /// What to write: a chunk, or the shot itself.
    pub buffer: Buffer,
    /// Bytes of the chunk, if it was compressed.
    pub compressed: Option<u32>,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    closed: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    come: Condvar,
    made: Mutex<Vec<Made>>,
}

/// The threads, and room for what they make.
pub(crate) struct Workers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    out: Arc<Pool>,
    under_way: usize,
}

/// Room for what compression makes: for each shot that it holds, and for each write under way. The table that comes
/// back has this room behind the regions that were there.
pub(crate) fn room(
    regions: &Regions,
    threads: usize,
    in_flight: usize,
    geometries: &[Geometry],
) -> Result<(Arc<Pool>, Regions), MemoryError> {
    let slot = geometries.iter().map(Geometry::slot_bytes).max().unwrap_or(0);
    let mut registrar = regions.extend();
    let pool = Pool::new(&mut registrar, (held(threads) + in_flight) as u32, slot)?;
    Ok((pool, registrar.finish()))
}

impl Workers {
    /// Starts the threads. Each wakes the recorder when it is done with a shot.
    pub fn start(
        codec: Codec,
        threads: usize,
        out: Arc<Pool>,
        geometries: &[Geometry],
        wake: &Arc<Wake>,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let mut workers = Self { shared: Arc::clone(&shared), threads: Vec::new(), out, under_way: 0 };
        for index in 0..threads {
            let (shared, wake) = (Arc::clone(&shared), Arc::clone(wake));
            let encoders = geometries.iter().map(|geometry| Encoder::new(codec, *geometry)).collect();
            let started = std::thread::Builder::new()
                .name(format!("compress {index}"))
                .spawn(move || work(&shared, encoders, &wake))?;
            workers.threads.push(started);
        }
        Ok(workers)
    }

    /// Hands a shot in; gives it back if there is more to do than the threads can keep up with.
    pub fn submit(&mut self, tag: u64, link: usize, shot: Buffer) -> Result<(), Buffer> {
        if self.under_way >= held(self.threads.len()) {
            return Err(shot);
        }
        let Some(out) = self.out.take() else { return Err(shot) };
        lock(&self.shared.queue).jobs.push_back(Job { tag, link, shot, out });
        self.shared.come.notify_one();
        self.under_way += 1;
        Ok(())
    }

    /// What has been made since the last call.
    pub fn made(&mut self) -> Vec<Made> {
        let made = std::mem::take(&mut *lock(&self.shared.made));
        self.under_way -= made.len();
        made
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        let mut queue = lock(&self.shared.queue);
        queue.closed = true;
        queue.jobs.clear();
        drop(queue);
        self.shared.come.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for Workers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Workers({} threads, {} shots under way)", self.threads.len(), self.under_way)
    }
}

fn work(shared: &Shared, encoders: Vec<Encoder>, wake: &Wake) {
    let mut encoders: Vec<Option<Encoder>> = encoders.into_iter().map(Some).collect();
    // Where processors are few the receiver and the recorder go first. (On Linux this is of the calling thread alone;
    // where it is refused all are equal.)
    let _ = rustix::process::nice(10);
    while let Some(Job { tag, link, shot, out }) = next(shared) {
        let encode = || encoders[link].as_mut().and_then(|encoder| encoder.encode(&shot, &out));
        let encoded = std::panic::catch_unwind(AssertUnwindSafe(encode)).unwrap_or_else(|_| {
            // The recorder waits for every shot: this one and those that follow are stored as they came.
            encoders[link] = None;
            None
        });
        let made = match encoded {
            Some(bytes) => Made { tag, buffer: out, compressed: Some(bytes) },
            None => Made { tag, buffer: shot, compressed: None },
        };
        lock(&shared.made).push(made);
        wake.wake();
    }
}

/// The next job, when there is one; none when there will be none.
fn next(shared: &Shared) -> Option<Job> {
    let mut queue = lock(&shared.queue);
    loop {
        if let Some(job) = queue.jobs.pop_front() {
            return Some(job);
        }
        if queue.closed {
            return None;
        }
        queue = shared.come.wait(queue).unwrap_or_else(PoisonError::into_inner);
    }
}

/// What the locks guard is whole at any moment, so a thread that panicked leaves nothing half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
