//! Synchronous NVMe passthrough commands: Identify, and the few small reads and writes next to the stream of shots.
//! Numbers are those of the NVM Express base and NVM command set specifications, and of linux/nvme_ioctl.h.

use rustix::fd::AsRawFd;
use rustix::io::Errno;
use std::fs::File;
use std::io;

/// `NVME_IOCTL_ID`, `NVME_IOCTL_ADMIN_CMD`, `NVME_IOCTL_IO_CMD` of linux/nvme_ioctl.h.
const IOCTL_ID: u64 = 0x4E40;
const IOCTL_ADMIN: u64 = 0xC048_4E41;
const IOCTL_IO: u64 = 0xC048_4E43;
/// Opcodes of the NVM command set.
const FLUSH: u8 = 0x00;
pub(super) const WRITE: u8 = 0x01;
const READ: u8 = 0x02;
/// Identify, an admin command; its structures have 4096 bytes.
const IDENTIFY: u8 = 0x06;
const IDENTIFY_BYTES: usize = 4096;
const CNS_NAMESPACE: u32 = 0;
const CNS_CONTROLLER: u32 = 1;
/// Minimum memory page size of a controller, the unit of its maximum transfer size (MDTS). No command reports it
/// (`CAP.MPSMIN`), and Linux supports no other value.
const PAGE: u32 = 4096;
/// Maximum transfer size in bytes for a drive that reports no limit.
const DEFAULT_MAX_TRANSFER: u32 = 1 << 20;

/// `struct nvme_passthru_cmd`; `struct nvme_uring_cmd` differs only in the name of its last field.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Command {
    pub opcode: u8,
    pub flags: u8,
    pub reserved: u16,
    pub namespace: u32,
    pub cdw2: u32,
    pub cdw3: u32,
    pub metadata: u64,
    pub address: u64,
    pub metadata_len: u32,
    pub len: u32,
    pub cdw10: u32,
    pub cdw11: u32,
    pub cdw12: u32,
    pub cdw13: u32,
    pub cdw14: u32,
    pub cdw15: u32,
    pub timeout_ms: u32,
    pub result: u32,
}

const _: () = assert!(size_of::<Command>() == 72);

impl Command {
    /// Builds a read or write of `len` bytes at byte offset `at`, with blocks of `1 << shift` bytes.
    pub fn transfer(opcode: u8, namespace: u32, (at, len): (u64, u32), shift: u32) -> Self {
        let block = at >> shift;
        Self {
            opcode,
            namespace,
            len,
            cdw10: block as u32,
            cdw11: (block >> 32) as u32,
            cdw12: (len >> shift) - 1,
            ..Self::default()
        }
    }
    /// Returns the bytes of the command for the kernel.
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: the struct is plain numbers without padding (its size, asserted above, is the sum of its fields'),
        // and the slice borrows it.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), size_of::<Self>()) }
    }
    /// Builds a flush.
    pub fn flush(namespace: u32) -> Self {
        Self { opcode: FLUSH, namespace, ..Self::default() }
    }
}

/// Identity of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Serial number; the device name if it has none.
    pub serial: String,
    pub model: String,
    /// Size of a logical block in bytes, which is written atomically.
    pub block: u32,
    /// Capacity in bytes.
    pub bytes: u64,
    /// Maximum size of one command's data in bytes.
    pub max_transfer: u32,
    /// The device has a volatile write cache.
    pub volatile: bool,
}

/// Character device of a namespace.
#[derive(Debug)]
pub struct Namespace {
    file: File,
    id: u32,
    shift: u32,
    identity: Identity,
}

impl Namespace {
    /// Identifies the controller and the namespace. Fails if blocks are formatted with metadata.
    pub fn open(file: File) -> io::Result<Self> {
        // SAFETY: the call takes no argument, and accesses no memory of this program; the descriptor is open.
        let id = unsafe { libc::ioctl(file.as_raw_fd(), IOCTL_ID as _) };
        let id = u32::try_from(id).map_err(|_| io::Error::last_os_error())?;
        let controller = identify(&file, 0, CNS_CONTROLLER)?;
        let (shift, bytes) = format(&identify(&file, id, CNS_NAMESPACE)?)?;
        let identity = controller_identity(&controller, shift, bytes);
        Ok(Self { file, id, shift, identity })
    }

