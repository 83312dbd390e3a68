//! Contents, length and access rights of every region kind.

use rustix::fs::{MemfdFlags, SealFlags};
use shotline_memory::{
    Access, Addressing, DeviceMemory, MemoryError, Pages, Protection, Region, RegisterError, Registrar,
};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

#[test]
fn copies_move_bytes_between_kinds_of_regions() {
    let (host, shared) = (Region::host(4096).unwrap(), Region::memfd("test", 4096).unwrap());
    host.write(10, b"shot");
    shared.copy_from(100, &host, 10, 4);
    let mut out = [0; 6];
    shared.read(99, &mut out);
    assert_eq!(&out, b"\0shot\0");
    shared.zero(100, 2);
    shared.read(99, &mut out);
    assert_eq!(&out, b"\0\0\0ot\0");
}

#[test]
fn populate_keeps_the_contents() {
    let region = Region::host_untouched(70 << 20).unwrap();
    region.write(40 << 20, b"shot");
    region.populate(&AtomicBool::new(false)).unwrap();
    let mut out = [0; 6];
    region.read((40 << 20) - 1, &mut out);
    assert_eq!(&out, b"\0shot\0");
}

#[test]
fn regions_larger_than_memory_are_refused() {
    let (requested, len) = ("1024.0 TiB", 1 << 50);
    for made in [Region::host_untouched(len), Region::memfd("test", len), Region::heap(len)] {
        let words = made.unwrap_err().to_string();
        assert!([requested, "are available (", "request less"].iter().all(|part| words.contains(part)), "{words}");
    }
}

#[test]
#[should_panic(expected = "outside a region")]
fn an_offset_that_wraps_is_refused() {
    Region::heap(4096).unwrap().zero(usize::MAX, 2);
}

#[test]
fn lengths_are_rounded_to_pages_or_huge_pages() {
    let page = rustix::param::page_size();
    assert_eq!((Region::heap(1).unwrap().len(), Region::memfd("t", 1).unwrap().len()), (page, page));
    assert_eq!(Region::host(1).unwrap().len(), 2 << 20);
    assert!(matches!(Region::heap(0), Err(MemoryError::Empty)));
    assert!(matches!(Region::heap(usize::MAX - 5), Err(MemoryError::Map { .. })));
}

#[test]
fn huge_pages_are_used_or_the_error_has_the_command() {
    match Region::huge(1 << 46) {
        Err(MemoryError::NoHugePages { needed, nr_hugepages, .. }) => {
            assert!(needed == 1 << 25 && nr_hugepages >= needed)
        }
        other => panic!("{other:?}"),
    }
    match Region::huge(2 << 20) {
        Ok(region) => assert_eq!(region.pages(), Pages::Huge),
        Err(error) => assert!(error.to_string().contains("sysctl -w vm.nr_hugepages="), "{error}"),
    }
}

#[test]
fn shared_memory_has_the_same_bytes_and_a_fixed_length() {
    let ours = Region::memfd("test", 8192).unwrap();
    let fd = ours.fd().unwrap().try_clone_to_owned().unwrap();
    assert!(rustix::fs::ftruncate(&fd, 4096).is_err() && rustix::fs::ftruncate(&fd, 16384).is_err());
    let theirs = Region::from_fd(fd, true).unwrap();
    theirs.write(5000, b"there");
    let mut out = [0; 5];
    ours.read(5000, &mut out);
    assert_eq!((&out, theirs.len()), (b"there", 8192));
}

