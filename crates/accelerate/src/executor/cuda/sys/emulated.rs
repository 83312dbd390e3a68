//! A device whose kernels are compiled for the processor, in a process of its own (device.cpp).

use shotline_memory::{CudaError, CudaKernels};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

const ALLOCATE: u64 = 0;
const WRITE: u64 = 1;
const READ: u64 = 2;
const LAUNCH: u64 = 3;

/// The program of device.cpp.
pub(super) struct Program {
    folder: tempfile::TempDir,
}

impl Program {
    /// Compiles the program. The error is the reason why it cannot be.
    pub(super) fn compile() -> Result<Self, String> {
        let folder = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/executor/cuda/sys/device.cpp");
        let options = ["-std=c++17", "-O2", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", "-o"];
        let compiled = Command::new("c++").args(options).args([folder.path().join("device"), source]).output();
        let compiled = compiled.map_err(|error| format!("no C++ compiler here (apt install g++): {error}"))?;
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        Ok(Self { folder })
    }

    /// Starts a device with this memory.
    pub(super) fn start(&self, memory: &[u8]) -> Device {
        let mut command = Command::new(self.folder.path().join("device"));
        let process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut device = Device { process: Arc::new(Mutex::new(Process(process))), memory: 0, scratch: (0, 0) };
        device.memory = device.allocate(memory.len());
        device.write(device.memory, memory);
        device
    }
}

/// A process that ends with its last device.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// A running device. Clones are the same device.
#[derive(Clone)]
pub(super) struct Device {
    process: Arc<Mutex<Process>>,
    memory: u64,
    scratch: (u64, usize),
}

impl Device {
    fn send(&self, words: &[u64], bytes: &[u8]) {
        let words = words.iter().flat_map(|word| word.to_ne_bytes());
        let all: Vec<u8> = words.chain(bytes.iter().copied()).collect();
        self.process.lock().unwrap().0.stdin.as_mut().unwrap().write_all(&all).unwrap();
    }

    fn receive(&self, to: &mut [u8]) {
        let mut process = self.process.lock().unwrap();
        process.0.stdout.as_mut().unwrap().read_exact(to).expect("the device runs: if not, its message is above");
    }

    fn allocate(&self, len: usize) -> u64 {
        // Addresses are multiples of 8, as those of a real device.
        self.send(&[ALLOCATE, len.next_multiple_of(8) as u64], &[]);
        let mut address = [0; 8];
        self.receive(&mut address);
        u64::from_ne_bytes(address)
    }

    fn write(&self, address: u64, bytes: &[u8]) {
        self.send(&[WRITE, address, bytes.len() as u64], bytes);
    }

    fn read(&self, address: u64, to: &mut [u8]) {
        self.send(&[READ, address, to.len() as u64], &[]);
        self.receive(to);
    }

    /// Returns the first bytes of the memory.
    pub(super) fn contents(&self, len: usize) -> Vec<u8> {
        let mut contents = vec![0; len];
        self.read(self.memory, &mut contents);
        contents
    }
}

impl CudaKernels for Device {
    fn memory(&self) -> u64 {
        self.memory
    }

    fn scratch(&mut self, len: usize) -> Result<u64, CudaError> {
        // New each time, so that an access beyond its end ends the device.
        self.scratch = (self.allocate(len), len);
        // NaNs: results that depend on what was there before are seen.
        self.write(self.scratch.0, &vec![0xFF; len]);
        Ok(self.scratch.0)
    }

    fn read_scratch(&mut self, offset: usize, to: &mut [u8]) -> Result<(), CudaError> {
        assert!(offset + to.len() <= self.scratch.1);
        self.read(self.scratch.0 + offset as u64, to);
        Ok(())
    }

    unsafe fn launch(&mut self, kernel: usize, grid: u32, block: u32, arguments: &[u64]) -> Result<(), CudaError> {
        let words = [LAUNCH, kernel as u64, grid.into(), block.into()];
        self.send(&[&words, arguments].concat(), &[]);
        Ok(())
    }

    fn finish(&mut self) -> Result<(), CudaError> {
        Ok(())
    }
}

/// A device that fails.
pub(super) struct Failing {
    /// The error of scratch memory.
    pub(super) scratch: Option<CudaError>,
    /// The error of kernels.
    pub(super) kernels: CudaError,
    pub(super) memory: u64,
}

impl CudaKernels for Failing {
    fn memory(&self) -> u64 {
        self.memory
    }
    fn scratch(&mut self, _: usize) -> Result<u64, CudaError> {
        self.scratch.clone().map_or(Ok(0), Err)
    }
    fn read_scratch(&mut self, _: usize, _: &mut [u8]) -> Result<(), CudaError> {
        Err(self.kernels.clone())
    }
    unsafe fn launch(&mut self, _: usize, _: u32, _: u32, _: &[u64]) -> Result<(), CudaError> {
        Ok(())
    }
    fn finish(&mut self) -> Result<(), CudaError> {
        Err(self.kernels.clone())
    }
}
