//! Conformance suite of region kinds: named checks that are generic over a [`Fixture`].
//!
//! [`run`] runs every check of [`CHECKS`] on new regions of the fixture. A check declares what it needs of a region; if
//! a kind lacks it, the check is not run and the report has the reason. Panics of a check are failures, except those
//! that it expects.

use crate::{Access, AccessError, Addressing, Pages, Protection, Region, RegisterError, Registrar};
use shotline_conformance::{Failure, Outcome, Report};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A source of regions of one kind.
pub trait Fixture {
    /// Returns the name of the kind in reports.
    fn name(&self) -> &str;
    /// Creates a new writable region of at least `len` bytes.
    ///
    /// # Errors
    /// If the machine cannot provide one.
    fn make(&self, len: usize) -> Result<Arc<Region>, Failure>;
    /// Creates a read-only region that begins with these bytes, or returns `None` if the kind has no read-only regions.
    fn make_read_only(&self, bytes: &[u8]) -> Option<Result<Arc<Region>, Failure>>;
}

/// Requirement of a check on the region kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// No requirement.
    Nothing,
    /// Memory that is mapped into this process ([`Region::is_mapped`]).
    Mapped,
    /// A mapping that the region owns.
    OwnMapping,
    /// A file descriptor ([`Region::fd`]).
    Descriptor,
    /// Read-only regions.
    ReadOnly,
}

impl Needs {
    /// Returns what the kind lacks, if it does not meet the requirement.
    fn lacking(self, region: &Region, fixture: &dyn Fixture) -> Option<&'static str> {
        match self {
            Self::Nothing => None,
            Self::Mapped => (!region.is_mapped()).then_some("not mapped"),
            Self::OwnMapping => {
                (!region.is_mapped() || region.pages() == Pages::Device).then_some("no mapping of its own")
            }
            Self::Descriptor => region.fd().is_none().then_some("no file descriptor"),
            Self::ReadOnly => fixture.make_read_only(b"x").is_none().then_some("no read-only regions"),
        }
    }
}

/// A requirement on region kinds, and the function that checks it.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// The requirement, as a sentence.
    pub name: &'static str,
    /// What the check needs of the kind.
    pub needs: Needs,
    /// Function that checks the requirement.
    pub run: fn(&dyn Fixture) -> Result<(), Failure>,
}

/// All checks.
pub const CHECKS: &[Check] = &[
    check("a write of any offset and length is read back and changes no other bytes", Needs::Nothing, write),
    check("zeroing changes the requested bytes and no others", Needs::Nothing, zero),
    check(
        "a copy between two regions of the kind changes the requested bytes and no others",
        Needs::Nothing,
        copy_same,
    ),
    check("a copy to or from ordinary memory changes the requested bytes and no others", Needs::Nothing, copy_other),
    check("the ranges of a copy within a region may overlap", Needs::Mapped, overlap),
    check("atomic operations return the previous value", Needs::Mapped, atomic),
    check("atomic operations of two threads all take effect", Needs::Mapped, atomic_threads),
    check("a misaligned atomic operation is refused", Needs::Mapped, misaligned),
    check("accesses outside the region are refused", Needs::Nothing, bounds),
    check("addresses are returned only for bytes inside the region", Needs::Mapped, address),
    check("a read-only region can be read and not written", Needs::ReadOnly, read_only),
    check("a registration grants the requested rights and no others", Needs::Nothing, rights),
    check("written bytes are visible through the file descriptor", Needs::Descriptor, descriptor),
    check("memory is unmapped when its last reference is dropped", Needs::OwnMapping, drop_frees),
];

const fn check(name: &'static str, needs: Needs, run: fn(&dyn Fixture) -> Result<(), Failure>) -> Check {
    Check { name, needs, run }
}

/// Runs every check whose name contains `filter` on new regions of a fixture.
///
/// # Panics
/// If the fixture cannot create a region.
pub fn run(fixture: &dyn Fixture, filter: &str) -> Report {
    let probe = fixture.make(1).unwrap_or_else(|why| panic!("{}: cannot make a region: {why}", fixture.name()));
    let outcome = |check: &Check| match check.needs.lacking(&probe, fixture) {
        Some(why) => Outcome::not_run(why),
        None => Outcome::of(
            catch_unwind(AssertUnwindSafe(|| (check.run)(fixture))).unwrap_or_else(|_| Err("it panicked".into())),
        ),
    };
    let chosen = CHECKS.iter().filter(|check| check.name.contains(filter));
    Report { member: fixture.name().into(), outcomes: chosen.map(|check| (check.name, outcome(check))).collect() }
}

