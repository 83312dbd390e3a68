//! Detection of foreign data on a device.
//!
//! Tables of magic numbers identify common formats. Other nonzero data in the first and last MiB is refused as well:
//! both are zeros on a free device.

use super::device::{Device, EXTENT_ALIGN};
use rustix::io::Errno;

/// Offset, magic number, and description of the format.
type Magic = (usize, &'static [u8], &'static str);

/// Offsets from the start of a device. Sources: libblkid of util-linux, and the formats' own headers.
const AT_START: &[Magic] = &[
    (512, b"EFI PART", "a GPT partition table"),
    (4096, b"EFI PART", "a GPT partition table"),
    (0, b"LUKS\xba\xbe", "LUKS encryption"),
    (0, b"SKUL\xba\xbe", "LUKS encryption"),
    (0x438, b"\x53\xef", "an ext2, ext3 or ext4 file system"),
    (0, b"XFSB", "an XFS file system"),
    (0x10040, b"_BHRfS_M", "a Btrfs file system"),
    (0, b"LABELONE", "an LVM physical volume"),
    (512, b"LABELONE", "an LVM physical volume"),
    (1024, b"LABELONE", "an LVM physical volume"),
    (1536, b"LABELONE", "an LVM physical volume"),
    (4086, b"SWAPSPACE2", "swap space"),
    (4086, b"SWAP-SPACE", "swap space"),
    (0, b"\xfc\x4e\x2b\xa9", "a member of an MD RAID"),
    (4096, b"\xfc\x4e\x2b\xa9", "a member of an MD RAID"),
    (0x20000, b"\x0c\xb1\xba\x00\x00\x00\x00\x00", "a ZFS pool"),
    (0x400, b"\x10\x20\xf5\xf2", "an F2FS file system"),
    (0x1018, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81", "a bcache device"),
    (0x1018, b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef", "a bcachefs file system"),
    (0, b"bluestore block device", "a Ceph BlueStore device"),
    (3, b"NTFS    ", "an NTFS file system"),
    (3, b"EXFAT   ", "an exFAT file system"),
    (3, b"-FVE-FS-", "BitLocker encryption"),
    (54, b"FAT1", "a FAT file system"),
    (82, b"FAT32", "a FAT file system"),
    (0x8001, b"CD001", "an ISO 9660 image"),
    (0, b"hsqs", "a SquashFS file system"),
    (0x10034, b"ReIsEr", "a ReiserFS file system"),
    (0x8000, b"JFS1", "a JFS file system"),
    (0x406, b"\x34\x34", "a NILFS2 file system"),
    (0, b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    (510, b"\x55\xaa", "an MBR partition table or boot sector"),
];

/// Offsets backwards from the end of a device.
const AT_END: &[Magic] = &[
    (512, b"EFI PART", "the backup of a GPT partition table"),
    (4096, b"EFI PART", "the backup of a GPT partition table"),
    (8192, b"\xfc\x4e\x2b\xa9", "a member of an MD RAID"),
    (65536, b"\xfc\x4e\x2b\xa9", "a member of an MD RAID"),
];

/// Describes what a device holds; `None` if its first and last MiB are zeros.
pub(super) fn find(device: &Device) -> Result<Option<String>, Errno> {
    let mut edge = vec![0; EXTENT_ALIGN as usize];
    device.read(0, &mut edge)?;
    let start = named(AT_START.iter().map(|(at, magic, name)| (Some(*at), *magic, *name)), &edge);
    let first = edge.iter().position(|byte| *byte != 0);
    if start.is_some() {
        return Ok(start);
    }
    let last_at = device.identity.bytes - EXTENT_ALIGN;
    device.read(last_at, &mut edge)?;
    let end = at_end(&edge);
    let last = edge.iter().position(|byte| *byte != 0).map(|at| last_at as usize + at);
    Ok(end.or_else(|| first.or(last).map(|at| format!("data of no known kind (the first at byte {at})"))))
}

/// Describes foreign data on a device with a directory. `edge` is the first MiB of the device without the text of the
/// directory; if a copy is `torn`, unknown data may be a part of it.
pub(super) fn find_foreign(device: &Device, edge: &[u8], torn: bool) -> Result<Option<String>, Errno> {
    let start = named(AT_START.iter().map(|(at, magic, name)| (Some(*at), *magic, *name)), edge);
    let first = edge.iter().position(|byte| *byte != 0).filter(|_| !torn);
    let mut last = vec![0; EXTENT_ALIGN as usize];
    device.read(device.identity.bytes - EXTENT_ALIGN, &mut last)?;
    let found = start.or_else(|| at_end(&last));
    Ok(found.or_else(|| first.map(|at| format!("data of no known kind (the first at byte {at})"))))
}

fn at_end(edge: &[u8]) -> Option<String> {
    named(AT_END.iter().map(|(back, magic, name)| (edge.len().checked_sub(*back), *magic, *name)), edge)
}

fn named<'a>(table: impl Iterator<Item = (Option<usize>, &'a [u8], &'a str)>, edge: &[u8]) -> Option<String> {
    let matches = |at: Option<usize>, magic: &[u8]| edge.get(at?..)?.starts_with(magic).then_some(());
    let mut found = table.filter(|(at, magic, _)| matches(*at, magic).is_some());
    found.next().map(|(_, _, name)| name.to_owned())
}
