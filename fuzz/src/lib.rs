//! Invariants of arbitrary bytes from a network, one function per parser.
//!
//! The fuzz targets call these functions, and `crates/wire/tests/integration/seeds.rs` with the committed seeds.
//! The comment of each describes its input.

use arrayvec::ArrayVec;
use shotline_wire::block::{self, Description};
use shotline_wire::framing::digitizer::Header;
use shotline_wire::framing::{
    self, Digitizer, Extras, Framing, Hsb, Link, Packet, Placement, Position, SampleContext, Signal, Spead, Vita49,
};
use shotline_wire::hsb::{Metadata, PSN_BITS};
use shotline_wire::icrc::{self, Flow, Network};
use shotline_wire::record::{self, Record};
use shotline_wire::setup::{Acknowledgement, Message, Trigger, refuse_malformed};
use shotline_wire::shot::{Geometry, Packetization, Packing, Trailer};
use shotline_wire::spacefibre::crc::crc8;
use shotline_wire::spacefibre::datagram;
use shotline_wire::spacefibre::line::{DECODER_LATENCY, Decoder, Encoder};
use shotline_wire::spacefibre::{ControlWord, Word, rdma};
use shotline_wire::spead::Flavour;
use shotline_wire::vita49::{Context, Data, Format, Fraction, Prologue, Seconds, Time};
use shotline_wire::{crc, ipv4, ipv6, roce, udp};

/// A UDP payload of RoCEv2.
pub fn roce_packet(data: &[u8]) {
    if let Ok(header) = roce::ud_header(data) {
        assert_eq!(roce::ud_header(&header.emit()), Ok(header));
    }
    let Ok(packet) = roce::Packet::parse(data) else { return };
    assert_eq!(packet.wire_len(), data.len());
    // Only reserved bits of the header may be lost.
    let mut again = data.to_vec();
    let header = packet.emit_header();
    again[..header.len()].copy_from_slice(&header);
    assert_eq!(roce::Packet::parse(&again), Ok(packet));
}

/// An IP packet or Ethernet frame, and its ICRC.
pub fn ip_packet(data: &[u8]) {
    let _ = (icrc::verify_frame(data), icrc::verify_grh_packet(data), icrc::of_ip_packet(data));
    let Ok(verdict) = icrc::verify_ip_packet(data) else { return };
    // For a packet that a socket could have sent, the ICRC computed from its parts must be the same.
    let Some((flow, payload)) = socket_packet(data) else { return };
    let Some((covered, stored)) = payload.split_last_chunk::<4>() else { return };
    let stored = u32::from_le_bytes(*stored);
    let (header, rest) = covered.split_at(12);
    let seal = |flow: Flow| {
        let register = icrc::after_header(flow.prefix(payload.len() as u16), header);
        icrc::seal(register, rest.len() as u64, crc::remainder(rest))
    };
    assert_eq!(seal(flow) == stored, verdict);
    if let Network::V4 { src, dst, id } = flow.network {
        let with_id_zero = seal(Flow { network: Network::V4 { src, dst, id: 0 }, ..flow });
        let bytes_after = icrc::bytes_after_ipv4_id(payload.len() as u16);
        let solved = icrc::solve_ipv4_id(stored, with_id_zero, bytes_after);
        assert_eq!(solved == Some(id), verdict);
    }
}

/// Flow and UDP payload of an IP packet, if a socket could have sent it.
fn socket_packet(data: &[u8]) -> Option<(Flow, &[u8])> {
    let (network, rest) = match ipv4::Header::parse(data) {
        Ok((ip, rest)) if ip.dont_fragment && data[0] == 0x45 && data[6] == 0x40 => {
            (Network::V4 { src: ip.source, dst: ip.destination, id: ip.id }, rest)
        }
        _ => {
            let (ip, rest) = ipv6::Header::parse(data).ok()?;
            (Network::V6 { src: ip.source, dst: ip.destination }, rest)
        }
    };
    let (udp, payload) = udp::Header::parse(rest).ok()?;
    // A datagram shorter than its packet is legal, but never sent by a socket.
    (payload.len() + udp::Header::LEN == rest.len())
        .then_some((Flow { network, src_port: udp.source, dst_port: udp.destination }, payload))
}