/// Length of the regions under test, in bytes.
const LEN: usize = 3 * 4096;

/// Returns offsets and lengths of every class: within a word, across words, whole words, long runs, across pages.
fn ranges() -> impl Iterator<Item = (usize, usize)> {
    let offsets = [0, 1, 4, 7, 8, 9, 63, 4088, 4095, 4096];
    let lengths = [0, 1, 3, 7, 8, 9, 64, 511, 512, 521, 4096, 4103];
    offsets.into_iter().flat_map(move |offset| lengths.into_iter().map(move |len| (offset, len)))
}

/// Returns bytes that differ from their neighbours and from those of another seed.
fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ seed).collect()
}

fn contents(region: &Region) -> Vec<u8> {
    let mut bytes = vec![0; LEN];
    region.read(0, &mut bytes);
    bytes
}

fn filled(fixture: &dyn Fixture, seed: u8) -> Result<(Arc<Region>, Vec<u8>), Failure> {
    let (region, bytes) = (fixture.make(LEN)?, pattern(LEN, seed));
    if region.len() < LEN {
        return Err(format!("{} bytes, {LEN} were requested", region.len()));
    }
    region.write(0, &bytes);
    Ok((region, bytes))
}

fn compare(region: &Region, expected: &[u8], what: impl Fn() -> String) -> Result<(), Failure> {
    let found = contents(region);
    let differs = found.iter().zip(expected).position(|(found, expected)| found != expected);
    differs.map_or(Ok(()), |at| Err(format!("{}: byte {at} is {}, not {}", what(), found[at], expected[at])))
}

/// Returns a failure unless the call panics.
fn refused(what: &str, call: impl FnOnce()) -> Result<(), Failure> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(()) => Err(format!("{what} was not refused")),
        Err(_) => Ok(()),
    }
}

fn write(fixture: &dyn Fixture) -> Result<(), Failure> {
    let (region, mut expected) = filled(fixture, 0)?;
    for (round, (offset, len)) in ranges().enumerate() {
        let bytes = pattern(len, round as u8 + 1);
        region.write(offset, &bytes);
        expected[offset..offset + len].copy_from_slice(&bytes);
        compare(&region, &expected, || format!("after a write of {len} bytes at {offset}"))?;
        let mut part = vec![0; len];
        region.read(offset, &mut part);
        if part != bytes {
            return Err(format!("a read of {len} bytes at {offset} returns others"));
        }
    }
    Ok(())
}

fn zero(fixture: &dyn Fixture) -> Result<(), Failure> {
    let (region, original) = filled(fixture, 1)?;
    for (offset, len) in ranges() {
        region.write(0, &original);
        region.zero(offset, len);
        let mut expected = original.clone();
        expected[offset..offset + len].fill(0);
        compare(&region, &expected, || format!("after {len} zeros at {offset}"))?;
    }
    Ok(())
}

fn copy_same(fixture: &dyn Fixture) -> Result<(), Failure> {
    let ((from, source), (to, target)) = (filled(fixture, 2)?, filled(fixture, 3)?);
    copies(&from, &source, &to, target)
}

fn copy_other(fixture: &dyn Fixture) -> Result<(), Failure> {
    let (region, bytes) = filled(fixture, 4)?;
    let ordinary = Region::heap(LEN).map_err(|error| error.to_string())?;
    let zeros = vec![0; LEN];
    copies(&region, &bytes, &ordinary, zeros)?;
    let source = contents(&ordinary);
    copies(&ordinary, &source, &region, bytes)
}

