//! The committed seeds of the fuzz targets, run through the target functions.

#[path = "../../../../fuzz/src/lib.rs"]
mod targets;

use crate::common::{Layer, VECTORS, hex};
use arrayvec::ArrayVec;
use shotline_testing::assert_committed;
use shotline_wire::aeth::RnrTimer;
use shotline_wire::block::{Description, Peak};
use shotline_wire::crc::crc32;
use shotline_wire::framing::digitizer::Header;
use shotline_wire::framing::{Counted, Framing, Hsb, Link, Packet, SampleContext, Spead, Ud, Udp, Vita49};
use shotline_wire::hsb::Metadata;
use shotline_wire::record::Record;
use shotline_wire::setup::{
    Acknowledgement, ArrayDescription, Configure, Describe, Message, Mode, Model, Refusal, Reply, Report, Request,
    Sequence, Source, Start, Trigger, Verdict,
};
use shotline_wire::shot::{Geometry, Packetization, Packing, Trailer};
use shotline_wire::spacefibre::datagram;
use shotline_wire::spacefibre::line::Encoder;
use shotline_wire::spacefibre::rdma;
use shotline_wire::spacefibre::{Capability, ControlWord, LostSignalCause, SequenceNumber, Word};
use shotline_wire::spead::Flavour;
use shotline_wire::vita49::{Context, Format, Fraction, Hertz, Indicator, Kind, Prologue, Seconds, State, Time};
use std::net::SocketAddr;
use std::path::PathBuf;

type Target = (&'static str, fn(&[u8]));

const TARGETS: [Target; 16] = [
    ("roce_packet", targets::roce_packet),
    ("ip_packet", targets::ip_packet),
    ("framing_ud", targets::framing_ud),
    ("framing_counted", targets::framing_counted),
    ("framing_udp", targets::framing_udp),
    ("framing_spead", targets::framing_spead),
    ("framing_hsb", targets::framing_hsb),
    ("framing_digitizer", targets::framing_digitizer),
    ("block_description", targets::block_description),
    ("framing_vita49", targets::framing_vita49),
    ("hsb_metadata", targets::hsb_metadata),
    ("record", targets::record),
    ("setup", targets::setup),
    ("spacefibre_datagram", targets::spacefibre_datagram),
    ("spacefibre_words", targets::spacefibre_words),
    ("spacefibre_rdma", targets::spacefibre_rdma),
];

fn folder(target: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "../../fuzz/seeds", target].iter().collect()
}

#[test]
fn targets_pass_on_seeds_and_their_mutations() {
    for (target, check) in TARGETS {
        let mut seeds = 0;
        for entry in std::fs::read_dir(folder(target)).expect("seeds are committed") {
            let bytes = std::fs::read(entry.unwrap().path()).unwrap();
            for len in 0..=bytes.len() {
                check(&bytes[..len]);
            }
            // A single changed bit often still passes magic and version checks, which random bytes seldom do.
            for at in 0..bytes.len() {
                for bit in 0..8 {
                    let mut changed = bytes.clone();
                    changed[at] ^= 1 << bit;
                    check(&changed);
                }
            }
            seeds += 1;
        }
        assert!(seeds > 0, "{target} has seeds");
    }
}

