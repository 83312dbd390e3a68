//! The conformance suite on every region kind.

use super::dmabuf::udmabuf;
use super::regions::UnmappedDevice;
use shotline_conformance::{Failure, Outcome};
use shotline_memory::conformance::{CHECKS, Fixture, run};
use shotline_memory::{DeviceMemory, Region, RegionKind};
use shotline_testing::print_skip;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Fixture for a kind of the registry.
struct Registered {
    kind: RegionKind,
    folder: tempfile::TempDir,
    created: AtomicUsize,
}

impl Registered {
    fn new(kind: RegionKind) -> Self {
        Self { kind, folder: tempfile::tempdir().unwrap(), created: AtomicUsize::new(0) }
    }
    /// Returns the path of a new file.
    fn path(&self) -> PathBuf {
        self.folder.path().join(self.created.fetch_add(1, Ordering::Relaxed).to_string())
    }
}

fn stringify_error<T, E: std::fmt::Display>(result: Result<T, E>) -> Result<T, Failure> {
    result.map_err(|error| error.to_string())
}

impl Fixture for Registered {
    fn name(&self) -> &str {
        self.kind.name()
    }
    fn make(&self, len: usize) -> Result<Arc<Region>, Failure> {
        let kind = match &self.kind {
            RegionKind::File(_) => RegionKind::File(self.path()),
            // The suite would overwrite the memory of a device: the unit tests have a simulated one.
            RegionKind::Bar(_) => return Err("needs a device whose memory may be overwritten".into()),
            RegionKind::Dmabuf(_) => return udmabuf(&vec![0; len], true),
            kind @ (RegionKind::Heap
            | RegionKind::Huge
            | RegionKind::Memfd
            | RegionKind::Emulated(_)
            | RegionKind::Cuda(_)) => kind.clone(),
        };
        stringify_error(kind.make("conformance", len, true))
    }
    fn make_read_only(&self, bytes: &[u8]) -> Option<Result<Arc<Region>, Failure>> {
        match &self.kind {
            RegionKind::Heap
            | RegionKind::Huge
            | RegionKind::Emulated(_)
            | RegionKind::Bar(_)
            | RegionKind::Cuda(_) => None,
            RegionKind::Dmabuf(_) => Some(udmabuf(bytes, false)),
            RegionKind::Memfd => Some(handed_over(bytes, false)),
            RegionKind::File(_) => {
                let path = self.path();
                std::fs::write(&path, bytes).unwrap();
                Some(stringify_error(RegionKind::File(path).make("conformance", bytes.len(), false)))
            }
        }
    }
}

/// Returns shared memory as another process maps it.
fn handed_over(bytes: &[u8], writable: bool) -> Result<Arc<Region>, Failure> {
    let ours = stringify_error(Region::memfd("conformance", bytes.len()))?;
    ours.write(0, bytes);
    stringify_error(ours.seal(!writable))?;
    stringify_error(Region::from_fd(ours.fd().ok_or("no file descriptor")?.try_clone_to_owned().unwrap(), writable))
}

/// Fixture for regions that a function creates.
struct FromFn(&'static str, fn(usize) -> Result<Arc<Region>, Failure>);

impl Fixture for FromFn {
    fn name(&self) -> &str {
        self.0
    }
    fn make(&self, len: usize) -> Result<Arc<Region>, Failure> {
        self.1(len)
    }
    fn make_read_only(&self, _: &[u8]) -> Option<Result<Arc<Region>, Failure>> {
        None
    }
}

/// Device memory that is mapped into this process.
struct MappedDevice(Box<[AtomicU64]>);

// SAFETY: only the given ranges are accessed; the words live as long as the value and are aligned to 8 bytes.
unsafe impl DeviceMemory for MappedDevice {
    fn len(&self) -> usize {
        8 * self.0.len()
    }
    unsafe fn copy_out(&self, _: usize, _: *mut u8, _: usize) {
        unreachable!("a region that is mapped is copied by this process");
    }
    unsafe fn copy_in(&self, _: usize, _: *const u8, _: usize) {
        unreachable!("a region that is mapped is copied by this process");
    }
    fn host_address(&self) -> Option<NonNull<u8>> {
        NonNull::new(self.0.as_ptr().cast_mut().cast())
    }
}

/// A faulty device that drops the last byte of every copy to it.
struct LossyDevice(UnmappedDevice);

// SAFETY: like `UnmappedDevice`.
unsafe impl DeviceMemory for LossyDevice {
    fn len(&self) -> usize {
        self.0.len()
    }
    unsafe fn copy_out(&self, offset: usize, to: *mut u8, len: usize) {
        // SAFETY: guaranteed by the caller.
        unsafe { self.0.copy_out(offset, to, len) }
    }
    unsafe fn copy_in(&self, offset: usize, from: *const u8, len: usize) {
        // SAFETY: fewer bytes than the caller guarantees.
        unsafe { self.0.copy_in(offset, from, len.saturating_sub(1)) }
    }
}

const OTHER_KINDS: [FromFn; 4] = [
    FromFn("small", |len| stringify_error(Region::heap(len))),
    FromFn("handed over", |len| handed_over(&vec![0; len], true)),
    FromFn("device", |len| Ok(Region::device(Arc::new(UnmappedDevice(Mutex::new(vec![0; len])))))),
    FromFn("mapped device", |len| {
        let words = (0..len.div_ceil(8)).map(|_| AtomicU64::new(0)).collect();
        Ok(Region::device(Arc::new(MappedDevice(words))))
    }),
];

fn conforms(fixture: &dyn Fixture) {
    run(fixture, &std::env::var("CHECK").unwrap_or_default()).expect_conformance();
}

#[test]
fn unprivileged_region_kinds_conform() {
    RegionKind::all()
        .into_iter()
        .filter(|kind| kind.description().privilege.is_none())
        .for_each(|kind| conforms(&Registered::new(kind)));
    OTHER_KINDS.iter().for_each(|fixture| conforms(fixture));
}

#[test]
fn privileged_region_kinds_conform() {
    for kind in RegionKind::all().into_iter().filter(|kind| kind.description().privilege.is_some()) {
        let fixture = Registered::new(kind);
        // The number of bytes that the checks use at once.
        match fixture.make(8 << 20) {
            Ok(_) => conforms(&fixture),
            Err(reason) => print_skip(format_args!("{}: {reason}", fixture.name())),
        }
    }
}

#[test]
fn device_that_loses_bytes_fails_the_suite() {
    let lossy =
        FromFn("lossy", |len| Ok(Region::device(Arc::new(LossyDevice(UnmappedDevice(Mutex::new(vec![0; len])))))));
    let report = run(&lossy, "a write of any offset");
    assert!(matches!(report.outcomes[..], [(_, Outcome::Failed(_))]), "{report:?}");
}

#[test]
fn outcome_has_what_the_kind_lacks() {
    let report = run(&OTHER_KINDS[2], "atomic operations return");
    assert_eq!(report.outcomes, [("atomic operations return the previous value", Outcome::not_run("not mapped"))]);
}

#[test]
fn check_names_are_unique() {
    let names: BTreeSet<_> = CHECKS.iter().map(|check| check.name).collect();
    assert_eq!(names.len(), CHECKS.len());
}
