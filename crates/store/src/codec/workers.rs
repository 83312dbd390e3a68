//! Pool of compression threads. The recorder never blocks on it.

use super::{Codec, Encoder};
use crate::sys::drive::Wake;
use shotline_memory::{Buffer, MemoryError, Pool, Regions};
use shotline_wire::shot::Geometry;
use std::collections::VecDeque;
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Maximum queued shots per thread: enough to bridge an interruption of a thread, few enough to occupy only a small
/// part of the pool of shot buffers.
const BACKLOG: usize = 4;

/// Returns the maximum number of shot buffers that compression on `threads` threads holds.
pub fn max_held_buffers(threads: usize) -> usize {
    threads * (1 + BACKLOG)
}

/// A shot to compress.
struct Job {
    tag: u64,
    link: usize,
    shot: Buffer,
    out: Buffer,
}

/// A shot that a thread has processed.
#[derive(Debug)]
pub(crate) struct CompletedShot {
    /// Tag passed to [`Workers::submit`].
    pub tag: u64,
    /// Data to write: the compressed chunk, or the uncompressed shot.
    pub buffer: Buffer,
    /// Length of the chunk in bytes, if it was compressed.
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
    job_available: Condvar,
    completed: Mutex<Vec<CompletedShot>>,
}

/// Compression threads and their pool of output buffers.
pub(crate) struct Workers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    out: Arc<Pool>,
    in_flight: usize,
}

/// Allocates output buffers: one per shot held by the compression and one per write in flight.
///
/// The returned table has their region after the existing regions.
pub(crate) fn output_pool(
    regions: &Regions,
    threads: usize,
    in_flight: usize,
    geometries: &[Geometry],
) -> Result<(Arc<Pool>, Regions), MemoryError> {
    let slot = geometries.iter().map(Geometry::slot_bytes).max().unwrap_or(0);
    let mut registrar = regions.extend();
    let pool = Pool::new(&mut registrar, (max_held_buffers(threads) + in_flight) as u32, slot)?;
    Ok((pool, registrar.finish()))
}

impl Workers {
    /// Starts the threads. Each wakes the recorder when it completes a shot.
    pub fn start(
        codec: Codec,
        threads: usize,
        out: Arc<Pool>,
        geometries: &[Geometry],
        wake: &Arc<Wake>,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let mut workers = Self { shared: Arc::clone(&shared), threads: Vec::new(), out, in_flight: 0 };
        for index in 0..threads {
            let (shared, wake) = (Arc::clone(&shared), Arc::clone(wake));
            let encoders = geometries.iter().map(|geometry| Encoder::new(codec, *geometry)).collect();
            let started = std::thread::Builder::new()
                .name(format!("compress {index}"))
                .spawn(move || worker_loop(&shared, encoders, &wake))?;
            workers.threads.push(started);
        }
        Ok(workers)
    }

    /// Queues a shot, or returns it if the queue is full.
    pub fn submit(&mut self, tag: u64, link: usize, shot: Buffer) -> Result<(), Buffer> {
        if self.in_flight >= max_held_buffers(self.threads.len()) {
            return Err(shot);
        }
        let Some(out) = self.out.take() else { return Err(shot) };
        lock(&self.shared.queue).jobs.push_back(Job { tag, link, shot, out });
        self.shared.job_available.notify_one();
        self.in_flight += 1;
        Ok(())
    }

    /// Returns the shots that have completed since the last call.
    pub fn drain_completed(&mut self) -> Vec<CompletedShot> {
        let completed = std::mem::take(&mut *lock(&self.shared.completed));
        self.in_flight -= completed.len();
        completed
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        let mut queue = lock(&self.shared.queue);
        queue.closed = true;
        queue.jobs.clear();
        drop(queue);
        self.shared.job_available.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for Workers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Workers({} threads, {} shots in flight)", self.threads.len(), self.in_flight)
    }
}

fn worker_loop(shared: &Shared, encoders: Vec<Encoder>, wake: &Wake) {
    let mut encoders: Vec<Option<Encoder>> = encoders.into_iter().map(Some).collect();
    // With few processors, the receiver and the recorder have priority. On Linux, nice applies to the calling thread
    // only. A failure is ignored: all threads then have the same priority.
    let _ = rustix::process::nice(10);
    while let Some(Job { tag, link, shot, out }) = next_job(shared) {
        let encode = || encoders[link].as_mut().and_then(|encoder| encoder.encode(&shot, &out));
        let encoded = std::panic::catch_unwind(AssertUnwindSafe(encode)).unwrap_or_else(|_| {
            // The recorder waits for every shot, so this one and the following ones are stored uncompressed.
            encoders[link] = None;
            None
        });
        let completed = match encoded {
            Some(bytes) => CompletedShot { tag, buffer: out, compressed: Some(bytes) },
            None => CompletedShot { tag, buffer: shot, compressed: None },
        };
        lock(&shared.completed).push(completed);
        wake.wake();
    }
}

/// Waits for the next job. Returns `None` once the queue is closed.
fn next_job(shared: &Shared) -> Option<Job> {
    let mut queue = lock(&shared.queue);
    loop {
        if let Some(job) = queue.jobs.pop_front() {
            return Some(job);
        }
        if queue.closed {
            return None;
        }
        queue = shared.job_available.wait(queue).unwrap_or_else(PoisonError::into_inner);
    }
}

/// Locks a mutex and ignores poisoning: the data is consistent whenever a thread may panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