fn seeds() -> Vec<(&'static str, String, Vec<u8>)> {
    let mut seeds = Vec::new();
    for vector in VECTORS {
        let bytes = hex(vector.bytes);
        let packet = match vector.begins_with {
            Layer::Ethernet if bytes[12] == 0x08 => &bytes[14..],
            _ => &bytes,
        };
        match packet[0] >> 4 {
            4 => seeds.push(("roce_packet", vector.name.into(), packet[28..].to_vec())),
            6 => seeds.push(("roce_packet", vector.name.into(), packet[48..].to_vec())),
            _ => {} // RoCEv1, for verify_frame
        }
        seeds.push(("ip_packet", vector.name.into(), packet.to_vec()));
    }

    let (channels, samples) = (96, 500_u16);
    let geometry = Geometry::new(channels.into(), samples.into(), 12, Packing::Packed12, 40_000_000).unwrap();
    let link = Link { dest_qp: 0x12_3456, src_qp: 0x65_4321, q_key: 0x1111_1111, stream: 3 };
    let last = geometry.packets() - 1;
    for (name, index) in [("first", 0), ("last", last)] {
        let packet = Packet::nth(&geometry, 0xFF_FFF0 + index, 0x1_2345_6789, index).unwrap();
        let framings: [(_, &dyn Framing); 3] =
            [("framing_ud", &Ud), ("framing_counted", &Counted), ("framing_udp", &Udp)];
        for (target, framing) in framings {
            let mut header = ArrayVec::new();
            framing.emit(&link, &packet, &mut header);
            let mut seed = vec![channels];
            seed.extend(samples.to_be_bytes());
            seed.push(Packing::Packed12 as u8);
            seed.extend((packet.len as u16).to_be_bytes());
            seed.extend(&header);
            seeds.push((target, name.into(), seed));
        }
    }

    seeds.extend(third_party_seeds());
    seeds.extend(block_seeds());
    seeds.extend(spacefibre_seeds());
    seeds.extend(datagram_seeds());
    seeds.extend(rdma_seeds());

    let record = Record { shot: 7, tai_ns: 1_700_000_037_000_000_000, triggered: true, ..Record::of(&geometry) };
    seeds.push(("record", "triggered".into(), record.finish_from_remainder(0, 72_000_u64).into()));

    let destination = SocketAddr::new([192, 168, 0, 2].into(), 4791);
    let configure =
        Configure { link: 1, framing: 0, geometry, destination, dest_qp: 0x12_3456, q_key: 0x1111_1111, stream: 3 };
    let address = SocketAddr::new([192, 168, 0, 1].into(), 49443);
    let source = Source { address, qp: 0x65_4321, first_psn: 0xFF_FFF0, pattern_period: 16 };
    let describe = Describe {
        model: Model::from("probe 192").unwrap(),
        links: 2,
        channels: 96,
        bits: 12,
        packing: Packing::Packed12,
        sample_rate_hz: 40_000_000,
        max_samples: 4000,
        framings: 0b111,
        pattern_period: 16,
        array: None,
    };
    let array = ArrayDescription {
        pitch_nm: 300_000,
        width_nm: 270_000,
        height_nm: 5_000_000,
        centre_hz: 5_000_000,
        sound_speed_mm_s: 1_540_000,
        first_angle_urad: -174_533,
        last_angle_urad: 174_533,
        initial_time_ns: 1000,
        waves: 5,
    };
    let described = Describe { pattern_period: 0, array: Some(array), ..describe };
    let report = Report { link: 1, running: true, next_shot: 8, shots_sent: 8, packets_sent: 144, ..Report::default() };
    let start = Start { mode: Mode::FixedRate { millihertz: 7_000_000 }, shots: 1000 };
    let sequence = Sequence::new(&[1, 2, 0x0304]).unwrap();
    let requests = [
        ("query", Request::Query, Reply::Describe(describe)),
        ("configure", Request::Configure(configure), Reply::Configured(configure, source)),
        ("start", Request::Start(start), Reply::Started { first_shot: 8 }),
        ("stop", Request::Stop { link: 1 }, Reply::Stopped(report)),
        ("status", Request::Status { link: 1 }, Reply::Status(report)),
        ("sequence", Request::Sequence(sequence), Reply::Sequenced(sequence)),
    ];
    for (name, request, reply) in requests {
        let request = Message::request(9, 0x5EED_5EED, true, request);
        seeds.push(("setup", name.into(), request.emit().into()));
        seeds.push(("setup", format!("{name}_reply"), request.reply(reply).emit().into()));
        if name == "start" {
            seeds.push(("setup", "refusal".into(), request.refuse(Refusal::Owned).unwrap().emit().into()));
        }
    }
    let query = Message::request(9, 0x5EED_5EED, false, Request::Query);
    seeds.push(("setup", "query_reply_array".into(), query.reply(Reply::Describe(described)).emit().into()));
    let trigger = Trigger { stamp: 2, ..Trigger::new(1) };
    let acknowledged = Trigger { acknowledge: true, ..trigger };
    let accepted = Acknowledgement { trigger: acknowledged, verdict: Verdict::Accepted { shot: 8 } };
    seeds.push(("setup", "trigger".into(), trigger.emit().into()));
    seeds.push(("setup", "trigger_acknowledged".into(), acknowledged.emit().into()));
    seeds.push(("setup", "trigger_command_only".into(), Trigger { command_only: true, ..acknowledged }.emit().into()));
    seeds.push(("setup", "acknowledgement".into(), accepted.emit().into()));
    seeds.push((
        "setup",
        "acknowledgement_busy".into(),
        Acknowledgement { verdict: Verdict::Busy, ..accepted }.emit().into(),
    ));
    seeds
}