fn copies(from: &Region, source: &[u8], to: &Region, mut expected: Vec<u8>) -> Result<(), Failure> {
    for (offset, len) in ranges() {
        for at in [offset, (offset + 5) % 4099] {
            to.copy_from(at, from, offset, len);
            expected[at..at + len].copy_from_slice(&source[offset..offset + len]);
            compare(to, &expected, || format!("after a copy of {len} bytes from {offset} to {at}"))?;
        }
    }
    compare(from, source, || "the source".into())
}

fn overlap(fixture: &dyn Fixture) -> Result<(), Failure> {
    let (region, mut expected) = filled(fixture, 5)?;
    for (from, to) in [(0, 8), (8, 0), (0, 3), (5, 0), (16, 2000), (2000, 16), (7, 7)] {
        for len in [1, 9, 100, 4096, 4196] {
            region.copy_from(to, &region, from, len);
            expected.copy_within(from..from + len, to);
            compare(&region, &expected, || format!("after a copy of {len} bytes from {from} to {to}"))?;
        }
    }
    Ok(())
}

fn atomic(fixture: &dyn Fixture) -> Result<(), Failure> {
    let (region, mut expected) = filled(fixture, 6)?;
    region.write(64, &5_u64.to_ne_bytes());
    let found = [
        region.fetch_add(64, 7),
        region.fetch_add(64, u64::MAX),
        region.compare_swap(64, 12, 1),
        region.compare_swap(64, 11, 9),
        region.fetch_add(64, 0),
    ];
    if found != [5, 12, 11, 11, 9] {
        return Err(format!("{found:?} were returned"));
    }
    expected[64..72].copy_from_slice(&9_u64.to_ne_bytes());
    compare(&region, &expected, || "after atomic operations".into())
}

fn atomic_threads(fixture: &dyn Fixture) -> Result<(), Failure> {
    const EACH: u64 = 20_000;
    let region = fixture.make(LEN)?;
    region.write(8, &0_u64.to_ne_bytes());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..EACH).for_each(|_| _ = region.fetch_add(8, 3)));
        }
    });
    match region.fetch_add(8, 0) {
        sum if sum == 6 * EACH => Ok(()),
        sum => Err(format!("the sum is {sum}, not {}", 6 * EACH)),
    }
}

fn misaligned(fixture: &dyn Fixture) -> Result<(), Failure> {
    let (region, expected) = filled(fixture, 7)?;
    for offset in [1, 4, 7, 4095] {
        refused(&format!("fetch and add at {offset}"), || _ = region.fetch_add(offset, 1))?;
        refused(&format!("compare and swap at {offset}"), || _ = region.compare_swap(offset, 0, 1))?;
    }
    compare(&region, &expected, || "after refused calls".into())
}

/// Returns offsets and lengths that are not inside a region.
fn outside(region: &Region) -> [(usize, usize); 5] {
    let len = region.len();
    [(len, 1), (len - 1, 2), (len + 1, 0), (usize::MAX, 2), (usize::MAX - 7, 8)]
}

fn bounds(fixture: &dyn Fixture) -> Result<(), Failure> {
    let (region, expected) = filled(fixture, 8)?;
    let other = fixture.make(2 * region.len())?;
    for (offset, len) in outside(&region) {
        let at = |what: &str| format!("{what} of {len} bytes at {offset} of {}", region.len());
        refused(&at("a read"), || region.read(offset, &mut vec![0; len]))?;
        refused(&at("a write"), || region.write(offset, &vec![0; len]))?;
        refused(&at("zeros"), || region.zero(offset, len))?;
        refused(&at("a copy to"), || region.copy_from(offset, &other, 0, len))?;
        refused(&at("a copy from"), || other.copy_from(0, &region, offset, len))?;
    }
    region.read(region.len(), &mut []);
    compare(&region, &expected, || "after refused calls".into())
}

fn address(fixture: &dyn Fixture) -> Result<(), Failure> {
    let region = fixture.make(LEN)?;
    let begin = region.address(0, region.len()).addr();
    if !begin.is_multiple_of(8) || region.address(region.len(), 0).addr() != begin + region.len() {
        return Err(format!("it begins at {begin:#x}: misaligned, or not {} bytes long", region.len()));
    }
    outside(&region).into_iter().try_for_each(|(offset, len)| {
        refused(&format!("the address of {len} bytes at {offset}"), || _ = region.address(offset, len))
    })
}

