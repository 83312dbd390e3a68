//! The examples in `docs/wire-formats.md` match the output of this crate byte for byte.
//!
//! An example is a code block after a line `<!-- example: name -->`. After an intended change,
//! `UPDATE=1 cargo test -p shotline-wire spec::` rewrites them.

use arrayvec::ArrayVec;
use shotline_testing::assert_committed;
use shotline_wire::framing::{Counted, Framing, Link, Packet, Ud, Udp};
use shotline_wire::icrc::{self, Flow, Network};
use shotline_wire::record::Record;
use shotline_wire::setup::{
    self, Acknowledgement, Configure, Message, Mode, Refusal, Request, Sequence, Source, Start, Trigger, Verdict,
};
use shotline_wire::shot::{Geometry, Packing};
use shotline_wire::spacefibre::line::Encoder;
use shotline_wire::spacefibre::rdma::{self, Command, Operation, Reply, ReplyKind};
use shotline_wire::spacefibre::{ControlWord, Scrambler, SequenceNumber, Word, crc as link_crc};
use shotline_wire::{crc, ipv4, roce, udp};
use std::fmt::Write;
use std::net::SocketAddr;
use std::path::PathBuf;

const SAMPLES: [i16; 16] = [0, -1, 1, -2, 2, -3, 3, -4, 100, -100, 1000, -1000, 2047, -2048, 5, -6];
const LINK: Link = Link { dest_qp: 0x00_2B67, src_qp: 0x00_0011, q_key: 0x1122_3344, stream: 3 };
const SOURCE: ([u8; 4], u16) = ([192, 168, 0, 1], 49443);
const DESTINATION: ([u8; 4], u16) = ([192, 168, 0, 2], udp::ROCE_PORT);
const FIRST_PSN: u32 = 0xFF_FFFF;

fn geometry() -> Geometry {
    Geometry::new(2, 8, 12, Packing::Packed12, 40_000_000).unwrap()
}

/// Packs samples as 12-bit two's complement, most significant bit first.
fn pack(samples: &[i16]) -> Vec<u8> {
    let pair = |pair: &[i16]| {
        let [a, b] = [pair[0] as u16 & 0xFFF, pair[1] as u16 & 0xFFF];
        [(a >> 4) as u8, (a << 4) as u8 | (b >> 8) as u8, b as u8]
    };
    samples.chunks_exact(2).flat_map(pair).collect()
}

/// Appends lines of a label, the offset, and up to 16 bytes.
fn dump(out: &mut String, label: &str, start: usize, bytes: &[u8]) {
    for (line, chunk) in bytes.chunks(16).enumerate() {
        let label = if line == 0 { label } else { "" };
        write!(out, "{label:<10} {:>4} ", start + line * 16).unwrap();
        chunk.iter().for_each(|byte| write!(out, " {byte:02x}").unwrap());
        out.push('\n');
    }
}

/// Dumps consecutive pieces.
fn dump_all(pieces: &[(&str, &[u8])]) -> String {
    let mut out = String::new();
    let mut at = 0;
    for (label, bytes) in pieces {
        dump(&mut out, label, at, bytes);
        at += bytes.len();
    }
    out
}