/// Packets of senders that do not support set-up messages.
fn third_party_seeds() -> Vec<(&'static str, String, Vec<u8>)> {
    let mut seeds = Vec::new();
    let mut of = |target, kind: &str, framing: &dyn Framing, geometry: &Geometry, parameters: [u16; 4]| {
        for (name, index) in [("first", 0), ("last", geometry.packets() - 1)] {
            let packet = Packet::nth(geometry, 0xF_FFF0 + index, 2, index).unwrap();
            let mut header = ArrayVec::new();
            framing.emit(&Link { dest_qp: 2, ..Link::default() }, &packet, &mut header);
            let mut seed: Vec<u8> = parameters.into_iter().flat_map(u16::to_be_bytes).collect();
            seed.extend((packet.len as u16).to_be_bytes());
            seed.extend(&header);
            seeds.push((target, format!("{kind}_{name}"), seed));
        }
    };
    let shape = |trailer, cut| {
        Geometry::new(1, 10_007, 8, Packing::Uint8, 0).and_then(|geometry| geometry.sent_as(trailer, cut)).unwrap()
    };
    for (kind, flavour, items) in [("64_48", Flavour::F48, 4), ("64_40", Flavour::F40, 5)] {
        let geometry = shape(Trailer::None, Packetization { first: 1424, rest: 1432, separate_trailer: false });
        let framing = Spead { flavour, first_items: items, items };
        of("framing_spead", kind, &framing, &geometry, [10_007, 1424, 1432, items]);
    }
    for (kind, pages, trailer_apart) in [("embedded", 4_u16, false), ("apart", 3, true)] {
        let geometry = shape(
            Trailer::HsbMetadata,
            Packetization { separate_trailer: trailer_apart, ..Packetization::uniform(1408) },
        );
        let step = geometry.shot_bytes();
        let framing = Hsb { base: 0x1000_0000, step, pages: pages.into(), r_key: 0x1234 };
        of("framing_hsb", kind, &framing, &geometry, [10_007, 1408, pages, step as u16]);
    }
    let first_ns = 1_795_208_429_703_417_270;
    let metadata =
        Metadata { psn: 0x2e, first_ns, valid_bytes: 65_536, frame: 1, made_ns: first_ns + 9, ..Metadata::default() };
    seeds.push(("hsb_metadata", "frame".into(), metadata.emit().into()));
    seeds
}

