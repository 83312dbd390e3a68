//! The conformance suite on every kind of region.

use super::regions::Far;
use shotline_conformance::{Failure, Outcome};
use shotline_memory::conformance::{CHECKS, Fixture, run};
use shotline_memory::{DeviceMemory, Region, RegionKind};
use shotline_testing::print_skip;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// A kind of the registry.
struct Registered {
    kind: RegionKind,
    folder: tempfile::TempDir,
    made: AtomicUsize,
}

impl Registered {
    fn new(kind: RegionKind) -> Self {
        Self { kind, folder: tempfile::tempdir().unwrap(), made: AtomicUsize::new(0) }
    }
    /// A file that no other region has.
    fn path(&self) -> PathBuf {
        self.folder.path().join(self.made.fetch_add(1, Ordering::Relaxed).to_string())
    }
}

fn worded<T, E: std::fmt::Display>(made: Result<T, E>) -> Result<T, Failure> {
    made.map_err(|error| error.to_string())
}

impl Fixture for Registered {
    fn name(&self) -> &str {
        self.kind.name()
    }
    fn make(&self, len: usize) -> Result<Arc<Region>, Failure> {
        let kind = match &self.kind {
            RegionKind::File(_) => RegionKind::File(self.path()),
            kind @ (RegionKind::Heap | RegionKind::Huge | RegionKind::Memfd) => kind.clone(),
        };
        worded(kind.make("conformance", len, true))
    }
    fn make_read_only(&self, bytes: &[u8]) -> Option<Result<Arc<Region>, Failure>> {
        match &self.kind {
            RegionKind::Heap | RegionKind::Huge => None,
            RegionKind::Memfd => Some(handed_over(bytes, false)),
            RegionKind::File(_) => {
                let path = self.path();
                std::fs::write(&path, bytes).unwrap();
                Some(worded(RegionKind::File(path).make("conformance", bytes.len(), false)))
            }
        }
    }
}

/// Shared memory as another process gets it.
fn handed_over(bytes: &[u8], writable: bool) -> Result<Arc<Region>, Failure> {
    let ours = worded(Region::memfd("conformance", bytes.len()))?;
    ours.write(0, bytes);
    worded(ours.seal(!writable))?;
    worded(Region::from_fd(ours.fd().ok_or("no file descriptor")?.try_clone_to_owned().unwrap(), writable))
}

/// Kinds that are made by a function of the crate or by a device.
struct Made(&'static str, fn(usize) -> Result<Arc<Region>, Failure>);

impl Fixture for Made {
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

/// Memory of a device that this process sees.
struct Near(Box<[AtomicU64]>);

// SAFETY: only the memory that the pointers name is touched; the words live as long as the value, and begin at multiples
// of 8.
unsafe impl DeviceMemory for Near {
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

/// A device that forgets the last byte of what it is given.
struct Forgetful(Far);

// SAFETY: as for `Far`.
unsafe impl DeviceMemory for Forgetful {
    fn len(&self) -> usize {
        self.0.len()
    }
    unsafe fn copy_out(&self, offset: usize, to: *mut u8, len: usize) {
        // SAFETY: as the caller promises.
        unsafe { self.0.copy_out(offset, to, len) }
    }
    unsafe fn copy_in(&self, offset: usize, from: *const u8, len: usize) {
        // SAFETY: fewer bytes than the caller promises.
        unsafe { self.0.copy_in(offset, from, len.saturating_sub(1)) }
    }
}

const MADE: [Made; 4] = [
    Made("small", |len| worded(Region::heap(len))),
    Made("handed over", |len| handed_over(&vec![0; len], true)),
    Made("device", |len| Ok(Region::device(Arc::new(Far(Mutex::new(vec![0; len])))))),
    Made("mapped device", |len| {
        let words = (0..len.div_ceil(8)).map(|_| AtomicU64::new(0)).collect();
        Ok(Region::device(Arc::new(Near(words))))
    }),
];

fn conforms(fixture: &dyn Fixture) {
    run(fixture, &std::env::var("CHECK").unwrap_or_default()).expect_conformance();
}

#[test]
fn every_kind_of_region_that_needs_nothing_conforms() {
    RegionKind::all()
        .into_iter()
        .filter(|kind| kind.description().privilege.is_none())
        .for_each(|kind| conforms(&Registered::new(kind)));
    MADE.iter().for_each(|made| conforms(made));
}

#[test]
fn kinds_of_regions_that_need_a_privilege_conform() {
    for kind in RegionKind::all().into_iter().filter(|kind| kind.description().privilege.is_some()) {
        let fixture = Registered::new(kind);
        // As many bytes as the checks use at once.
        match fixture.make(8 << 20) {
            Ok(_) => conforms(&fixture),
            Err(reason) => print_skip(format_args!("{}: {reason}", fixture.name())),
        }
    }
}

#[test]
fn a_device_that_loses_bytes_does_not_conform() {
    let forgetful = Made("forgetful", |len| Ok(Region::device(Arc::new(Forgetful(Far(Mutex::new(vec![0; len])))))));
    let report = run(&forgetful, "bytes of any offset");
    assert!(matches!(report.outcomes[..], [(_, Outcome::Failed(_))]), "{report:?}");
}

#[test]
fn what_a_kind_lacks_is_said_in_place_of_the_check() {
    let report = run(&MADE[2], "atomic operations bring back");
    assert_eq!(report.outcomes, [("atomic operations bring back what was there", Outcome::cannot("not mapped"))]);
}

#[test]
fn no_two_checks_have_one_name() {
    let names: BTreeSet<_> = CHECKS.iter().map(|check| check.name).collect();
    assert_eq!(names.len(), CHECKS.len());
}