/// Returns the example's shot as one packet of the framing `ud`, and its CRC computation.
fn packet_and_crcs() -> (String, String) {
    let g = geometry();
    let mut shot = pack(&SAMPLES);
    shot.resize(g.trailer_offset() as usize, 0);
    let record = Record {
        clock_locked: true,
        triggered: true,
        shot: 0x10_0007,
        tai_ns: 1_700_000_037_000_000_000,
        stream: LINK.stream,
        event: 7,
        ..Record::of(&g)
    };
    let before_record = crc::register(u32::MAX, &shot);
    let record_bytes = record.finish(before_record);
    let covered = crc::register(before_record, &record_bytes[..60]);
    shot.extend(record_bytes);
    assert_eq!(shot.len(), g.shot_bytes() as usize);

    let packet = Packet::nth(&g, FIRST_PSN, record.shot, 0).unwrap();
    let mut header = ArrayVec::new();
    Ud.emit(&LINK, &packet, &mut header);

    let udp_payload_len = (header.len() + shot.len() + roce::ICRC_LEN) as u16;
    let (src, src_port) = SOURCE;
    let (dst, dst_port) = DESTINATION;
    let ip = ipv4::Header {
        tos: 0,
        id: 0,
        dont_fragment: true,
        ttl: 64,
        protocol: udp::PROTOCOL,
        source: src,
        destination: dst,
        payload_len: udp_payload_len + 8,
    }
    .emit();
    let udp = udp::Header { source: src_port, destination: dst_port, payload_len: udp_payload_len, checksum: 0 }.emit();
    let flow = Flow { network: Network::V4 { src, dst, id: 0 }, src_port, dst_port };
    let register = icrc::after_header(flow.prefix(udp_payload_len), &header);
    let icrc = icrc::seal(register, shot.len() as u64, crc::remainder(&shot));
    let whole = [ip.as_slice(), &udp, &header, &shot, &icrc.to_le_bytes()].concat();
    assert_eq!(icrc::verify_ip_packet(&whole), Ok(true));

    let bytes = dump_all(&[
        ("IPv4", &ip),
        ("UDP", &udp),
        ("BTH", &header[..12]),
        ("DETH", &header[12..20]),
        ("immediate", &header[20..]),
        ("samples", &shot[..24]),
        ("padding", &shot[24..64]),
        ("record", &shot[64..]),
        ("ICRC", &icrc.to_le_bytes()),
    ]);

    let mut masked_ip = ip;
    [1, 8, 10, 11].into_iter().for_each(|at| masked_ip[at] = 0xFF);
    let mut masked_udp = udp;
    [6, 7].into_iter().for_each(|at| masked_udp[at] = 0xFF);
    let mut masked_bth = header.clone();
    masked_bth[4] = 0xFF;
    let mut crcs = String::new();
    let mut state = u32::MAX;
    writeln!(crcs, "ICRC, the register after").unwrap();
    for (what, bytes) in [
        ("8 bytes of ff", [0xFF; 8].as_slice()),
        ("IPv4, bytes 1, 8, 10, 11 as ff", &masked_ip),
        ("UDP, bytes 6, 7 as ff", &masked_udp),
        ("BTH, byte 4 as ff", &masked_bth[..12]),
        ("DETH", &header[12..20]),
        ("immediate", &header[20..]),
        ("payload (samples, padding, record)", &shot),
    ] {
        state = crc::register(state, bytes);
        writeln!(crcs, "  {what:<36} {state:08x}").unwrap();
    }
    assert_eq!(!state, icrc);
    writeln!(crcs, "  inverted                             {icrc:08x}").unwrap();
    writeln!(crcs, "record, the register after").unwrap();
    writeln!(crcs, "  samples and padding                  {before_record:08x}").unwrap();
    writeln!(crcs, "  the record's first 60 bytes          {covered:08x}").unwrap();
    writeln!(crcs, "  inverted                             {:08x}", !covered).unwrap();
    let end = crc::register(covered, &record_bytes[60..]);
    assert_eq!(end, crc::RESIDUE);
    writeln!(crcs, "  the record's last 4 bytes            {end:08x}").unwrap();
    writeln!(crcs, "payload alone, begun at 0").unwrap();
    writeln!(crcs, "  remainder of the 128 bytes           {:08x}", crc::remainder(&shot)).unwrap();
    (bytes, crcs)
}

/// Dumps messages up to the last field that is not zero, in lines of 16 bytes.
fn messages(messages: &[(&str, &[u8])]) -> String {
    let mut out = String::new();
    for (label, bytes) in messages {
        let used =
            bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1).next_multiple_of(8).min(bytes.len());
        dump(&mut out, label, 0, &bytes[..used]);
        if used < bytes.len() {
            writeln!(out, "{:<10} {used:>4}  zeros up to {}", "", bytes.len()).unwrap();
        }
    }
    out
}