/// Geometry (4 bytes), payload length (2 bytes) and a header for [`framing::Ud`].
pub fn framing_ud(data: &[u8]) {
    place(&framing::Ud, data);
}

/// Geometry (4 bytes), payload length (2 bytes) and a header for [`framing::Counted`].
pub fn framing_counted(data: &[u8]) {
    place(&framing::Counted, data);
}

/// Geometry (4 bytes), payload length (2 bytes) and a header for [`framing::Udp`].
pub fn framing_udp(data: &[u8]) {
    place(&framing::Udp, data);
}

fn place(framing: &dyn Framing, data: &[u8]) {
    let Some((&[channels, samples @ .., packing], rest)) = data.split_first_chunk::<4>() else { return };
    let Some((&len, header)) = rest.split_first_chunk() else { return };
    let (samples, len) = (u16::from_be_bytes(samples).into(), u16::from_be_bytes(len).into());
    let packing = Packing::from_u8(packing & 1).unwrap_or(Packing::Int16Le);
    let Ok(g) = Geometry::new(channels.into(), samples, 12, packing, 0) else { return };
    assert!(framing.header_len(header) <= framing::MAX_HEADER);
    let Ok(Placement { position, len }) = framing.place(header, len, &g) else { return };
    let Position::Shot { number, bits, offset, last } = position else {
        assert!(len == 4096 || len == g.packet_bytes(g.packets() - 1));
        return;
    };
    assert!(number.checked_shr(bits).unwrap_or(0) == 0, "the number has more bits than the wire carries");
    assert_eq!(last, offset + len == g.shot_bytes());
    same_place_again(framing, &g, number, offset, Placement { position, len });
}

/// A packet that was placed has the same destination when it is emitted again.
fn same_place_again(framing: &dyn Framing, g: &Geometry, number: u64, offset: u32, place: Placement) {
    let packet = Packet::at(g, 0, number, offset).expect("a placement is a packet of the shot");
    assert_eq!(packet.len, place.len);
    let mut again = ArrayVec::new();
    framing.emit(&Link::default(), &packet, &mut again);
    assert_eq!(framing.place(&again, place.len, g), Ok(place));
}

/// Heap, first and other pieces, items (2 bytes each), payload length (2 bytes) and a header for [`framing::Spead`];
/// odd items choose the flavour 64-40.
pub fn framing_spead(data: &[u8]) {
    let Some(([samples, first, rest, items, len], header)) = words(data) else { return };
    let flavour = if items % 2 == 1 { Flavour::F40 } else { Flavour::F48 };
    let framing = Spead { flavour, first_items: items, items };
    let packetization = Packetization { first: first.into(), rest: rest.into(), separate_trailer: false };
    let Some(g) = geometry(samples, Trailer::None, packetization) else { return };
    assert!(framing.header_len(header) <= framing::MAX_HEADER);
    let placed = framing.place(header, len.into(), &g);
    let signal = framing.signal(header, &g);
    let Ok(Placement { position, len }) = placed else { return };
    let Position::Shot { number, bits, offset, last } = position else { panic!("a SPEAD heap has a shot number") };
    let taken = signal.map(|signal| if let Signal::Control { number, .. } = signal { number } else { u64::MAX });
    assert!(number >> bits == 0 && taken.is_none_or(|taken| taken == number));
    assert_eq!(last, offset + len == g.shot_bytes());
    same_place_again(&framing, &g, number, offset, Placement { position, len });
}

