//! BARs of a simulated sysfs, in which files have the memory.

use super::*;
use crate::conformance::{self, Fixture};
use shotline_conformance::Failure;
use std::fs::{create_dir_all, write};
use std::os::unix::fs::{FileExt, symlink};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

const MEMORY: &str = "0x00000000f0000000 0x00000000f000ffff 0x000000000014220c\n";
const NONE: &str = "0x0000000000000000 0x0000000000000000 0x0000000000000000\n";
const PORTS: &str = "0x000000000000c000 0x000000000000c01f 0x0000000000040101\n";
const SMALL: &str = "0x00000000f0010100 0x00000000f00101ff 0x0000000000040200\n";

/// A folder like `/sys` with one device: BAR 0 has 64 KiB of prefetchable memory, BAR 2 ports, BAR 4 256 bytes.
struct Machine {
    folder: tempfile::TempDir,
}

fn spec(bar: u8) -> BarSpec {
    BarSpec { bar, ..BarSpec::default() }
}

impl Machine {
    fn new() -> Self {
        let machine = Self { folder: tempfile::tempdir().unwrap() };
        create_dir_all(machine.path("")).unwrap();
        machine.write("resource", [MEMORY, NONE, PORTS, NONE, SMALL, NONE, NONE].concat().as_bytes());
        machine.write("config", &[0xF4, 0x1A, 0x42, 0x10, 0x06, 0x00, 0x10, 0x00]);
        machine.write("resource0", &[0; 1 << 16]);
        machine.write("resource4", &[0; 4096]);
        machine
    }
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("bus/pci/devices/0000:00:00.0").join(name)
    }
    fn write(&self, name: &str, bytes: &[u8]) {
        write(self.path(name), bytes).unwrap();
    }
    /// Changes the bytes of a file that may be mapped.
    fn set(&self, name: &str, offset: u64, bytes: &[u8]) {
        std::fs::OpenOptions::new().write(true).open(self.path(name)).unwrap().write_all_at(bytes, offset).unwrap();
    }
    fn roots(&self) -> Roots {
        Roots { sys: self.folder.path().into(), dev: self.folder.path().into() }
    }
    fn open(&self, spec: &BarSpec, len: usize, writable: bool) -> Result<Arc<Region>, MemoryError> {
        // A check between copies would find a failure before the copy that is tested.
        Region::bar_in(&self.roots(), spec, len, writable, Duration::from_secs(3600))
    }
    fn error(&self, bar: u8, len: usize) -> String {
        self.open(&spec(bar), len, true).unwrap_err().to_string()
    }
}

/// Fixture of which every region is the BAR of a machine of its own.
struct Simulated {
    access: BarAccess,
    machines: std::sync::Mutex<Vec<Machine>>,
    made: AtomicUsize,
}

impl Fixture for Simulated {
    fn name(&self) -> &str {
        "bar"
    }
    fn make(&self, len: usize) -> Result<Arc<Region>, Failure> {
        let machine = Machine::new();
        self.made.fetch_add(1, Ordering::Relaxed);
        let spec = BarSpec { access: self.access, ..BarSpec::default() };
        let region = machine.open(&spec, len, true).map_err(|error| error.to_string());
        self.machines.lock().unwrap().push(machine);
        region
    }
    fn make_read_only(&self, bytes: &[u8]) -> Option<Result<Arc<Region>, Failure>> {
        let machine = Machine::new();
        machine.set("resource0", 0, bytes);
        let region = machine.open(&BarSpec::default(), bytes.len(), false).map_err(|error| error.to_string());
        self.machines.lock().unwrap().push(machine);
        Some(region)
    }
}

#[test]
fn bar_regions_conform() {
    for access in [BarAccess::Four, BarAccess::Eight] {
        let fixture = Simulated { access, machines: Default::default(), made: AtomicUsize::new(0) };
        conformance::run(&fixture, "").expect_conformance();
        assert!(fixture.made.load(Ordering::Relaxed) > 5);
    }
}

#[test]
fn write_combining_is_used_for_prefetchable_memory_only() {
    let machine = Machine::new();
    for name in ["resource0_wc", "resource4_wc"] {
        machine.write(name, &[0; 1 << 16]);
    }
    machine.open(&spec(0), 8, true).unwrap().write(0, b"combined");
    machine.open(&spec(4), 8, true).unwrap().write(0, b"separate");
    let begin = |name: &str, at: usize| std::fs::read(machine.path(name)).unwrap()[at..at + 8].to_vec();
    assert_eq!((begin("resource0_wc", 0), begin("resource0", 0)), (b"combined".to_vec(), vec![0; 8]));
    // A BAR smaller than a page begins inside the mapped page.
    assert_eq!((begin("resource4_wc", 0x100), begin("resource4", 0x100)), (vec![0; 8], b"separate".to_vec()));
}

#[test]
fn request_beyond_the_bar_is_refused_with_both_lengths() {
    let machine = Machine::new();
    assert_eq!(machine.open(&spec(0), 1 << 16, true).unwrap().len(), 1 << 16);
    let error = machine.error(0, (1 << 16) + 1);
    assert!(error.contains("has 65536 bytes, 65544 bytes are requested"), "{error}");
    let error = machine.error(4, 4096);
    assert!(error.contains("has 256 bytes, 4096 bytes"), "{error}");
}