fn read_only(fixture: &dyn Fixture) -> Result<(), Failure> {
    let bytes = pattern(LEN, 9);
    let region = fixture.make_read_only(&bytes).ok_or("no read-only region")??;
    if region.is_writable() {
        return Err("is_writable returns true".into());
    }
    refused("a write", || region.write(0, b"x"))?;
    refused("zeros", || region.zero(0, 1))?;
    refused("a copy", || region.copy_from(0, &region, 8, 1))?;
    refused("fetch and add", || _ = region.fetch_add(0, 1))?;
    compare(&region, &bytes, || "after refused calls".into())?;
    let mut protection = Protection::new(Registrar::new().finish());
    let pd = protection.allocate();
    match protection.register(pd, &region, 0, 8, Access::LOCAL_WRITE, Addressing::ZeroBased) {
        Err(RegisterError::ReadOnly) => Ok(()),
        other => Err(format!("registering it for writing: {other:?}")),
    }
}

fn rights(fixture: &dyn Fixture) -> Result<(), Failure> {
    let region = fixture.make(LEN)?;
    let mut protection = Protection::new(Registrar::new().finish());
    let pd = protection.allocate();
    let all = [Access::REMOTE_READ, Access::REMOTE_WRITE, Access::REMOTE_ATOMIC];
    for access in [Access::NONE, Access::REMOTE_READ, Access::REMOTE_WRITE | Access::LOCAL_WRITE, Access::ALL] {
        let len = LEN as u64 - 16;
        let mr = match protection.register(pd, &region, 8, len, access, Addressing::ZeroBased) {
            Err(RegisterError::NotMapped) if !region.is_mapped() && access.allows(Access::REMOTE_ATOMIC) => continue,
            registered => registered.map_err(|error| format!("registering it for {access:?}: {error}"))?,
        };
        for needed in all {
            let found = protection.remote_for(pd, 1, 0, mr.rkey, mr.address, 8, needed);
            match (access.allows(needed), found) {
                (true, Ok(grant)) if grant.sge.offset == 8 && grant.sge.len == 8 => {}
                (false, Err(AccessError::Rights)) => {}
                (_, found) => return Err(format!("{needed:?} access to memory registered for {access:?}: {found:?}")),
            }
        }
        let end = protection.remote_for(pd, 1, 0, mr.rkey, mr.address + len - 7, 8, Access::REMOTE_READ);
        if !matches!(end, Err(AccessError::Bounds | AccessError::Rights)) {
            return Err(format!("bytes after the registration: {end:?}"));
        }
    }
    Ok(())
}

fn descriptor(fixture: &dyn Fixture) -> Result<(), Failure> {
    let (region, bytes) = filled(fixture, 10)?;
    let fd = region.fd().ok_or("no file descriptor")?;
    let mut found = vec![0; LEN];
    match rustix::io::pread(fd, &mut found, 0) {
        Ok(LEN) if found == bytes => Ok(()),
        other => Err(format!("a read of the file descriptor: {other:?}, or other bytes")),
    }
}

/// Number of attempts of [`drop_frees`]: another thread may map something else at the freed address.
const ATTEMPTS: usize = 10;

fn drop_frees(fixture: &dyn Fixture) -> Result<(), Failure> {
    let mut address = 0;
    for _ in 0..ATTEMPTS {
        let (region, bytes) = filled(fixture, 11)?;
        let holder = Arc::clone(&region);
        address = region.address(0, 1).addr();
        drop(region);
        compare(&holder, &bytes, || "after one of two references was dropped".into())?;
        drop(holder);
        if !is_mapped(address)? {
            return Ok(());
        }
    }
    Err(format!("{address:#x} is still mapped after its last reference was dropped"))
}

/// Returns `true` if an address is mapped in this process.
fn is_mapped(address: usize) -> Result<bool, Failure> {
    let maps = std::fs::read_to_string("/proc/self/maps").map_err(|error| format!("/proc/self/maps: {error}"))?;
    let covers = |line: &str| {
        let (begin, end) = line.split_whitespace().next()?.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        Some((number(begin)?..number(end)?).contains(&address))
    };
    Ok(maps.lines().any(|line| covers(line) == Some(true)))
}