/// Frame, payload, pages and step (2 bytes each), payload length (2 bytes) and a header for [`framing::Hsb`]; odd
/// pages select metadata in a separate packet.
pub fn framing_hsb(data: &[u8]) {
    let Some(([samples, payload, pages, step, len], header)) = words(data) else { return };
    let framing = Hsb { base: 0x1000_0000, step: step.max(1).into(), pages: pages.max(1).into(), r_key: 0x1234 };
    let packetization = Packetization { separate_trailer: pages % 2 == 1, ..Packetization::uniform(payload.into()) };
    let Some(g) = geometry(samples, Trailer::HsbMetadata, packetization) else { return };
    assert!(framing.header_len(header) <= framing::MAX_HEADER);
    let Ok(Placement { position, len }) = framing.place(header, len.into(), &g) else { return };
    let Position::Paged { page, pages, first, bits, offset } = position else { panic!("an HSB frame has a page") };
    assert!(page < pages && first >> bits == 0 && bits == PSN_BITS && offset + len <= g.shot_bytes());
    let index = g.packet_at(offset).expect("a placement is a packet of the shot");
    let packet = Packet::nth(&g, first + index, page.into(), index).expect("the index is below the number of packets");
    let mut again = ArrayVec::new();
    framing.emit(&Link::default(), &packet, &mut again);
    assert_eq!(framing.place(&again, len, &g), Ok(Placement { position, len }));
}

/// End-of-frame metadata of a sensor bridge.
pub fn hsb_metadata(data: &[u8]) {
    if let Ok(metadata) = Metadata::parse(data) {
        assert_eq!(Metadata::parse(&metadata.emit()), Ok(metadata));
    }
}

/// Samples and payload of a packet (2 bytes each), payload length (2 bytes) and a packet of a digitizer's block.
pub fn framing_digitizer(data: &[u8]) {
    let Some((&[a, b, c, d, e, f], packet)) = data.split_first_chunk() else { return };
    let [samples, payload, len] = [[a, b], [c, d], [e, f]].map(u16::from_be_bytes);
    if let Ok((header, rest)) = Header::parse(packet) {
        assert_eq!(Header::parse(&[&header.emit(), rest].concat()), Ok((header, rest)));
    }
    let (shape, packetization) = ((2, samples.into()), Packetization::uniform(payload.into()));
    let Ok(g) = Geometry::with_packetization(shape, (16, Packing::Int16Le), 0, Trailer::Block, packetization) else {
        return;
    };
    assert!(Digitizer.header_len(packet) <= framing::MAX_HEADER);
    let _ = Digitizer.key(packet);
    let Ok(Placement { position, len }) = Digitizer.place(packet, len.into(), &g) else { return };
    let Position::Shot { number, offset, last, .. } = position else { panic!("a block has a number") };
    assert_eq!(last, offset + len == g.shot_bytes());
    let packet = Packet::at(&g, 0, number, offset).expect("a placement is a packet of the block");
    assert_eq!(packet.len, len);
}

/// The description of a block.
pub fn block_description(data: &[u8]) {
    let Some(bytes) = data.first_chunk::<{ block::LEN }>() else { return };
    let Ok(description) = Description::parse(bytes) else { return };
    // Compared as bytes, because unknown values are NaN.
    let emitted = description.emit();
    assert_eq!(Description::parse(&emitted).map(|again| again.emit()), Ok(emitted));
}