#[test]
fn other_than_a_memory_bar_is_refused_with_the_memory_bars() {
    let machine = Machine::new();
    for (bar, words) in [(1, "BAR 1 of 0000:00:00.0 is absent"), (2, "of I/O ports")] {
        let error = machine.error(bar, 8);
        assert!(error.contains(words) && error.contains("0 (64.0 KiB), 4 (256 B)"), "{error}");
    }
    machine.write("resource", NONE.repeat(7).as_bytes());
    assert!(machine.error(0, 8).contains("no memory BAR"));
    machine.write("resource", b"0x0 something\n");
    assert!(machine.error(0, 8).contains("found 0x0 something"), "{}", machine.error(0, 8));
    assert!(machine.error(3, 8).contains("found no line"));
}

#[test]
fn missing_device_is_reported_with_its_path() {
    let machine = Machine::new();
    let address = PciAddress { bus: 3, ..PciAddress::default() };
    let error = machine.open(&BarSpec { address, ..BarSpec::default() }, 8, true).unwrap_err().to_string();
    assert!(error.contains("no PCI device 0000:03:00.0") && error.contains("lspci -D"), "{error}");
    std::fs::remove_file(machine.path("resource0")).unwrap();
    assert!(machine.error(0, 8).contains("resource0: No such file"), "{}", machine.error(0, 8));
}

#[test]
fn device_that_does_not_answer_is_refused() {
    let machine = Machine::new();
    machine.set("config", 4, &[0x04]);
    let error = machine.error(0, 8);
    assert!(error.contains("disabled") && error.contains("devices/0000:00:00.0/enable"), "{error}");
    machine.write("config", &[0xFF; 64]);
    assert!(machine.error(0, 8).contains("0xffff"), "{}", machine.error(0, 8));
    machine.write("config", b"");
    assert!(machine.error(0, 8).contains("does not answer"));
}

#[test]
fn lost_device_is_detected_by_reads_of_ones() {
    let machine = Machine::new();
    let region = machine.open(&spec(0), 4096, true).unwrap();
    // Ones that are data are no failure.
    region.write(0, &[0xFF; 64]);
    let mut bytes = [0; 64];
    region.read(0, &mut bytes);
    assert!(bytes == [0xFF; 64] && region.failure().is_none());
    machine.set("config", 0, &[0xFF; 8]);
    region.read(1, &mut bytes);
    assert!(region.failure().is_none(), "byte 64 is zero, so the device answers");
    region.read(0, &mut bytes[..3]);
    let failure = || region.failure().unwrap().to_string();
    assert!(failure().contains("0000:00:00.0 does not answer"), "{}", failure());
    machine.set("config", 0, &[0xF4, 0x1A, 0x42, 0x10, 0x06, 0x00, 0x10, 0x00]);
    region.read(64, &mut bytes);
    assert!(failure().contains("does not answer"), "a failure is permanent");
}

#[test]
fn partial_write_to_a_lost_device_is_detected() {
    let machine = Machine::new();
    let region = machine.open(&spec(0), 4096, true).unwrap();
    machine.set("resource0", 0, &[0xFF; 64]);
    region.write(5, b"x");
    assert!(region.failure().is_none());
    machine.set("config", 4, &[0]);
    region.write(9, b"x");
    assert!(region.failure().unwrap().to_string().contains("disabled"));
}

#[test]
fn device_that_is_only_written_is_checked_too() {
    let removed: fn(&Machine) = |machine| machine.write("config", b"");
    let disabled: fn(&Machine) = |machine| machine.set("config", 4, &[0x04]);
    for (lose, words) in [(removed, "does not answer"), (disabled, "disabled")] {
        let machine = Machine::new();
        let region = Region::bar_in(&machine.roots(), &spec(0), 4096, true, Duration::ZERO).unwrap();
        region.write(0, &[1; 64]);
        assert!(region.failure().is_none());
        lose(&machine);
        region.write(0, &[2; 64]);
        let failure = region.failure().unwrap().to_string();
        assert!(failure.contains(words), "{failure}");
    }
}

#[test]
fn device_of_vfio_is_opened_through_its_group() {
    let machine = Machine::new();
    symlink("../../../drivers/vfio-pci", machine.path("driver")).unwrap();
    assert!(machine.error(0, 8).contains("iommu_group"), "{}", machine.error(0, 8));
    symlink("../../../kernel/iommu_groups/7", machine.path("iommu_group")).unwrap();
    create_dir_all(machine.folder.path().join("vfio")).unwrap();
    write(machine.folder.path().join("vfio/vfio"), "").unwrap();
    assert!(machine.error(0, 8).contains("vfio/7: No such file"), "{}", machine.error(0, 8));
}

#[test]
fn virtual_function_without_a_vendor_id_is_mapped() {
    let machine = Machine::new();
    machine.write("config", &[0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0x10, 0]);
    assert!(machine.error(0, 4096).contains("does not answer"));
    symlink(machine.path(""), machine.path("physfn")).unwrap();
    let region = machine.open(&spec(0), 4096, true).unwrap();
    region.write(0, &[u8::MAX; 64]);
    region.read(0, &mut [0; 64]);
    assert!(region.failure().is_none(), "ones of a virtual function are data");
}

#[test]
fn bar_without_an_address_is_refused() {
    let machine = Machine::new();
    for line in [
        "0x0000000000000000 0x000000000000ffff 0x0000000020040200\n",
        "0x00000000f0000000 0x00000000f000ffff 0x0000000030040200\n",
    ] {
        machine.write("resource", [line, NONE, PORTS, NONE, SMALL, NONE, NONE].concat().as_bytes());
        let error = machine.error(0, 4096);
        assert!(error.contains("BAR 0 of 0000:00:00.0 is without an address"), "{error}");
    }
}
