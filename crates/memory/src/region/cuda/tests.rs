//! CUDA memory with a simulated copy engine, which copies when its caller waits.

use super::staging::{BUFFER, BUFFERS, Transfer};
use super::*;
use crate::conformance::{self, Fixture};
use shotline_conformance::Failure;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// State that a test shares with an engine.
#[derive(Default)]
struct Observed {
    started: AtomicUsize,
    /// Largest number of copies that were in progress at once.
    concurrent: AtomicUsize,
    /// Number of the copy that fails, from 1; 0: none.
    fails_at: AtomicUsize,
}

struct Engine {
    memory: Vec<u8>,
    staging: [Box<[u8]>; BUFFERS],
    pending: [Option<(Transfer, usize, usize)>; BUFFERS],
    observed: Arc<Observed>,
}

// SAFETY: the buffers have the length and live as long as the value, and only copies that were started use them.
unsafe impl CopyEngine for Engine {
    fn staging(&self, buffer: usize) -> NonNull<u8> {
        assert!(self.pending[buffer].is_none(), "buffer {buffer} is in use");
        NonNull::new(self.staging[buffer].as_ptr().cast_mut()).unwrap()
    }
    fn start(&mut self, transfer: Transfer, buffer: usize, offset: usize, len: usize) -> Result<(), CudaError> {
        assert!(self.pending[buffer].is_none() && len <= BUFFER && offset + len <= self.memory.len());
        let started = self.observed.started.fetch_add(1, Relaxed) + 1;
        if started == self.observed.fails_at.load(Relaxed) {
            return Err(CudaError::Call { index: 0, call: "a copy", error: "CUDA_ERROR_ECC_UNCORRECTABLE".into() });
        }
        self.pending[buffer] = Some((transfer, offset, len));
        self.observed.concurrent.fetch_max(self.pending.iter().flatten().count(), Relaxed);
        Ok(())
    }
    fn wait(&mut self, buffer: usize) -> Result<(), CudaError> {
        let (transfer, offset, len) = self.pending[buffer].take().expect("a wait for a copy that was started");
        let (memory, staging) = (&mut self.memory[offset..][..len], &mut self.staging[buffer][..len]);
        match transfer {
            Transfer::ToDevice => memory.copy_from_slice(staging),
            Transfer::FromDevice => staging.copy_from_slice(memory),
        }
        Ok(())
    }
}

fn region(len: usize) -> (Arc<Region>, Arc<Observed>) {
    let observed = Arc::new(Observed::default());
    let staging = std::array::from_fn(|_| vec![0xEE; BUFFER].into());
    let engine = Engine { memory: vec![0; len], staging, pending: [None; BUFFERS], observed: Arc::clone(&observed) };
    let parts = Parts {
        engine: Box::new(engine),
        export: Box::new(|| Err(CudaError::NoExport(0))),
        compile: Box::new(|_, _| Err(CudaError::NoCompiler)),
    };
    let memory = CudaMemory::new(len, parts);
    (Region::device(Arc::new(memory)), observed)
}

struct Simulated;

impl Fixture for Simulated {
    fn name(&self) -> &str {
        "cuda"
    }
    fn make(&self, len: usize) -> Result<Arc<Region>, Failure> {
        Ok(region(len).0)
    }
    fn make_read_only(&self, _: &[u8]) -> Option<Result<Arc<Region>, Failure>> {
        None
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u8) ^ (at >> 8) as u8 ^ (at >> 16) as u8).collect()
}

#[test]
fn staged_regions_conform() {
    conformance::run(&Simulated, "").expect_conformance();
}

#[test]
fn staging_buffers_alternate_for_every_number_of_pieces() {
    for len in [1, BUFFER - 1, BUFFER, BUFFER + 1, 2 * BUFFER, 3 * BUFFER + 5, 4 * BUFFER] {
        let ((region, observed), bytes) = (region(len + 10), pattern(len));
        region.write(7, &bytes);
        let pieces = len.div_ceil(BUFFER);
        assert_eq!(observed.started.load(Relaxed), pieces);
        let mut back = vec![0; len + 10];
        region.read(0, &mut back);
        assert!(back[7..][..len] == bytes && back[..7] == [0; 7] && back[7 + len..] == [0; 3], "{len} bytes");
        assert_eq!(observed.concurrent.load(Relaxed), (len + 10).div_ceil(BUFFER).min(BUFFERS));
    }
}

#[test]
fn failed_copy_is_kept_and_stops_the_engine() {
    for fails_at in 1..=4 {
        let (region, observed) = region(4 * BUFFER);
        observed.fails_at.store(fails_at, Relaxed);
        assert!(region.failure().is_none());
        region.write(0, &pattern(4 * BUFFER));
        let failure = || region.failure().unwrap().to_string();
        assert!(failure().contains("a copy returned CUDA_ERROR_ECC_UNCORRECTABLE"), "{}", failure());
        let mut bytes = [5; 10];
        region.read(0, &mut bytes);
        region.write(0, &bytes);
        assert_eq!((bytes, observed.started.load(Relaxed)), ([0; 10], fails_at), "zeros instead of unknown bytes");
    }
}

#[test]
fn export_of_unsupported_memory_is_refused() {
    let (region, _) = region(4096);
    let error = region.export().unwrap().unwrap_err().to_string();
    assert!(error.contains("CUDA device 0 does not export memory"), "{error}");
    assert!(Region::heap(4096).unwrap().export().is_none());
}

#[test]
fn only_cuda_memory_has_kernels() {
    let (region, _) = region(4096);
    assert_eq!(region.cuda_kernels("", &[]).unwrap().err(), Some(CudaError::NoCompiler));
    assert!(Region::heap(4096).unwrap().cuda_kernels("", &[]).is_none());
}

#[test]
fn missing_driver_or_device_is_reported_with_an_alternative() {
    let error = match CudaMemory::allocate(u32::MAX, 4096) {
        Err(MemoryError::Cuda(error)) => error,
        other => panic!("{other:?}"),
    };
    assert!(error.to_string().contains("memory=emulated") || matches!(error, CudaError::Call { .. }), "{error}");
    assert!(matches!(CudaMemory::allocate(0, 0), Err(MemoryError::Empty)));
}

#[test]
fn messages_have_what_is_needed_and_what_is_free() {
    let error = CudaError::OutOfMemory { index: 1, needed: 200 << 30, free: 3 << 29 }.to_string();
    assert!(error.starts_with("200.0 GiB of CUDA device 1 are needed, and 1.5 GiB are free"), "{error}");
    let error = CudaError::NoDevice { index: 4, count: 2 }.to_string();
    assert!(error.starts_with("no CUDA device 4: this machine has 2"), "{error}");
}