/// Samples and payload of a packet (2 bytes each), rate (4 bytes), payload length (2 bytes) and a VITA 49 packet.
pub fn framing_vita49(data: &[u8]) {
    let Some((&[a, b, c, d, r0, r1, r2, r3, e, f], packet)) = data.split_first_chunk() else { return };
    let [samples, payload, len] = [[a, b], [c, d], [e, f]].map(u16::from_be_bytes);
    if let Ok((prologue, contents)) = Prologue::parse(packet) {
        let again = [&prologue.emit()[..], contents].concat();
        assert_eq!(Prologue::parse(&again), Ok((prologue, contents)));
    }
    let _ = Data::parse(packet);
    if let Ok((prologue, context)) = Context::parse(packet) {
        let context = Context { skipped: 0, ..context };
        let fields = context.emit();
        let again = [&prologue.sized(fields.len()).emit()[..], &fields].concat();
        assert_eq!(Context::parse(&again).map(|(_, again)| again), Ok(context));
    }
    let (shape, packetization) = ((2, samples.into()), Packetization::uniform(payload.into()));
    let Ok(g) = Geometry::with_packetization(shape, (16, Packing::Int16Be), 0, Trailer::Context, packetization) else {
        return;
    };
    let begin = Time { seconds: Some(Seconds::Gps(1_400_000_000)), fraction: Some(Fraction::Picoseconds(0)) };
    let rate = u32::from_be_bytes([r0, r1, r2, r3]).into();
    let framing =
        Vita49 { begin, rate, sample_bytes: 4, format: Format::IQ16, sample_context: SampleContext::default() };
    assert!(framing.header_len(packet) <= framing::MAX_HEADER);
    let _ = (framing.key(packet), framing.count(packet), framing.signal(packet, &g));
    let Ok(Placement { position, len }) = framing.place(packet, len.into(), &g) else { return };
    let Position::Shot { number, offset, last, .. } = position else { panic!("a timestamp gives a block number") };
    assert_eq!(last, offset + len == g.sent_bytes());
    let _ = framing.stamp_tai_ns(number, &g);
    let packet = Packet::at(&g, 0, number, offset).expect("a placement is a packet of the block");
    assert_eq!(packet.len, len);
}

/// Returns five big-endian 16-bit numbers and the remaining bytes.
fn words(data: &[u8]) -> Option<([u16; 5], &[u8])> {
    let (words, rest) = data.split_first_chunk::<10>()?;
    Some((core::array::from_fn(|at| u16::from_be_bytes([words[2 * at], words[2 * at + 1]])), rest))
}

fn geometry(samples: u16, trailer: Trailer, packetization: Packetization) -> Option<Geometry> {
    Geometry::new(1, samples.into(), 8, Packing::Uint8, 0).ok()?.sent_as(trailer, packetization).ok()
}

/// An end-of-shot record.
pub fn record(data: &[u8]) {
    let Some(bytes) = data.first_chunk::<{ record::LEN }>() else { return };
    let Ok(record) = Record::parse(bytes) else { return };
    assert_eq!(Record::parse(&record.emit(record::stored_crc(bytes))), Ok(record));
    if let Ok(geometry) = record.geometry() {
        let of = Record::of(&geometry);
        assert_eq!((of.packets, of.sample_bytes), (record.packets, record.sample_bytes));
    }
}

/// A datagram to a probe's set-up port, or from it.
pub fn setup(data: &[u8]) {
    if let Ok(trigger) = Trigger::parse(data) {
        assert_eq!(Trigger::parse(&trigger.emit()), Ok(trigger));
        assert!(Acknowledgement::parse(data).is_err());
    }
    if let Ok(answer) = Acknowledgement::parse(data) {
        assert_eq!(Acknowledgement::parse(&answer.emit()), Ok(answer));
    }
    match Message::parse(data) {
        Ok(message) => assert_eq!(Message::parse(&message.emit()), Ok(message)),
        Err(_) => {
            let Some(refusal) = refuse_malformed(data) else { return };
            assert!(Message::parse(&refusal).is_ok());
        }
    }
}

/// A flag (bit 0: inverted polarity), then pieces of 5 bytes: each is a word (K flags and characters), and 40 line bits.
pub fn spacefibre_words(data: &[u8]) {
    let Some((flags, pieces)) = data.split_first() else { return };
    let mut decoder = Decoder::new();
    decoder.set_inverted(flags & 1 == 1);
    for &[control, a, b, c, d] in pieces.as_chunks().0 {
        spacefibre_word(Word { characters: [a, b, c, d], control: control & 0xF });
        let word = decoder.decode(u64::from_le_bytes([control, a, b, c, d, 0, 0, 0]));
        assert!(word.control < 16);
        spacefibre_word(word);
        if word.is_data() {
            assert_eq!(sent_and_received(word), word);
        }
    }
}

