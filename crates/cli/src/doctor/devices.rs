//! Checks of the devices whose memory can be a region.

use super::check::State::{Ok as Good, Warn};
use super::check::{Check, size};
use shotline_memory::{CudaDevice, CudaError, RegionKind};

/// Devices of RDMA in sysfs.
const RDMA_DEVICES: &str = "/sys/class/infiniband";

pub fn checks() -> Vec<Check> {
    RegionKind::all().iter().filter_map(check).collect()
}

/// Counts NVIDIA's GPUs by their device nodes: the driver takes longer to start than a glance may.
pub fn gpus() -> Check {
    let nodes = std::fs::read_dir("/dev").into_iter().flatten().flatten();
    let number = |name: &str| name.strip_prefix("nvidia").and_then(|rest| rest.parse::<u32>().ok());
    let count = nodes.filter(|node| node.file_name().to_str().and_then(number).is_some()).count();
    let found = match count {
        0 => "none".to_owned(),
        count => format!("{count} of NVIDIA (shotline doctor names them)"),
    };
    Check::new("GPUs", Good, found, "optional")
}

/// Returns the check of a kind of region, if the machine may lack what it needs.
fn check(kind: &RegionKind) -> Option<Check> {
    match kind {
        RegionKind::Cuda(_) => Some(cuda(CudaDevice::all(), &rdma_devices())),
        // Of the machine's own memory, or of a device that only its user knows.
        RegionKind::Heap
        | RegionKind::Huge
        | RegionKind::Memfd
        | RegionKind::File(_)
        | RegionKind::Emulated(_)
        | RegionKind::Bar(_)
        | RegionKind::Dmabuf(_) => None,
    }
}

fn cuda(devices: Result<Vec<CudaDevice>, CudaError>, rdma: &[String]) -> Check {
    const NAME: &str = "CUDA devices";
    const EXPECTED: &str = "optional";
    match devices {
        Ok(devices) => {
            let described: Vec<_> = devices.iter().map(|device| describe(device, rdma)).collect();
            let found = if described.is_empty() { "none".to_owned() } else { described.join("; ") };
            let bytes: Vec<_> = devices.iter().map(|device| device.memory_bytes).collect();
            Check::new(NAME, Good, found, EXPECTED).measured("memory_bytes", bytes)
        }
        Err(error @ (CudaError::NoLibrary | CudaError::NotBuilt)) => {
            Check::new(NAME, Good, format!("none: {error}"), EXPECTED)
        }
        Err(error) => Check::new(NAME, Warn, error.to_string(), "devices that answer")
            .fix("nvidia-smi   (and sudo dmesg | grep -i nvrm)"),
    }
}

/// Returns the name and memory of a device, and how RDMA reaches its memory.
fn describe(device: &CudaDevice, rdma: &[String]) -> String {
    let CudaDevice { index, name, memory_bytes, exports } = device;
    let path = match rdma {
        _ if !exports => "staged through host memory, because its driver does not export memory as dma-buf".to_owned(),
        [] => "staged through host memory, because this machine has no RDMA device".to_owned(),
        rdma => format!(
            "peer to peer with {} is possible (dma-buf); copies are staged through host memory",
            rdma.join(", ")
        ),
    };
    format!("{index}: {name}, {}, {path}", size(*memory_bytes))
}

/// Returns the names of RDMA devices in hardware: those in software (rxe, siw) reach memory by the processor.
fn rdma_devices() -> Vec<String> {
    let entries = std::fs::read_dir(RDMA_DEVICES).into_iter().flatten().flatten();
    let entries = entries.filter(|entry| entry.path().join("device").exists());
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(exports: bool) -> CudaDevice {
        CudaDevice { index: 1, name: "NVIDIA X".into(), memory_bytes: 80 << 30, exports }
    }

    #[test]
    fn path_to_a_gpu_has_its_reason() {
        let rdma = ["mlx5_0".to_owned()];
        for (exports, rdma, words) in [
            (true, &rdma[..], "peer to peer with mlx5_0 is possible"),
            (true, &[], "has no RDMA device"),
            (false, &rdma, "does not export memory as dma-buf"),
        ] {
            let check = cuda(Ok(vec![gpu(exports)]), rdma);
            assert_eq!(check.state, Good);
            assert!(check.found.starts_with("1: NVIDIA X, 80 GiB, ") && check.found.contains(words), "{check:?}");
        }
    }

    #[test]
    fn machine_without_gpus_passes_and_a_failed_driver_warns() {
        let missing = cuda(Err(CudaError::NoLibrary), &[]);
        assert!(missing.state == Good && missing.found.starts_with("none: libcuda.so.1"), "{missing:?}");
        assert_eq!(cuda(Ok(Vec::new()), &[]).found, "none");
        let error = CudaError::Call { index: 0, call: "cuInit", error: "CUDA_ERROR_UNKNOWN".into() };
        let failed = cuda(Err(error), &[]);
        assert!(failed.state == Warn && failed.found.contains("CUDA_ERROR_UNKNOWN"), "{failed:?}");
    }
}