/// Returns a data frame of one packet and a flow control token: words before and after scrambling, and line bits.
fn spacefibre_words() -> String {
    let seq = SequenceNumber { count: 0, negative: false }.next();
    let packet = [Word::data([0, 1, 2, 3]), Word { characters: [4, 0xFD, 0xFB, 0xFB], control: 0b1110 }];
    let mut scrambler = Scrambler::new();
    let scrambled = packet.map(|word| scrambler.scramble(word));
    let sdf = ControlWord::StartDataFrame { vc: 1 }.emit();
    let covered = [sdf.characters, scrambled[0].characters, scrambled[1].characters].concat();
    let state = link_crc::crc16_update(link_crc::CRC16_INIT, &covered);
    let crc = link_crc::crc16_update(state, &ControlWord::EndDataFrame { seq, crc: 0 }.emit().characters[..2]);
    let idle = ControlWord::Idle.emit();
    let edf = ControlWord::EndDataFrame { seq, crc }.emit();
    let fct = ControlWord::FlowControlToken { vc: 1, multiplier: 1, seq: seq.next() }.emit();
    let words = [
        ("IDLE", idle, idle),
        ("SDF", sdf, sdf),
        ("data", packet[0], scrambled[0]),
        ("data", packet[1], scrambled[1]),
        ("EDF", edf, edf),
        ("FCT", fct, fct),
    ];
    let mut out = String::from("word  characters           as sent              line bits\n");
    let mut encoder = Encoder::new();
    for (name, word, sent) in words {
        let line = encoder.encode(sent);
        write!(out, "{name:<5} {:<20} {:<20}", format!("{word:?}"), format!("{sent:?}")).unwrap();
        for symbol in 0..4 {
            out.push(' ');
            (0..10).for_each(|bit| out.push(if line >> (10 * symbol + bit) & 1 == 1 { '1' } else { '0' }));
        }
        out.push('\n');
    }
    out
}

/// Dumps an RDMA packet over SpaceFibre.
fn rdma_packet(label: &str, header: rdma::Header, data: &[u8]) -> String {
    let (header, crc) = (header.emit(), crc::crc32(data).to_le_bytes());
    match data {
        [] => dump_all(&[(label, &header)]),
        _ => dump_all(&[(label, &header), ("data", data), ("data CRC", &crc)]),
    }
}