/// A word, parsed and emitted.
fn spacefibre_word(word: Word) {
    match ControlWord::parse(word) {
        Ok(Some(control)) => {
            assert!(!word.is_data() && !word.is_rxerr());
            assert_eq!(ControlWord::parse(control.emit()), Ok(Some(control)));
        }
        Ok(None) => {}
        Err(error) => assert_ne!(error.expected, error.found),
    }
}

/// Passes a word over a line that is synchronised.
fn sent_and_received(word: Word) -> Word {
    let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new());
    let idle = [ControlWord::Idle.emit(); DECODER_LATENCY + 1];
    let words = idle.into_iter().chain([word]).chain(idle);
    let received: Vec<_> = words.map(|word| decoder.decode(encoder.encode(word))).collect();
    received[idle.len() + DECODER_LATENCY]
}

/// An RDMA packet over SpaceFibre.
pub fn spacefibre_rdma(data: &[u8]) {
    rdma_packet(data);
    // The same with a correct header CRC, which the fuzzer would have to guess.
    let mut sealed = data.to_vec();
    let is_command = data.get(2).is_some_and(|instruction| instruction & 0x40 != 0);
    let len = if is_command { rdma::Command::LEN } else { rdma::Reply::LEN };
    if let Some((crc, covered)) = sealed.get_mut(..len).and_then(|header| header.split_last_mut()) {
        *crc = crc8(covered);
        rdma_packet(&sealed);
    }
}

fn rdma_packet(packet: &[u8]) {
    let Ok((header, rest)) = rdma::Header::parse(packet) else {
        assert!(rdma::Command::parse(packet).is_err() && rdma::Reply::parse(packet).is_err());
        return;
    };
    assert_eq!(packet.strip_prefix(header.emit().as_slice()), Some(rest));
    let packet_len = match header {
        rdma::Header::Command(command) => {
            let rdma::Command { dest_qp, transaction_id, .. } = command;
            assert_eq!(rdma::Command::recipient(packet), Ok(rdma::Recipient { dest_qp, transaction_id }));
            command.packet_len()
        }
        rdma::Header::Reply(reply) => reply.packet_len(),
    };
    let data = header.data(rest);
    assert_eq!(data.is_ok(), packet.len() == packet_len);
    if let Ok(bytes) = data.and_then(rdma::Data::verify) {
        assert!(bytes.is_empty() == rest.is_empty());
        assert!(bytes.is_empty() || crc::register(u32::MAX, rest) == crc::RESIDUE);
    }
}

/// A carrier's datagram of SpaceFibre frames.
pub fn spacefibre_datagram(data: &[u8]) {
    spacefibre_records(data);
    // The same with correct CRCs of the header and of the first record, which the fuzzer would have to guess.
    let mut sealed = data.to_vec();
    let Some((covered, crc)) =
        sealed.get_mut(..datagram::Header::LEN).and_then(|header| header.split_last_chunk_mut::<4>())
    else {
        return;
    };
    *crc = crc::crc32(covered).to_be_bytes();
    if let Some([head @ .., crc]) =
        sealed.get_mut(datagram::Header::LEN..datagram::Header::LEN + datagram::Record::HEADER_LEN)
    {
        *crc = crc8(head);
    }
    spacefibre_records(&sealed);
}

fn spacefibre_records(data: &[u8]) {
    let Ok((header, records)) = datagram::Header::parse(data) else { return };
    assert_eq!(data.strip_prefix(header.emit().as_slice()), Some(records));
    let mut records = records.to_vec();
    let mut rest = records.as_mut_slice();
    while !rest.is_empty() {
        let before = rest.len();
        let head = rest.first_chunk().copied();
        let Ok((record, body, after)) = datagram::Record::parse(rest, header.lanes) else { return };
        assert_eq!(Some(record.emit()), head);
        assert_eq!(datagram::Record::HEADER_LEN + body.len() + after.len(), before);
        rest = after;
    }
}
