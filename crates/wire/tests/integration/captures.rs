//! Captured traffic, if available (`shared/data/roce` next to the repository): every RoCE packet parses and has
//! the correct ICRC.

use shotline_testing::skip;
use shotline_wire::{ethernet, icrc, ipv4, roce, udp};
use std::path::{Path, PathBuf};

/// Returns the Ethernet frames of a classic pcap file (little-endian, microseconds).
fn frames(file: &[u8]) -> Vec<&[u8]> {
    let word = |bytes: &[u8]| u32::from_le_bytes(*bytes.first_chunk().unwrap());
    assert_eq!((word(file), word(&file[20..])), (0xA1B2_C3D4, 1), "a classic pcap file of Ethernet");
    let mut rest = &file[24..];
    let mut frames = Vec::new();
    while !rest.is_empty() {
        let (len, total) = (word(&rest[8..]), word(&rest[12..]));
        assert_eq!(len, total, "frames are whole");
        let (frame, remaining) = rest[16..].split_at(len as usize);
        frames.push(frame);
        rest = remaining;
    }
    frames
}

/// Returns the RoCE packet in a frame, if there is one.
fn roce_payload(frame: &[u8]) -> Option<&[u8]> {
    let (ethernet, packet) = ethernet::Header::parse(frame).unwrap();
    if ethernet.ether_type != ethernet::IPV4 {
        return None;
    }
    let (ip, rest) = ipv4::Header::parse(packet).unwrap();
    if ip.protocol != udp::PROTOCOL {
        return None;
    }
    let (udp, payload) = udp::Header::parse(rest).unwrap();
    (udp.destination == udp::ROCE_PORT).then_some(payload)
}

fn captures(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    entries
        .map(|entry| entry.unwrap().path())
        .flat_map(|path| if path.is_dir() { captures(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|extension| extension == "pcap"))
        .collect()
}

#[test]
fn captured_packets_have_the_correct_icrc() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/roce");
    let captures = captures(&folder);
    if captures.is_empty() {
        skip!("no captures in ../shared/data/roce next to the repository");
    }
    for path in captures {
        let file = std::fs::read(&path).unwrap();
        let mut checked = 0;
        for frame in frames(&file) {
            let Some(payload) = roce_payload(frame) else { continue };
            roce::Packet::parse(payload).unwrap();
            assert_eq!(icrc::verify_frame(frame), Ok(true), "packet {checked} of {}", path.display());
            checked += 1;
        }
        assert!(checked > 0, "{} holds RoCE packets", path.display());
        println!("{checked} packets of {}: every ICRC is correct", path.file_name().unwrap().display());
    }
}
