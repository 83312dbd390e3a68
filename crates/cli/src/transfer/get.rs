//! `shotline get`: reads a region of a target.

use super::pipeline::{Direction, Pipeline};
use super::report::Transferred;
use super::{Bar, Common, is_standard, list, room, too_long};
use crate::out_file::OutFile;
use crate::output::print_report;
use crate::remote::RemoteRegion;
use crate::values::Size;
use crate::{Result, signals};
use shotline_memory::Access;
use shotline_verbs::cm::{Client, Endpoint};
use shotline_verbs::connect::{ConnectError, Target, WithEndpoints};
use std::fs::File;
use std::io::{IsTerminal as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

/// Arguments of `shotline get`.
#[derive(clap::Args)]
#[command(after_help = "\
Reads by RDMA READ, several at once; no application takes part at the target. A file gets its name when it is complete.
Without a NAME, lists the regions of the target.

Examples:
  shotline get --to 127.0.0.1:47920 --token TOKEN                   the regions, their sizes and rights
  shotline get images images.bin --to 127.0.0.1:47920 --token TOKEN
  shotline get counters --length 64 --to 192.168.1.5:47920 --token-file t | xxd
  shotline get images --offset 1M --length 4K part.bin --transport shm --to ./a.sock --token-file t
  shotline get --to 127.0.0.1:47920 --token-file t --json | jq -r '.regions[].name'")]
pub struct Args {
    /// Name of the region; without it, the regions are listed
    name: Option<String>,
    /// File to write, or - for standard output [default: standard output, if it is not a terminal]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Offset of the first byte in the region
    #[arg(long, value_name = "BYTES", default_value = "0", requires = "name")]
    offset: Size,
    /// Number of bytes [default: up to the end of the region]
    #[arg(long, value_name = "BYTES", requires = "name")]
    length: Option<Size>,
    /// Replace the file if it exists
    #[arg(long, requires = "file")]
    force: bool,
    /// Print one JSON object: the regions, or what was read; on standard error if the bytes are on standard output
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    common: Common,
}

/// Reads a region, or lists all of them.
pub fn run(args: &Args) -> Result {
    let target = args.common.target()?;
    let Some(name) = &args.name else { return list::print(args.json, &target) };
    let stop = signals::stop_flag()?;
    let out = Output::open(args)?;
    let get = Get { args, name, target, out, stop: &stop };
    args.common.transport.with_endpoints(args.common.bind, get)
}

/// Where the bytes go.
enum Output {
    Standard(File),
    File(OutFile, PathBuf),
}

impl Output {
    fn open(args: &Args) -> Result<Self> {
        match &args.file {
            Some(path) if !is_standard(path) => Ok(Self::File(OutFile::create(path, args.force)?, path.clone())),
            None if std::io::stdout().is_terminal() => {
                Err("expected a FILE or a pipe for the bytes, found a terminal: name a file, or - to print them".into())
            }
            // Unbuffered, so that each error is noticed.
            _ => Ok(Self::Standard(File::from(std::io::stdout().as_fd().try_clone_to_owned()?))),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result {
        let (written, name) = match self {
            Self::Standard(file) => (file.write_all(bytes), "standard output".to_owned()),
            Self::File(file, path) => (file.file().write_all(bytes), path.display().to_string()),
        };
        Ok(written.map_err(|error| format!("cannot write to {name}: {error}; it is not complete"))?)
    }
}

/// A region to read.
struct Get<'a> {
    args: &'a Args,
    name: &'a str,
    target: Target,
    out: Output,
    stop: &'a AtomicBool,
}

impl WithEndpoints for Get<'_> {
    type Output = Result;
    fn with<P: Endpoint + 'static>(
        mut self,
        connect: impl Fn(&Target) -> std::result::Result<(P, Client), ConnectError>,
    ) -> Result {
        let (provider, client) = connect(&self.target)?;
        let remote = RemoteRegion::connect(provider, client, Some(self.name), Access::REMOTE_READ)?;
        let room = room(remote.info(), self.args.offset)?;
        let length = self.args.length.map_or(room, |length| length.0);
        if length > room {
            return Err(too_long(remote.info(), self.args.offset, &format!("--length {length}")).into());
        }
        let mut pipeline = Pipeline::new(remote)?;
        let begun = Instant::now();
        let mut read = 0;
        let operations = self
            .read(&mut pipeline, length, &mut read)
            .map_err(|error| format!("after {read} of {length} bytes of region {}: {error}", self.name))?;
        let elapsed = begun.elapsed();
        pipeline.end()?;
        let command = ("get", self.args.common.transport.name());
        let report = Transferred::new(command, (self.name, self.args.offset), (length, operations), elapsed);
        match self.out {
            Output::Standard(_) if self.args.json => errln!("{}", serde_json::to_string(&report)?),
            Output::Standard(_) => {}
            Output::File(file, _) => {
                file.publish()?;
                print_report(self.args.json, &report)?;
            }
        }
        Ok(())
    }
}

impl Get<'_> {
    /// Reads the bytes and writes them to the output, in order. Returns the number of operations.
    fn read<P: Endpoint>(&mut self, pipeline: &mut Pipeline<P>, length: u64, read: &mut u64) -> Result<u64> {
        let (mut requested, mut operations, mut buffer) = (0, 0, Vec::new());
        let mut bar = Bar::new(length);
        while *read < length {
            if self.stop.load(Relaxed) {
                return Err("interrupted".into());
            }
            while requested < length && pipeline.has_free_slot() {
                let bytes = (length - requested).min(pipeline.slot_bytes());
                pipeline.post(Direction::Read, self.args.offset.0 + requested, bytes)?;
                requested += bytes;
                operations += 1;
            }
            let any = pipeline.poll()?;
            match pipeline.take_bytes(&mut buffer) {
                Some(bytes) => {
                    self.out.write(&buffer)?;
                    *read += bytes;
                    bar.update(*read);
                }
                None if !any => pipeline.sleep(None)?,
                None => {}
            }
        }
        Ok(operations)
    }
}