/// Returns the packets of a WRITE and of a READ of 12 bytes, in segments of 8 bytes.
fn rdma_examples() -> [(&'static str, String); 2] {
    let (key, operation_len, text) = (0xA1B2_C3D4, 12, b"Hello, orbit");
    let (first, last) = text.split_at(8);
    let write = |transaction_id, offset: u32, data: &[u8]| {
        let place = Command {
            address: 0x1000 + u64::from(offset),
            offset,
            data_len: data.len() as u32,
            operation_len,
            key,
            ..Command::new(Operation::Write, 0x00_0012, transaction_id)
        };
        if !place.is_last() {
            return rdma_packet("first", rdma::Header::Command(place), data);
        }
        let last = Command { operation: Operation::WriteImm, reply_requested: true, imm: 0xDEAD_BEEF, ..place };
        rdma_packet("last", rdma::Header::Command(last), data)
    };
    let reply = |label, kind, transaction_id, msn, data: &[u8]| {
        let reply = Reply { msn, data_len: data.len() as u32, ..Reply::new(kind, 0x00_0034, transaction_id) };
        rdma_packet(label, rdma::Header::Reply(reply), data)
    };
    let address = 0x7F00_1234_5678;
    let read =
        Command { reply_requested: true, key, address, operation_len, ..Command::new(Operation::Read, 0x00_0012, 1) };
    let segment = |first, last| ReplyKind::Read { first, last };
    [
        (
            "rdma-write",
            [write(0xFF_FFFF, 0, first), write(0, 8, last), reply("reply", ReplyKind::Acknowledge, 0, 7, &[])].concat(),
        ),
        (
            "rdma-read",
            [
                rdma_packet("READ", rdma::Header::Command(read), &[]),
                reply("first", segment(true, false), 1, 8, first),
                reply("last", segment(false, true), 2, 8, last),
            ]
            .concat(),
        ),
    ]
}

fn examples() -> Vec<(&'static str, String)> {
    let (packet, crcs) = packet_and_crcs();
    let configure = Configure {
        link: 0,
        framing: 0,
        geometry: geometry(),
        destination: SocketAddr::from(DESTINATION),
        dest_qp: LINK.dest_qp,
        q_key: LINK.q_key,
        stream: LINK.stream,
    };
    let source = Source { address: SocketAddr::from(SOURCE), qp: LINK.src_qp, first_psn: FIRST_PSN, pattern_period: 0 };
    let start = Start { mode: Mode::FixedRate { millihertz: 7_000_000 }, shots: 0 };
    let token = 0x5EED_1234;
    let configure_request = Message::request(1, token, false, Request::Configure(configure));
    let start_request = Message::request(2, token, false, Request::Start(start));
    let sequence = Message::request(3, token, false, Request::Sequence(Sequence::new(&[1, 2, 3]).unwrap()));
    let set_up = messages(&[
        ("configure", &configure_request.emit()),
        ("its reply", &configure_request.reply(setup::Reply::Configured(configure, source)).emit()),
        ("start", &start_request.emit()),
        ("its reply", &start_request.reply(setup::Reply::Started { first_shot: 0x10_0007 }).emit()),
        ("refusal", &start_request.refuse(Refusal::Owned).unwrap().emit()),
        ("sequence", &sequence.emit()),
    ]);
    let plain = Trigger { stamp: 1_700_000_037_000_000_000, ..Trigger::new(1) };
    let acknowledged = Trigger { acknowledge: true, ..plain };
    let accepted = Verdict::Accepted { shot: 0x10_0007 };
    let trigger = messages(&[
        ("trigger", &plain.emit()),
        ("with bit 0", &acknowledged.emit()),
        ("its reply", &Acknowledgement { trigger: acknowledged, verdict: accepted }.emit()),
    ]);

    let g = Geometry::new(96, 2000, 12, Packing::Packed12, 40_000_000).unwrap();
    let framings: [&dyn Framing; 3] = [&Ud, &Counted, &Udp];
    let headers: Vec<_> = framings
        .into_iter()
        .map(|framing| {
            let mut header = ArrayVec::new();
            let packet = Packet::nth(&g, FIRST_PSN, 0x1_2345_6789, 70).unwrap();
            framing.emit(&LINK, &packet, &mut header);
            (framing.name(), header)
        })
        .collect();
    let headers: Vec<_> = headers.iter().map(|(name, header)| (*name, header.as_slice())).collect();
    let mut examples = vec![
        ("packet", packet),
        ("crc", crcs),
        ("headers", messages(&headers)),
        ("set-up", set_up),
        ("trigger", trigger),
        ("spacefibre", spacefibre_words()),
    ];
    examples.extend(rdma_examples());
    examples
}

fn document() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "../../docs/wire-formats.md"].iter().collect()
}

/// Returns the byte range of an example's code in the document.
fn code_range(document: &str, name: &str) -> std::ops::Range<usize> {
    let open = format!("<!-- example: {name} -->\n```text\n");
    let start = document.find(&open).unwrap_or_else(|| panic!("the example {name} is in the document")) + open.len();
    start..start + document[start..].find("```").expect("the code block ends")
}

#[test]
fn documented_examples_match_the_output() {
    let mut expected = std::fs::read_to_string(document()).unwrap();
    for (name, example) in examples() {
        let code_range = code_range(&expected, name);
        expected.replace_range(code_range, &example);
    }
    assert_committed(&document(), expected.as_bytes());
}
