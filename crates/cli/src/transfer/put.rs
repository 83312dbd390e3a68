//! `shotline put`: writes a region of a target.

use super::pipeline::{Direction, Pipeline, is_readable};
use super::report::Transferred;
use super::{Bar, Common, is_standard, room, too_long};
use crate::output::print_report;
use crate::remote::RemoteRegion;
use crate::values::Size;
use crate::{Result, signals};
use shotline_memory::Access;
use shotline_verbs::cm::message::RegionInfo;
use shotline_verbs::cm::{Client, Endpoint};
use shotline_verbs::connect::{ConnectError, Target, WithEndpoints};
use std::fs::File;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

/// Bytes that are read from the input at once.
const READ_BYTES: u64 = 64 << 10;

/// Arguments of `shotline put`.
#[derive(clap::Args)]
#[command(after_help = "\
Writes by RDMA WRITE, several at once; no application takes part at the target. All bytes are in the target's memory
when the command ends without an error. Other bytes of the region keep their values.

Examples:
  shotline put images images.bin --to 127.0.0.1:47920 --token TOKEN
  shotline put images --offset 1M --to 192.168.1.5:47920 --token-file t < part.bin
  printf 'hello' | shotline put log --json --transport shm --to ./a.sock --token-file t
  shotline get --to 127.0.0.1:47920 --token TOKEN                   the regions, their sizes and rights")]
pub struct Args {
    /// Name of the region
    name: String,
    /// File to read, or - for standard input
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,
    /// Offset of the first byte in the region
    #[arg(long, value_name = "BYTES", default_value = "0")]
    offset: Size,
    /// Number of bytes, which the file must have [default: up to the end of the file]
    #[arg(long, value_name = "BYTES")]
    length: Option<Size>,
    /// Print one JSON object: what was written
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    common: Common,
}

/// Writes a region.
pub fn run(args: &Args) -> Result {
    let target = args.common.target()?;
    let stop = signals::stop_flag()?;
    let put = Put { args, target, input: Input::open(args)?, stop: &stop };
    args.common.transport.with_endpoints(args.common.bind, put)
}

/// Where the bytes come from.
struct Input {
    file: File,
    name: String,
    /// Bytes up to its end, if it is a file.
    bytes: Option<u64>,
}

impl Input {
    fn open(args: &Args) -> Result<Self> {
        let (file, name) = match is_standard(&args.file) {
            true => (File::from(std::io::stdin().as_fd().try_clone_to_owned()?), "standard input".to_owned()),
            false => {
                let name = args.file.display().to_string();
                (File::open(&args.file).map_err(|error| format!("cannot read {name}: {error}"))?, name)
            }
        };
        let bytes = match file.metadata() {
            Ok(metadata) if metadata.is_file() => {
                let before = std::io::Seek::stream_position(&mut &file)?;
                Some(metadata.len().saturating_sub(before))
            }
            _ => None,
        };
        Ok(Self { file, name, bytes })
    }
}

/// A region to write.
struct Put<'a> {
    args: &'a Args,
    target: Target,
    input: Input,
    stop: &'a AtomicBool,
}

impl WithEndpoints for Put<'_> {
    type Output = Result;
    fn with<P: Endpoint + 'static>(
        mut self,
        connect: impl Fn(&Target) -> std::result::Result<(P, Client), ConnectError>,
    ) -> Result {
        let (provider, client) = connect(&self.target)?;
        let remote = RemoteRegion::connect(provider, client, Some(&self.args.name), Access::REMOTE_WRITE)?;
        let info = remote.info().clone();
        let room = self.check(&info)?;
        let mut pipeline = Pipeline::new(remote)?;
        let begun = Instant::now();
        let mut written = 0;
        let operations = self
            .write(&mut pipeline, &info, room, &mut written)
            .map_err(|error| format!("after {written} bytes to region {}: {error}", self.args.name))?;
        let elapsed = begun.elapsed();
        pipeline.end()?;
        let command = ("put", self.args.common.transport.name());
        let place = (self.args.name.as_str(), self.args.offset);
        print_report(self.args.json, &Transferred::new(command, place, (written, operations), elapsed))
    }
}

impl Put<'_> {
    /// Checks, before anything is written, what is known of the lengths. Returns the bytes that the region has.
    fn check(&self, info: &RegionInfo) -> Result<u64> {
        let room = room(info, self.args.offset)?;
        match (self.args.length, self.input.bytes) {
            (Some(length), _) if length.0 > room => {
                Err(too_long(info, self.args.offset, &format!("--length {}", length.0)).into())
            }
            (Some(length), Some(bytes)) if bytes < length.0 => Err(self.short(length.0, bytes).into()),
            (None, Some(bytes)) if bytes > room => Err(too_long(info, self.args.offset, &bytes.to_string()).into()),
            _ => Ok(room),
        }
    }

    fn short(&self, length: u64, found: u64) -> String {
        format!("expected {length} bytes in {}, found {found}: use a smaller --length", self.input.name)
    }

    /// Writes the input to the region. Returns the number of operations.
    fn write<P: Endpoint>(
        &mut self,
        pipeline: &mut Pipeline<P>,
        info: &RegionInfo,
        room: u64,
        written: &mut u64,
    ) -> Result<u64> {
        let limit = self.args.length.map_or(room, |length| length.0);
        let mut bar = Bar::new(self.input.bytes.map_or(limit, |bytes| bytes.min(limit)));
        let (mut total, mut filled, mut operations) = (0, 0, 0);
        let mut bytes = vec![0; READ_BYTES as usize];
        let mut is_over = self.args.length.is_some_and(|length| length.0 == 0);
        while !is_over || filled > 0 || !pipeline.is_empty() {
            if self.stop.load(Relaxed) {
                return Err("interrupted".into());
            }
            let mut any = false;
            // A read from a pipe without bytes would block, and packets be left waiting.
            let wants = !is_over && pipeline.has_free_slot();
            if wants && is_readable(self.input.file.as_fd()) {
                // Without a length, one more byte than fits shows that the input is too long.
                let left = limit - total + u64::from(self.args.length.is_none());
                let most = left.min(pipeline.slot_bytes() - filled).min(READ_BYTES) as usize;
                let count = self.read(&mut bytes[..most])?;
                if count as u64 > limit - total {
                    return Err(too_long(info, self.args.offset, "more").into());
                }
                pipeline.fill(filled, &bytes[..count]);
                (total, filled, any) = (total + count as u64, filled + count as u64, true);
                is_over = count == 0 || self.args.length.is_some() && total == limit;
            }
            if filled > 0 && (is_over || filled == pipeline.slot_bytes()) {
                pipeline.post(Direction::Write, self.args.offset.0 + total - filled, filled)?;
                (filled, operations, any) = (0, operations + 1, true);
            }
            any |= pipeline.poll()?;
            while let Some(count) = pipeline.take() {
                *written += count;
                bar.update(*written);
                any = true;
            }
            if !any {
                pipeline.sleep(wants.then(|| self.input.file.as_fd()))?;
            }
        }
        match self.args.length {
            Some(length) if length.0 > total => Err(self.short(length.0, total).into()),
            _ => Ok(operations),
        }
    }

    /// Reads from the input; 0 at its end.
    fn read(&mut self, bytes: &mut [u8]) -> Result<usize> {
        loop {
            match self.input.file.read(bytes) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                other => return other.map_err(|error| format!("cannot read {}: {error}", self.input.name).into()),
            }
        }
    }
}