#[test]
fn read_only_sealed_memory_cannot_be_mapped_writable() {
    let ours = Region::memfd("test", 4096).unwrap();
    ours.seal(true).unwrap();
    let fd = || ours.fd().unwrap().try_clone_to_owned().unwrap();
    assert!(matches!(Region::from_fd(fd(), true), Err(MemoryError::Map { .. })));
    assert!(rustix::io::pwrite(fd(), b"x", 0).is_err());
    let theirs = Region::from_fd(fd(), false).unwrap();
    ours.write(0, b"still ours");
    let mut out = [0; 10];
    theirs.read(0, &mut out);
    assert_eq!(&out, b"still ours");
    assert!(!theirs.is_writable());
    // The kernel enforces the seal: the mapping cannot be made writable later.
    // SAFETY: the range is the mapping of `theirs`; more access rights do not change its contents.
    let more = unsafe { rustix::mm::mprotect(theirs.address(0, 4096).cast(), 4096, rustix::mm::MprotectFlags::WRITE) };
    assert_eq!(more, Err(rustix::io::Errno::ACCESS));
    let mut protection = Protection::new(Registrar::new().finish());
    let pd = protection.allocate();
    let writing = protection.register(pd, &theirs, 0, 4096, Access::LOCAL_WRITE, Addressing::ZeroBased);
    assert_eq!(writing, Err(RegisterError::ReadOnly));
}

#[test]
fn memory_from_fd_is_not_populated() {
    let ours = Region::memfd("test", 4 << 20).unwrap();
    for writable in [false, true] {
        let theirs = Region::from_fd(ours.fd().unwrap().try_clone_to_owned().unwrap(), writable).unwrap();
        let begin = format!("{:x}-", theirs.address(0, 1).addr());
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mapping = &smaps[smaps.find(&format!("\n{begin}")).unwrap()..];
        let resident = mapping.lines().find_map(|line| line.strip_prefix("Rss:")).unwrap();
        assert_eq!(resident.trim(), "0 kB", "writable: {writable}");
    }
}

#[test]
fn memory_that_can_shrink_is_refused() {
    let fd = rustix::fs::memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&fd, 4096).unwrap();
    assert!(matches!(Region::from_fd(fd, true), Err(MemoryError::NotSealed)));
    let file = tempfile::tempfile().unwrap();
    assert!(matches!(Region::from_fd(file.into(), true), Err(MemoryError::NotSealed)));
}

#[test]
fn shared_memory_of_reserved_huge_pages_is_refused() {
    let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
    let fd = rustix::fs::memfd_create("test", flags).unwrap();
    rustix::fs::ftruncate(&fd, 2 << 20).unwrap();
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK).unwrap();
    let error = Region::from_fd(fd, true).unwrap_err();
    assert!(error.to_string().contains("reserved huge pages"), "{error}");
}

#[test]
fn file_is_created_extended_kept_and_locked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memory");
    let region = Region::file(&path, 10_000, true).unwrap();
    assert_eq!((region.len(), region.pages()), (10_000, Pages::File));
    region.write(9_990, b"0123456789");
    assert!(matches!(Region::file(&path, 100, true), Err(MemoryError::InUse(_))));
    assert!(matches!(Region::file(&path, 100, false), Err(MemoryError::InUse(_))));
    drop(region);
    assert_eq!(&std::fs::read(&path).unwrap()[9_990..], b"0123456789");
    let readers = [Region::file(&path, 10_000, false).unwrap(), Region::file(&path, 5, false).unwrap()];
    assert!(matches!(Region::file(&path, 10_001, false), Err(MemoryError::TooShort { found: 10_000, needed: 10_001 })));
    drop(readers);
    Region::file(&path, 20_000, true).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 20_000);
}

#[test]
fn non_regular_file_is_refused_without_blocking() {
    let folder = tempfile::tempdir().unwrap();
    assert!(Region::file(folder.path(), 4096, true).is_err());
    assert!(matches!(Region::file(folder.path(), 4096, false), Err(MemoryError::NotAFile(_))));
    assert!(matches!(Region::file("/dev/zero".as_ref(), 4096, true), Err(MemoryError::NotAFile(_))));
    let pipe = folder.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    assert!(matches!(Region::file(&pipe, 4096, true), Err(MemoryError::NotAFile(_))));
}