    pub fn file(&self) -> &File {
        &self.file
    }
    pub fn identity(&self) -> &Identity {
        &self.identity
    }
    /// Returns the namespace id, and the base-2 logarithm of the block size.
    pub(super) fn shape(&self) -> (u32, u32) {
        (self.id, self.shift)
    }

    /// Reads whole blocks with one command.
    pub fn read(&self, at: u64, buf: &mut [u8]) -> Result<(), Errno> {
        let mut command = self.transfer(READ, at, buf.len())?;
        command.address = buf.as_mut_ptr() as u64;
        // SAFETY: the drive fills the `len` bytes of `buf`, which is exclusively borrowed until the call returns.
        status(unsafe { pass(&self.file, IOCTL_IO, &mut command) })
    }
    /// Writes whole blocks with one command.
    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<(), Errno> {
        let mut command = self.transfer(WRITE, at, bytes.len())?;
        command.address = bytes.as_ptr() as u64;
        // SAFETY: the drive only reads the `len` bytes of `bytes`, which is borrowed until the call returns.
        status(unsafe { pass(&self.file, IOCTL_IO, &mut command) })
    }
    /// Makes written data durable.
    pub fn flush(&self) -> Result<(), Errno> {
        // SAFETY: the command names no memory.
        status(unsafe { pass(&self.file, IOCTL_IO, &mut Command::flush(self.id)) })
    }

    fn transfer(&self, opcode: u8, at: u64, len: usize) -> Result<Command, Errno> {
        let block = 1 << self.shift;
        let whole = at.is_multiple_of(block) && (len as u64).is_multiple_of(block) && len > 0;
        let len = u32::try_from(len).ok().filter(|_| whole).ok_or(Errno::INVAL)?;
        Ok(Command::transfer(opcode, self.id, (at, len), self.shift))
    }
}

/// Issues a command and waits for it. Returns 0, the status of the drive, or a negated `errno`.
///
/// # Safety
/// The command's address and length name memory that may be read, or filled if the command reads, until this returns.
unsafe fn pass(file: &File, request: u64, command: &mut Command) -> i32 {
    // SAFETY: the argument is a live exclusive struct of the type that the request is defined with; the caller
    // guarantees the memory that it names.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), request as _, std::ptr::from_mut(command)) };
    if result < 0 { -io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO) } else { result }
}

/// Converts the result of a command: negative values are errors of the kernel, positive ones the status of the drive.
pub(super) fn status(result: i32) -> Result<(), Errno> {
    match result {
        0 => Ok(()),
        ..0 => Err(Errno::from_raw_os_error(-result)),
        // Status code type and status code; other bits indicate whether a retry may succeed (figures 93 to 97 of the
        // base specification 2.0).
        _ => Err(match result & 0x7FF {
            0x02 => Errno::INVAL,
            0x20 => Errno::ROFS,
            0x80 | 0x81 => Errno::NOSPC,
            _ if result & DO_NOT_RETRY != 0 => Errno::REMOTEIO,
            _ => Errno::IO,
        }),
    }
}

/// Status bit Do Not Retry (DNR).
const DO_NOT_RETRY: i32 = 0x4000;

fn identify(file: &File, namespace: u32, cns: u32) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; IDENTIFY_BYTES];
    let (address, len) = (bytes.as_mut_ptr() as u64, IDENTIFY_BYTES as u32);
    let mut command = Command { opcode: IDENTIFY, namespace, address, len, cdw10: cns, ..Command::default() };
    // SAFETY: the drive fills the bytes of `bytes`, which live until the call returns.
    status(unsafe { pass(file, IOCTL_ADMIN, &mut command) })?;
    Ok(bytes)
}

