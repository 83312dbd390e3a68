//! Checks of the disk that a recording is written to.

use super::check::State::{Fail, Ok as Good, Warn};
use super::check::{Check, Requirements, size};
use rustix::fs::{FallocateFlags, OFlags, fallocate, fcntl_getfl, fcntl_setfl, statfs, statvfs};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Recording time in seconds that should fit into the free space.
const MIN_RECORDING_S: f64 = 60.0;
/// Limits of the write-speed trial, in bytes and in time.
const TRIAL_BYTES: u64 = 256 << 20;
const TRIAL_TIME: Duration = Duration::from_secs(1);
const BLOCK: usize = 4 << 20;
/// Alignment of addresses and lengths for direct I/O, in bytes.
const ALIGNMENT: usize = 4096;

pub fn checks(required: &Requirements) -> Vec<Check> {
    let folder = shotline_store::folder(&required.out);
    let file = match tempfile::tempfile_in(folder) {
        Ok(file) => file,
        Err(error) => {
            return vec![
                Check::new("directory", Fail, format!("{}: {error}", folder.display()), "a directory to write to")
                    .fix(format!("mkdir -p {0} && test -w {0}", folder.display())),
            ];
        }
    };
    let direct = fcntl_getfl(&file).and_then(|flags| fcntl_setfl(&file, flags | OFlags::DIRECT)).is_ok();
    vec![space(required, folder), file_system(folder), direct_io(direct), speed(required, &file, folder)]
}

/// Checks the free space.
pub fn space(required: &Requirements, folder: &Path) -> Check {
    let free = statvfs(folder).map_or(0, |stat| stat.f_bavail * stat.f_frsize);
    let seconds = free as f64 / required.bytes_per_s;
    let state = match seconds {
        seconds if seconds < 1.0 => Fail,
        seconds if seconds < MIN_RECORDING_S => Warn,
        _ => Good,
    };
    let found = format!("{} free in {}: {seconds:.0} s of recording", size(free), folder.display());
    Check::new("disk space", state, found, format!("{MIN_RECORDING_S:.0} s or more"))
        .fix("df -h   (and --out on a larger file system)")
        .measured("free_bytes", free)
}

fn file_system(folder: &Path) -> Check {
    // The numbers are listed in statfs(2).
    let (name, memory) = match statfs(folder).map(|stat| stat.f_type as u32) {
        Ok(0xEF53) => ("ext4", false),
        Ok(0x5846_5342) => ("xfs", false),
        Ok(0x9123_683E) => ("btrfs", false),
        Ok(0xF2F5_2010) => ("f2fs", false),
        Ok(0x2FC1_2FC1) => ("zfs", false),
        Ok(0x794C_7630) => ("overlay", false),
        Ok(0x6969) => ("nfs", false),
        Ok(0x0102_1994) => ("tmpfs", true),
        _ => ("of unknown type", false),
    };
    let state = if memory { Warn } else { Good };
    let found = if memory { format!("{name}: memory, not a disk") } else { name.to_owned() };
    Check::new("file system", state, found, "a file system on a disk: ext4 and xfs are tested")
        .fix("findmnt   (and --out on such a file system)")
}

fn direct_io(direct: bool) -> Check {
    let (state, found) =
        if direct { (Good, "O_DIRECT works") } else { (Warn, "no O_DIRECT: writes go through the page cache") };
    Check::new("direct I/O", state, found, "O_DIRECT, as on ext4 and xfs")
        .fix("findmnt   (and --out on another file system)")
}

/// Measures the write speed, for at most one second.
fn speed(required: &Requirements, file: &File, folder: &Path) -> Check {
    const NAME: &str = "write speed";
    let needed = format!("{:.2} GB/s", required.bytes_per_s / 1e9);
    let free = statvfs(folder).map_or(0, |stat| stat.f_bavail * stat.f_frsize);
    let max_bytes = TRIAL_BYTES.min(free / 2);
    // Writing works on file systems that cannot preallocate, too.
    let _ = fallocate(file, FallocateFlags::empty(), 0, max_bytes);
    let buffer = vec![0x5A_u8; BLOCK + ALIGNMENT];
    let begin = buffer.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
    let block = &buffer[begin..begin + BLOCK];
    let start = Instant::now();
    let mut written = 0;
    while written + BLOCK as u64 <= max_bytes && start.elapsed() < TRIAL_TIME {
        if let Err(error) = file.write_all_at(block, written) {
            return Check::new(NAME, Fail, format!("writing failed: {error}"), needed).fix("dmesg | tail");
        }
        written += BLOCK as u64;
    }
    if let Err(error) = file.sync_data() {
        return Check::new(NAME, Fail, format!("syncing failed: {error}"), needed).fix("dmesg | tail");
    }
    let rate = written as f64 / start.elapsed().as_secs_f64();
    let state = if rate < required.bytes_per_s { Warn } else { Good };
    let found = format!("{:.2} GB/s, one write at a time over {}", rate / 1e9, size(written));
    Check::new(NAME, state, found, needed)
        .fix("a faster drive under --out, or a lower rate: shots beyond the drive's write speed are dropped as sink_busy")
        .measured("write_bytes_per_s", rate.round())
}
