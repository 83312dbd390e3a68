//! Memory of a target that holds the images.

use crate::Result;
use crate::remote::{LOOK, RemoteRegion};
use shotline_memory::Mr;
use shotline_verbs::cm::Endpoint;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Checks that this number of images fits, each of them as one operation.
pub fn check_room<P: Endpoint>(memory: &RemoteRegion<P>, images: u64, bytes: u64) -> Result {
    let (has, name) = (memory.info().bytes, &memory.info().name);
    let largest = memory.max_operation();
    if bytes > largest {
        return Err(format!("expected images of at most {largest} bytes for one operation, found {bytes}").into());
    }
    match has / bytes {
        fits if fits >= images => Ok(()),
        0 => {
            Err(format!("the region {name} of the target has {has} bytes: not one image of {bytes} bytes fits").into())
        }
        fits => Err(format!(
            "the region {name} of the target has {has} bytes: {fits} images of {bytes} bytes fit, found {images}; \
             use a larger region, or --count {fits}",
        )
        .into()),
    }
}

/// Writes local memory to an offset of the region, as one operation, and waits for it.
pub fn write<P: Endpoint>(memory: &mut RemoteRegion<P>, local: &Mr, to: u64, bytes: u64, stop: &AtomicBool) -> Result {
    memory.write((local, 0), to, bytes, 0)?;
    let mut done = Vec::new();
    while !stop.load(Relaxed) {
        memory.poll(&mut done)?;
        if !done.is_empty() {
            return Ok(());
        }
        memory.arm()?;
        memory.poll(&mut done)?;
        if done.is_empty() {
            memory.wait(LOOK)?;
            memory.check()?;
        }
    }
    Ok(())
}