#[test]
fn atomic_operations_of_two_mappings_are_all_counted() {
    let ours = Region::memfd("test", 4096).unwrap();
    let theirs = Region::from_fd(ours.fd().unwrap().try_clone_to_owned().unwrap(), true).unwrap();
    std::thread::scope(|scope| {
        for region in [&ours, &theirs] {
            scope.spawn(move || (0..100_000).for_each(|_| _ = region.fetch_add(8, 3)));
        }
    });
    assert_eq!(ours.fetch_add(8, u64::MAX), 600_000);
    assert_eq!(theirs.compare_swap(8, 1, 7), 599_999);
    assert_eq!(theirs.compare_swap(8, 599_999, 7), 599_999);
    assert_eq!(ours.fetch_add(8, 0), 7);
}

/// Device memory that is not mapped into this process.
pub struct UnmappedDevice(pub Mutex<Vec<u8>>);

// SAFETY: only the given ranges are accessed; there is no host address.
unsafe impl DeviceMemory for UnmappedDevice {
    fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
    unsafe fn copy_out(&self, offset: usize, to: *mut u8, len: usize) {
        // SAFETY: guaranteed by the caller.
        unsafe { std::ptr::copy_nonoverlapping(self.0.lock().unwrap()[offset..][..len].as_ptr(), to, len) }
    }
    unsafe fn copy_in(&self, offset: usize, from: *const u8, len: usize) {
        // SAFETY: guaranteed by the caller.
        unsafe { std::ptr::copy_nonoverlapping(from, self.0.lock().unwrap()[offset..][..len].as_mut_ptr(), len) }
    }
}

#[test]
fn unmapped_device_memory_is_copied_by_the_device() {
    let far = || Region::device(Arc::new(UnmappedDevice(Mutex::new(vec![1; 20_000]))));
    let (a, b, host) = (far(), far(), Region::heap(20_000).unwrap());
    assert!(!a.is_mapped());
    (0..20_000).step_by(2).for_each(|at| host.write(at, &[at as u8, (at >> 8) as u8]));
    a.copy_from(3, &host, 0, 15_000);
    b.copy_from(5, &a, 3, 15_000);
    b.zero(9_000, 6_000);
    let (mut out, mut expected) = (vec![0; 20_000], vec![1; 20_000]);
    host.read(0, &mut expected[5..15_005]);
    expected[9_000..15_000].fill(0);
    b.read(0, &mut out);
    assert_eq!(out, expected);
    let mut protection = Protection::new(Registrar::new().finish());
    let pd = protection.allocate();
    let atomic = Access::LOCAL_WRITE | Access::REMOTE_ATOMIC;
    let refused = protection.register(pd, &a, 0, 100, atomic, Addressing::ZeroBased);
    assert_eq!(refused, Err(RegisterError::NotMapped));
}

#[test]
fn concurrent_writes_to_one_word_are_both_kept() {
    let region = Region::heap(4096).unwrap();
    let start = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        for (offset, len) in [(0, 3), (3, 5)] {
            let (region, start) = (&region, &start);
            scope.spawn(move || {
                start.wait();
                for round in 0..300_000_u32 {
                    let mine = vec![round as u8; len];
                    region.write(offset, &mine);
                    let mut found = vec![0; len];
                    region.read(offset, &mut found);
                    assert_eq!(found, mine, "bytes from {offset} in round {round}");
                }
            });
        }
    });
}

#[test]
fn copy_racing_with_a_write_tears_no_word() {
    const BYTES: usize = 1 << 16;
    let region = Region::heap(2 * BYTES).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..2000 {
                // Unaligned on the private side.
                let mine = vec![(round % 2 * 255) as u8; BYTES + 1];
                region.write(0, &mine[1..]);
            }
            done.store(true, std::sync::atomic::Ordering::Release);
        });
        let mut found = vec![0; BYTES];
        while !done.load(std::sync::atomic::Ordering::Acquire) {
            region.read(0, &mut found);
            let whole = |word: &[u8]| word.iter().all(|byte| *byte == word[0]);
            assert!(found.chunks_exact(8).all(whole), "a word of two writes");
            region.copy_from(BYTES, &region, 0, BYTES);
        }
    });
}
