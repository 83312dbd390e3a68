use super::*;
use arrayvec::ArrayVec;
use proptest::prelude::*;
use shotline_testing::cases;
use shotline_wire::crc;
use shotline_wire::framing::{Framing, Kind, Link, MAX_HEADER, Packet, Ud};
use shotline_wire::record::Record;
use shotline_wire::shot::{Geometry, Packing};
use std::io::Write;

const SHOTS: u64 = 4;
const V4: Network = Network::V4 { src: [10, 0, 0, 1], dst: [10, 0, 0, 2], id: 0 };
const V6: Network = Network::V6 { src: [1; 16], dst: [2; 16] };

/// Builds the UDP payloads of `SHOTS` shots of six packets. Packet 2 of shot 1 is lost, and packet 3 of shot 2 is
/// damaged.
fn udp_payloads(framing: &dyn Framing, network: Network, port: u16) -> Vec<Vec<u8>> {
    let geometry = Geometry::new(16, 1000, 12, Packing::Packed12, 0).unwrap();
    let link = Link { dest_qp: 0x1234, src_qp: 1, q_key: 2, stream: 7 };
    let (mut psn, mut id, mut payloads) = (100, 0, Vec::new());
    for shot in 0..SHOTS {
        let mut bytes = vec![shot as u8; geometry.trailer_offset() as usize];
        bytes.extend(Record { shot, ..Record::of(&geometry) }.finish(crc::register(u32::MAX, &bytes)));
        for index in 0..geometry.packets() {
            let packet = Packet::nth(&geometry, psn, shot, index).unwrap();
            psn += 1;
            let mut header = ArrayVec::<u8, MAX_HEADER>::new();
            framing.emit(&link, &packet, &mut header);
            let payload = &bytes[packet.offset as usize..][..packet.len as usize];
            let mut datagram = [&header, payload].concat();
            if framing.has_icrc() {
                let network = flow::nth_of_batch(network, id);
                let flow = icrc::Flow { network, src_port: 0xC000, dst_port: port };
                let register = icrc::after_header(flow.prefix(datagram.len() as u16 + 4), &header);
                let icrc = icrc::seal(register, payload.len() as u64, crc::remainder(payload));
                datagram.extend(icrc.to_le_bytes());
            }
            id += 1;
            match (shot, index) {
                (1, 2) => continue,
                (2, 3) if framing.has_icrc() => datagram[40] ^= 1,
                _ => {}
            }
            payloads.push(datagram);
        }
    }
    payloads
}

/// Builds an Ethernet frame around a UDP payload.
fn frame(network: Network, id: u16, port: u16, payload: &[u8]) -> Vec<u8> {
    let udp = udp::Header { source: 0xC000, destination: port, payload_len: payload.len() as u16, checksum: 0 };
    let len = udp.payload_len + udp::Header::LEN as u16;
    let (ether_type, ip) = match network {
        Network::V4 { src, dst, .. } => (
            ethernet::IPV4,
            ipv4::Header {
                tos: 0,
                id,
                dont_fragment: true,
                ttl: 64,
                protocol: udp::PROTOCOL,
                source: src,
                destination: dst,
                payload_len: len,
            }
            .emit()
            .to_vec(),
        ),
        Network::V6 { src, dst } => (
            ethernet::IPV6,
            ipv6::Header {
                traffic_class: 0,
                flow_label: 0,
                payload_len: len,
                next_header: udp::PROTOCOL,
                hop_limit: 64,
                source: src,
                destination: dst,
            }
            .emit()
            .to_vec(),
        ),
    };
    let header = ethernet::Header { destination: [1; 6], source: [2; 6], vlan: None, ether_type };
    [header.emit().as_slice(), &ip, &udp.emit(), payload].concat()
}

/// Builds a pcap file.
fn pcap(link: u32, frames: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    for word in [0xA1B2_C3D4_u32, 4 << 16 | 2, 0, 0, 0x40000, link] {
        out.extend(word.to_le_bytes());
    }
    for (frame, index) in frames.iter().zip(0_u32..) {
        for word in [1_700_000_000, index, frame.len() as u32, frame.len() as u32] {
            out.extend(word.to_le_bytes());
        }
        out.extend(frame);
    }
    out
}

/// Builds a pcapng file with one Ethernet interface.
fn pcapng(frames: &[Vec<u8>]) -> Vec<u8> {
    let block = |kind: u32, body: &[u8]| {
        let len = (body.len().next_multiple_of(4) + 12) as u32;
        let mut out = [kind.to_le_bytes(), len.to_le_bytes()].concat();
        out.extend(body);
        out.resize(len as usize - 4, 0);
        out.extend(len.to_le_bytes());
        out
    };
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
    let mut out = block(0x0A0D_0D0A, &words(&[0x1A2B_3C4D, 1, u32::MAX, u32::MAX]));
    out.extend(block(1, &words(&[1, 0])));
    for (frame, index) in frames.iter().zip(0_u32..) {
        let len = frame.len() as u32;
        let time = 1_700_000_000_000_000_u64 + u64::from(index);
        let body = [words(&[0, (time >> 32) as u32, time as u32, len, len]), frame.clone()].concat();
        out.extend(block(6, &body));
    }
    out
}

fn inspected(file: &[u8]) -> Result<Capture> {
    let mut on_disk = tempfile::NamedTempFile::new().unwrap();
    on_disk.write_all(file).unwrap();
    read(on_disk.path(), &[])
}

