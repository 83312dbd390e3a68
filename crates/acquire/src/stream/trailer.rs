//! Checks of a shot's trailer.

use shotline_memory::Buffer;
use shotline_wire::framing::SampleContext;
use shotline_wire::hsb::Metadata;
use shotline_wire::record::Record;
use shotline_wire::shot::{Geometry, Presence, RECORD_BYTES};

/// Result of checking a shot's trailer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Proof {
    /// Set if the trailer is present and correct, and proves the shot as far as its kind can.
    pub(super) good: bool,
    /// Time of the first sample in nanoseconds of TAI; 0 if unknown.
    pub(super) stamp_tai_ns: u64,
    /// Flags as in an end-of-shot record.
    pub(super) flags: u8,
}

impl Proof {
    /// Result for a shot without a trailer: it is good if all of its packets are present.
    pub(super) fn without_trailer(presence: &Presence) -> Self {
        Self { good: presence.is_complete(), ..Self::default() }
    }

    /// Result by the shot's own record, if present. `is_proven`: the CRC over the whole shot is correct.
    pub(super) fn of_record(record: Option<&Record>, is_proven: bool) -> Self {
        record.map_or_else(Self::default, |record| Self {
            good: is_proven,
            stamp_tai_ns: record.tai_ns,
            flags: record.flags(),
        })
    }

    /// Result by context packets. Such a shot is proven only by the presence of all packets.
    pub(super) fn of_context(
        meaning: SampleContext,
        stamp_tai_ns: u64,
        geometry: &Geometry,
        presence: &Presence,
    ) -> Self {
        let clock_locked = meaning.locked == Some(true);
        let flags = Record { clock_locked, ..Record::of(geometry) }.flags();
        Self { good: presence.is_complete(), stamp_tai_ns, flags }
    }

    /// Result by the metadata of a sensor bridge, which is trusted because every packet was proven by its ICRC.
    pub(super) fn of_metadata(metadata: &Metadata, geometry: &Geometry, presence: &Presence) -> Self {
        let ended_early = metadata.flags & 1 != 0;
        let is_whole = metadata.valid_bytes == u64::from(geometry.sample_bytes()) && !ended_early;
        Self { good: presence.is_complete() && is_whole, stamp_tai_ns: metadata.first_ns, flags: 0 }
    }
}

/// Returns the end-of-shot record, if it is present and has this stream's number.
pub(super) fn record(geometry: &Geometry, stream: u32, buffer: &Buffer, presence: &Presence) -> Option<Record> {
    // The record is a bus word that never straddles two packets: padding aligned it.
    if !presence.contains(geometry.packets() - 1) {
        return None;
    }
    let mut bytes = [0; RECORD_BYTES as usize];
    buffer.read(geometry.shot_bytes() - RECORD_BYTES, &mut bytes);
    parse_record(&bytes, stream)
}

/// Parses the record of a stream; none if the bytes are no such record.
pub(super) fn parse_record(bytes: &[u8; RECORD_BYTES as usize], stream: u32) -> Option<Record> {
    Record::parse(bytes).ok().filter(|record| record.stream == stream)
}

/// Returns the metadata of a sensor bridge's frame, if present.
pub(super) fn metadata(geometry: &Geometry, buffer: &Buffer, presence: &Presence) -> Option<Metadata> {
    let last = geometry.packets() - 1;
    // With an unusual packet length the metadata may begin in the packet before.
    let is_split = geometry.trailer_offset() < geometry.packet_offset(last);
    if !presence.contains(last) || is_split && !presence.contains(last.saturating_sub(1)) {
        return None;
    }
    let mut bytes = [0; Metadata::LEN];
    buffer.read(geometry.trailer_offset(), &mut bytes);
    Metadata::parse(&bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use shotline_memory::{Pool, Registrar};
    use shotline_wire::shot::{Packetization, Packing, Trailer};

    fn all(packets: u32) -> Presence {
        let mut presence = Presence::empty(packets);
        (0..packets).for_each(|index| assert!(presence.insert(index)));
        presence
    }

    fn buffer(geometry: &Geometry) -> Buffer {
        Pool::new(&mut Registrar::new(), 1, geometry.slot_bytes()).unwrap().take().unwrap()
    }

    #[test]
    fn a_record_is_read_from_the_last_packet_of_its_own_stream() {
        let geometry = Geometry::new(8, 1000, 12, Packing::Packed12, 0).unwrap();
        let buffer = buffer(&geometry);
        let sent = Record { shot: 7, stream: 3, tai_ns: 9, ..Record::of(&geometry) };
        buffer.write(geometry.shot_bytes() - RECORD_BYTES, &sent.finish(u32::MAX));
        let mut presence = all(geometry.packets());
        let found = record(&geometry, 3, &buffer, &presence).unwrap();
        assert_eq!((found.shot, record(&geometry, 4, &buffer, &presence)), (7, None));
        let proof = Proof::of_record(Some(&found), true);
        assert_eq!((proof.good, proof.stamp_tai_ns, proof.flags), (true, 9, sent.flags()));
        assert_eq!(Proof::of_record(None, true), Proof::default());
        presence = Presence::empty(geometry.packets());
        assert_eq!(record(&geometry, 3, &buffer, &presence), None, "its packet is missing");
    }

    #[test]
    fn metadata_split_over_two_packets_need_both() {
        let geometry = Geometry::new(1, 1400, 8, Packing::Uint8, 0).unwrap();
        let geometry = geometry.sent_as(Trailer::HsbMetadata, Packetization::uniform(100)).unwrap();
        let (buffer, last) = (buffer(&geometry), geometry.packets() - 1);
        assert!(geometry.trailer_offset() < geometry.packet_offset(last));
        let sent = Metadata { first_ns: 5, valid_bytes: 1400, ..Metadata::default() };
        buffer.write(geometry.trailer_offset(), &sent.emit());
        let mut presence = Presence::empty(geometry.packets());
        presence.insert(last);
        assert!(metadata(&geometry, &buffer, &presence).is_none());
        presence.insert(last - 1);
        let found = metadata(&geometry, &buffer, &presence).unwrap();
        assert!(!Proof::of_metadata(&found, &geometry, &presence).good, "packets are missing");
        let proof = Proof::of_metadata(&found, &geometry, &all(geometry.packets()));
        assert_eq!(proof, Proof { good: true, stamp_tai_ns: 5, flags: 0 });
        for short in [Metadata { flags: 1, ..found }, Metadata { valid_bytes: 1399, ..found }] {
            assert!(!Proof::of_metadata(&short, &geometry, &all(geometry.packets())).good);
        }
    }
}