/// Parses Identify Controller data; `shift` and `bytes` are those of the namespace.
fn controller_identity(data: &[u8], shift: u32, bytes: u64) -> Identity {
    let text = |from: usize, to: usize| String::from_utf8_lossy(&data[from..to]).trim().to_owned();
    let max_transfer = match data[77] {
        0 => DEFAULT_MAX_TRANSFER,
        power => PAGE.checked_shl(power.into()).filter(|bytes| *bytes > 0).unwrap_or(DEFAULT_MAX_TRANSFER),
    };
    Identity {
        serial: text(4, 24),
        model: text(24, 64),
        block: 1 << shift,
        bytes,
        max_transfer: max_transfer.min(DEFAULT_MAX_TRANSFER),
        volatile: data[525] & 1 != 0,
    }
}

/// Parses Identify Namespace data; returns the base-2 logarithm of the block size, and the capacity in bytes.
fn format(data: &[u8]) -> io::Result<(u32, u64)> {
    let blocks = u64::from_le_bytes(data[..8].try_into().expect("eight bytes"));
    // FLBAS: bits 3:0 are the lower bits of the format index; bits 6:5 are the upper ones if there are more than 16
    // formats.
    let number = usize::from(data[26] & 0x0F | (data[26] & 0x60) >> 1);
    let at = 128 + 4 * number;
    let (metadata, shift) = (u16::from_le_bytes([data[at], data[at + 1]]), u32::from(data[at + 2]));
    let bytes = (9..=16).contains(&shift).then(|| blocks.checked_shl(shift)).flatten();
    match bytes {
        _ if metadata > 0 => Err(io::Error::other(format!(
            "expected blocks of data only, found {metadata} bytes of metadata with each: format the namespace without (nvme format)"
        ))),
        Some(bytes) => Ok((shift, bytes)),
        None => Err(io::Error::other(format!("expected blocks of 512 bytes to 64 KiB, found 2^{shift}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identify_data_is_parsed() {
        let mut controller = vec![0; IDENTIFY_BYTES];
        controller[4..24].copy_from_slice(b"S4EWNX0R123456      ");
        controller[24..64].copy_from_slice(format!("{:40}", "Fast Drive 2 TB").as_bytes());
        (controller[77], controller[525]) = (5, 1);
        let mut namespace = vec![0; IDENTIFY_BYTES];
        namespace[..8].copy_from_slice(&1000_u64.to_le_bytes());
        namespace[26] = 1;
        namespace[132..136].copy_from_slice(&[0, 0, 12, 0]);
        let (shift, bytes) = format(&namespace).unwrap();
        let expected = Identity {
            serial: "S4EWNX0R123456".into(),
            model: "Fast Drive 2 TB".into(),
            block: 4096,
            bytes: 4_096_000,
            max_transfer: 131_072,
            volatile: true,
        };
        assert_eq!(controller_identity(&controller, shift, bytes), expected);
        namespace[132] = 8;
        assert!(format(&namespace).unwrap_err().to_string().contains("8 bytes of metadata"));
    }

    #[test]
    fn transfer_command_has_zero_based_block_count() {
        let command = Command::transfer(WRITE, 1, (0x0001_0000_0000_2000, 0x3000), 12);
        assert_eq!((command.cdw10, command.cdw11, command.cdw12), (2, 0x10, 2));
        assert_eq!((command.opcode, command.namespace, command.len), (1, 1, 0x3000));
    }

    #[test]
    fn status_separates_transient_and_permanent_errors() {
        assert_eq!(status(0), Ok(()));
        assert_eq!(status(-libc::EACCES), Err(Errno::ACCESS));
        assert_eq!(status(0x280), Err(Errno::IO), "a write fault");
        assert_eq!(status(0x4280), Err(Errno::REMOTEIO), "a write fault with Do Not Retry");
        assert_eq!(status(0x4080), Err(Errno::NOSPC), "past its end");
    }
}