/// Packets of digitizers.
fn block_seeds() -> Vec<(&'static str, String, Vec<u8>)> {
    let mut seeds = Vec::new();
    let (samples, payload) = (1000_u16, 1408_u16);
    let cut = Packetization::uniform(payload.into());
    let shape =
        |packing, trailer| Geometry::with_packetization((2, samples.into()), (16, packing), 0, trailer, cut).unwrap();
    let blocks = shape(Packing::Int16Le, Trailer::Block);
    for (name, index) in [("first", 0), ("last", blocks.packets() - 1)] {
        let packet = Packet::nth(&blocks, 0, 7, index).unwrap();
        let header = Header {
            last: packet.last,
            locked: true,
            channels: 2,
            bits: 16,
            stream: 3,
            block_bytes: blocks.shot_bytes(),
            block: 7,
            tai_ns: 1_795_208_429_703_417_270,
            offset: packet.offset,
            len: packet.len,
            sample_rate_hz: 5e8,
            centre_hz: 1.3e9,
            volts_per_count: 1e-5,
            ..Header::default()
        };
        let mut seed: Vec<u8> = [samples, payload, packet.len as u16].into_iter().flat_map(u16::to_be_bytes).collect();
        seed.extend(header.emit());
        seeds.push(("framing_digitizer", name.into(), seed));
    }
    let peaks = [Peak { frequency_hz: 1e6, power_dbfs: -6.0 }].into_iter().collect();
    let description = Description { centre_hz: 1.3e9, snr_db: 60.0, points: 8192, peaks, ..Description::default() };
    seeds.push(("block_description", "peak".into(), description.emit().into()));
    let streams = shape(Packing::Int16Be, Trailer::Context);
    let begin = Time { seconds: Some(Seconds::Gps(1_400_000_000)), fraction: Some(Fraction::Picoseconds(0)) };
    let mut of = |name: &str, payload_len: u16, packet: &[u8]| {
        let mut seed: Vec<u8> = [samples, payload].into_iter().flat_map(u16::to_be_bytes).collect();
        seed.extend(1_000_000_u32.to_be_bytes());
        seed.extend(payload_len.to_be_bytes());
        seed.extend(packet);
        seeds.push(("framing_vita49", name.to_owned(), seed));
    };
    let rate = 1_000_000;
    let framing =
        Vita49 { begin, rate, sample_bytes: 4, format: Format::IQ16, sample_context: SampleContext::default() };
    let packet = Packet::nth(&streams, 5, 7, 1).unwrap();
    let mut header = ArrayVec::new();
    framing.emit(&Link { stream: 3, ..Link::default() }, &packet, &mut header);
    of("data", packet.len as u16, &header);
    let context = Context {
        changed: true,
        rf_reference: Some(Hertz::new(1.3e9)),
        sample_rate: Some(Hertz::new(1e6)),
        state: Some(State::default().with(Indicator::SampleLoss, true)),
        format: Some(Format::IQ16),
        ..Context::default()
    };
    let fields = context.emit();
    let prologue = Prologue { kind: Kind::Context, time: begin, ..Prologue::data(3) }.sized(fields.len());
    of("context", 0, &[&prologue.emit()[..], &fields].concat());
    seeds
}

/// Control words of each kind, and words as line bits.
fn spacefibre_seeds() -> Vec<(&'static str, String, Vec<u8>)> {
    let seq = SequenceNumber { count: 5, negative: true };
    let lane = [
        ControlWord::Skip,
        ControlWord::Idle,
        ControlWord::Init1,
        ControlWord::Init2,
        ControlWord::InvertedInit1,
        ControlWord::InvertedInit2,
        ControlWord::Init3(Capability::MULTI_LANE),
        ControlWord::Standby { reason: 1 },
        ControlWord::LostSignal(LostSignalCause::ReceiveErrors),
        ControlWord::Active { lanes: 0xF },
        ControlWord::Align { lane: 3, lanes: 4 },
        ControlWord::AlignRedundant,
        ControlWord::Pad,
    ];
    let link = [
        ControlWord::StartDataFrame { vc: 1 },
        ControlWord::EndDataFrame { seq, crc: 0x1234 },
        ControlWord::StartBroadcastFrame { channel: 1, kind: 2 },
        ControlWord::EndBroadcastFrame { status: Default::default(), seq, crc: 0 },
        ControlWord::StartIdleFrame { seq },
        ControlWord::FlowControlToken { vc: 1, multiplier: 4, seq },
        ControlWord::Ack { seq },
        ControlWord::Nack { seq },
        ControlWord::Full { seq },
        ControlWord::Retry,
    ];
    let words = |words: &[ControlWord]| {
        let piece = |word: Word| [&[word.control][..], &word.characters].concat();
        [vec![0], words.iter().flat_map(|word| piece(word.emit())).collect()].concat()
    };
    let line = |flags: u8, words: &[Word]| {
        let mut encoder = Encoder::new();
        let bits = words.iter().flat_map(|word| encoder.encode(*word).to_le_bytes()[..5].to_vec());
        [vec![flags], bits.map(|byte| if flags == 1 { !byte } else { byte }).collect()].concat()
    };
    let idle = ControlWord::Idle.emit();
    let end = Word { characters: [1, 0xFD, 0xFB, 0xFB], control: 0b1110 };
    let frame = [idle, idle, idle, link[0].emit(), Word::data(*b"data"), end, link[1].emit(), idle, idle];
    let init = [ControlWord::Init1.emit(); 6];
    let seeds = [
        ("lane", words(&lane)),
        ("link", words(&link)),
        ("line", line(0, &frame)),
        ("line_inverted", line(1, &init)),
        ("line_with_error", line(0, &[idle, idle, idle, end, Word::RXERR, idle, end, idle, idle])),
    ];
    seeds.map(|(name, seed)| ("spacefibre_words", name.into(), seed)).into()
}

