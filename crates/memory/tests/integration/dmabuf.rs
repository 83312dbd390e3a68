//! Regions of dma-bufs, which the kernel makes of ordinary memory if it has /dev/udmabuf.

use rustix::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use rustix::fs::MemfdFlags;
use shotline_conformance::Failure;
use shotline_memory::{DmabufError, MemoryError, Region};
use shotline_testing::or_skip;
use std::fs::File;
use std::sync::Arc;

/// Creates a dma-buf that begins with these bytes.
fn exported(bytes: &[u8]) -> Result<OwnedFd, Failure> {
    File::open("/dev/udmabuf").map_err(|error| format!("/dev/udmabuf: {error} (modprobe udmabuf, as root)"))?;
    let memory = Region::memfd("test", bytes.len()).unwrap();
    memory.write(0, bytes);
    memory.to_dmabuf(0, bytes.len()).map_err(|error| error.to_string())
}

/// Creates a region of a new dma-buf that begins with these bytes.
pub fn udmabuf(bytes: &[u8], writable: bool) -> Result<Arc<Region>, Failure> {
    let fd = exported(bytes)?;
    Region::from_dmabuf(fd, bytes.len(), writable).map_err(|error| error.to_string())
}

#[test]
fn dmabuf_is_used_after_its_descriptor_was_closed() {
    let fd = or_skip!(exported(&[7; 8192]));
    let region = Region::dmabuf(fd.as_raw_fd(), 5000, true).unwrap();
    drop(fd);
    let mut bytes = [0; 4];
    region.read(4096, &mut bytes);
    assert_eq!((bytes, region.len(), region.is_mapped()), ([7; 4], 5000, false));
    assert!(region.failure().is_none());
}

#[test]
fn request_beyond_the_dmabuf_is_refused() {
    let fd = or_skip!(exported(&[7; 8192]));
    match Region::dmabuf(fd.as_raw_fd(), 8193, true) {
        Err(MemoryError::Dmabuf(DmabufError::TooLarge { found: 8192, requested: 8200 })) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn descriptor_that_is_no_dmabuf_is_refused() {
    let file = tempfile::tempfile().unwrap();
    let memfd = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&memfd, 4096).unwrap();
    for fd in [file.as_raw_fd(), memfd.as_raw_fd()] {
        let error = Region::dmabuf(fd, 4096, true).unwrap_err().to_string();
        assert!(error.contains(&format!("file descriptor {fd} is ")) && error.contains("dma-buf"), "{error}");
    }
}

#[test]
fn descriptor_that_is_not_open_is_refused() {
    let closed = {
        let file = tempfile::tempfile().unwrap();
        // A number that no other thread of the tests gets.
        let high = rustix::io::fcntl_dupfd_cloexec(&file, 900).unwrap().into_raw_fd();
        // SAFETY: the descriptor was created above and is not used after this.
        drop(unsafe { OwnedFd::from_raw_fd(high) });
        high
    };
    for fd in [closed, -1, i32::MAX] {
        let error = Region::dmabuf(fd, 4096, true).unwrap_err();
        assert!(matches!(error, MemoryError::Dmabuf(DmabufError::NotOpen(found)) if found == fd), "{error}");
    }
}