fn frames(kind: Kind, network: Network) -> Vec<Vec<u8>> {
    let framing = shotline_acquire::receiver::framing(kind).unwrap();
    frames_to(&*framing, network, kind.description().port)
}

fn frames_to(framing: &dyn Framing, network: Network, port: u16) -> Vec<Vec<u8>> {
    let payloads = udp_payloads(framing, network, port);
    // The identifications that the ICRCs cover. The lost packet used one, too.
    let ids = (0..).filter(|id| *id != 8);
    payloads.iter().zip(ids).map(|(payload, id)| frame(network, id, port, payload)).collect()
}

#[test]
fn every_framing_is_assembled_and_its_losses_are_listed() {
    for network in [V4, V6] {
        for kind in Kind::with_set_up() {
            let frames = frames(kind, network);
            for file in [pcap(1, &frames), pcapng(&frames)] {
                let capture = inspected(&file).unwrap();
                assert_eq!((capture.frames, capture.damage.as_deref()), (6 * SHOTS - 1, None));
                let [flow] = capture.flows.as_slice() else { panic!("{kind}: {capture:?}") };
                let shots = flow.shots.as_ref().unwrap();
                assert_eq!(flow.framing, Some(kind.name()));
                let damaged = u64::from(kind.description().sealed);
                assert_eq!(flow.icrc.bad, damaged, "{kind} {network:?}");
                assert_eq!(flow.icrc.good, if kind.description().sealed { 6 * SHOTS - 2 } else { 0 });
                assert_eq!((shots.complete, shots.partial), (SHOTS - 1 - damaged, 1 + damaged), "{kind}");
                assert_eq!((shots.bad_record, shots.duplicates, shots.unassigned), (0, 0, 0));
                assert_eq!((shots.partial_shots[0].shot, shots.partial_shots[0].missing.as_str()), (1, "2"));
                assert!(shots.partial_shots.iter().skip(1).all(|p| (p.shot, p.missing.as_str()) == (2, "3")));
                assert!((capture.seconds - 22e-6).abs() < 2e-6, "{}", capture.seconds);
            }
        }
    }
}

#[test]
fn batches_captured_before_segmentation_are_split() {
    for network in [V4, V6] {
        let payloads = udp_payloads(&Ud, network, udp::ROCE_PORT);
        // Shot 0, with its five full packets and its short last one, as one datagram.
        let capture = inspected(&pcap(1, &[frame(network, 0, udp::ROCE_PORT, &payloads[..6].concat())])).unwrap();
        let [flow] = capture.flows.as_slice() else { panic!("{capture:?}") };
        assert_eq!((flow.packets, flow.icrc.good, flow.shots.as_ref().unwrap().complete), (6, 6, 1));
    }
}

#[test]
fn roce_is_recognised_by_icrc_or_by_port() {
    let framing = &Ud;
    for network in [V4, V6] {
        let good = frames_to(framing, network, 5300);
        let capture = inspected(&pcap(1, &good)).unwrap();
        let [flow] = capture.flows.as_slice() else { panic!("{capture:?}") };
        assert_eq!((flow.packets, flow.icrc.bad), (6 * SHOTS - 1, 1), "the damaged packet belongs to the flow, too");
        assert!(capture.other.is_empty());
        // An ICRC computed for another port does not match.
        let payloads = udp_payloads(framing, network, 5300);
        let bad: Vec<_> = (0..).zip(&payloads).map(|(id, payload)| frame(network, id, 5301, payload)).collect();
        let mut on_disk = tempfile::NamedTempFile::new().unwrap();
        on_disk.write_all(&pcap(1, &bad)).unwrap();
        let flows = |ports: &[u16]| read(on_disk.path(), ports).unwrap().flows.len();
        assert_eq!((flows(&[]), flows(&[5301])), (0, 1));
    }
}

#[test]
fn unsupported_link_types_are_named() {
    let error = inspected(&pcap(105, &[vec![0; 60]])).unwrap_err().to_string();
    assert!(error.contains("link type 105") && error.contains("Ethernet"), "{error}");
    // Raw IP is supported.
    let frame = frames(Kind::Ud, V6).remove(0);
    assert_eq!(inspected(&pcap(101, &[frame[14..].to_vec()])).unwrap().flows.len(), 1);
}

#[test]
fn truncated_capture_reports_damage() {
    let complete = pcap(1, &frames(Kind::Ud, V6));
    let capture = inspected(&complete[..complete.len() - 1]).unwrap();
    assert_eq!(capture.frames, 6 * SHOTS - 2);
    assert!(capture.damage.unwrap().contains("ends within"));
}

#[test]
fn truncated_frames_are_counted() {
    let mut file = pcap(1, &frames(Kind::Ud, V6));
    let len = u32::from_le_bytes(file[36..40].try_into().unwrap());
    file[36..40].copy_from_slice(&(len + 1).to_le_bytes());
    assert_eq!(inspected(&file).unwrap().truncated_frames, 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(300)))]
    #[test]
    fn damaged_files_do_not_panic(
        ng: bool, kind in prop::sample::select(Kind::with_set_up().collect::<Vec<_>>()), cut: prop::sample::Index,
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..40),
    ) {
        let frames = frames(kind, V4);
        let mut file = if ng { pcapng(&frames) } else { pcap(1, &frames) };
        for (offset, value) in flips {
            // Half of the changes go to the first headers, where they have the largest effect.
            let end = if value & 1 == 0 { 200 } else { file.len() };
            file[offset.index(end)] = value;
        }
        file.truncate(cut.index(file.len()) + 1);
        let _ = inspected(&file);
    }
}