/// RDMA packets over SpaceFibre, with their data and data CRC.
fn rdma_seeds() -> Vec<(&'static str, String, Vec<u8>)> {
    use rdma::{Command, Header, Operation, Reply, ReplyKind, Status};
    let command =
        |operation| Command { reply_requested: true, key: 0x1234, ..Command::new(operation, 0x12, 0xFF_FFFF) };
    let reply = |kind| Reply { msn: 7, ..Reply::new(kind, 0x34, 0xFF_FFFF) };
    let write = Command { address: 0x1000, operation_len: 20, offset: 8, data_len: 8, ..command(Operation::Write) };
    let write_imm =
        Command { operation: Operation::WriteImm, address: 0x1004, offset: 12, solicited: true, imm: 9, ..write };
    let send = Command { operation: Operation::Send, key: 0, address: 0, ..write };
    let last = Command { offset: 12, ..send };
    let timer = RnrTimer::from_code(12).unwrap();
    let first = ReplyKind::Read { first: true, last: false };
    let packets = [
        ("read", Header::Command(Command { operation_len: 20, ..command(Operation::Read) })),
        ("write", Header::Command(write)),
        ("write_imm", Header::Command(write_imm)),
        ("send", Header::Command(send)),
        ("send_imm", Header::Command(Command { operation: Operation::SendImm, imm: 9, ..last })),
        ("send_invalidate", Header::Command(Command { operation: Operation::SendInvalidate, key: 0x1234, ..last })),
        ("compare_swap", Header::Command(Command { address: 8, ..command(Operation::CompareSwap) })),
        ("fetch_add", Header::Command(Command { address: 8, ..command(Operation::FetchAdd) })),
        ("read_reply", Header::Reply(Reply { data_len: 8, ..reply(first) })),
        ("acknowledgement", Header::Reply(reply(ReplyKind::Acknowledge))),
        ("atomic_reply", Header::Reply(reply(ReplyKind::Atomic))),
        ("invalid_key", Header::Reply(Reply { status: Status::InvalidKey, ..reply(ReplyKind::Acknowledge) })),
        (
            "receiver_not_ready",
            Header::Reply(Reply { status: Status::ReceiverNotReady(timer), ..reply(ReplyKind::Acknowledge) }),
        ),
    ];
    let mut seeds = Vec::new();
    for (name, header) in packets {
        let data_len = match header {
            Header::Command(command) => command.data_len,
            Header::Reply(reply) => reply.data_len,
        };
        let mut packet = header.emit().to_vec();
        if data_len > 0 {
            let data: Vec<u8> = (0..data_len as u8).collect();
            packet.extend(&data);
            packet.extend(crc32(&data).to_le_bytes());
        }
        seeds.push(("spacefibre_rdma", name.to_owned(), packet));
    }
    seeds
}

#[test]
fn committed_seeds_are_current() {
    for (target, name, bytes) in seeds() {
        assert_committed(&folder(target).join(name), &bytes);
    }
}

/// A datagram with a record of each kind, and one that initialises the link.
fn datagram_seeds() -> Vec<(&'static str, String, Vec<u8>)> {
    let up = datagram::Header { initialises: false, scrambled: true, lanes: 4, number: 3, session: 7, peer_session: 9 };
    let first = datagram::Header { initialises: true, number: 0, peer_session: 0, ..up };
    let record = |record: datagram::Record| [record.emit().to_vec(), vec![0x55; record.body_len(4)]].concat();
    let data = datagram::Record::Data { characters: 5, end: Some(datagram::PacketEnd::Eop) };
    let records = [datagram::Record::Words { count: 2 }, data, datagram::Record::Broadcast].map(record).concat();
    let records = [up.emit().to_vec(), records].concat();
    [("records", records), ("initialise", first.emit().to_vec())]
        .map(|(name, bytes)| ("spacefibre_datagram", name.into(), bytes))
        .into()
}
