use super::*;
use crate::shot::{Geometry, Packing};
use core::net::{IpAddr, SocketAddr};
use proptest::prelude::*;
use std::string::ToString;
use std::vec::Vec;

fn geometry() -> impl Strategy<Value = Geometry> {
    (1_u16..300, 1_u32..500, 1_u8..13, any::<bool>(), any::<u32>()).prop_filter_map(
        "odd",
        |(c, s, bits, packed, rate)| {
            Geometry::new(c, s, bits, if packed { Packing::Packed12 } else { Packing::Int16Le }, rate).ok()
        },
    )
}

fn address() -> impl Strategy<Value = SocketAddr> {
    (any::<IpAddr>(), any::<u16>()).prop_map(|(ip, port)| SocketAddr::new(ip.to_canonical(), port))
}

fn configure() -> impl Strategy<Value = Configure> {
    (any::<[u8; 2]>(), geometry(), address(), 0_u32..1 << 24, any::<[u32; 2]>()).prop_map(
        |([link, framing], geometry, destination, dest_qp, [q_key, stream])| Configure {
            link,
            framing,
            geometry,
            destination,
            dest_qp,
            q_key,
            stream,
        },
    )
}

fn source() -> impl Strategy<Value = Source> {
    (address(), 0_u32..1 << 24, 0_u32..1 << 24, any::<u32>())
        .prop_map(|(address, qp, first_psn, pattern_period)| Source { address, qp, first_psn, pattern_period })
}

fn array() -> impl Strategy<Value = ArrayDescription> {
    (prop::array::uniform5(1..=u32::MAX), any::<[i32; 3]>(), 1..=u16::MAX).prop_map(
        |(
            [pitch_nm, width_nm, height_nm, centre_hz, sound_speed_mm_s],
            [first_angle_urad, last_angle_urad, initial_time_ns],
            waves,
        )| ArrayDescription {
            pitch_nm,
            width_nm,
            height_nm,
            centre_hz,
            sound_speed_mm_s,
            first_angle_urad,
            last_angle_urad,
            initial_time_ns,
            waves,
        },
    )
}

fn describe() -> impl Strategy<Value = Describe> {
    let array = prop::option::of(array());
    ("[ -~]{0,32}", any::<[u8; 3]>(), any::<u16>(), any::<bool>(), any::<[u32; 3]>(), array).prop_map(
        |(model, [links, bits, framings], channels, packed, [sample_rate_hz, max_samples, pattern_period], array)| {
            Describe {
                model: Model::from(&model).unwrap(),
                links,
                channels,
                bits,
                packing: if packed { Packing::Packed12 } else { Packing::Int16Le },
                sample_rate_hz,
                max_samples,
                framings,
                pattern_period,
                array,
            }
        },
    )
}

fn start() -> impl Strategy<Value = Start> {
    let mode = prop_oneof![
        Just(Mode::FreeRunning),
        Just(Mode::ExternalTrigger),
        (1..=Mode::MAX_MILLIHERTZ).prop_map(|millihertz| Mode::FixedRate { millihertz }),
    ];
    (mode, any::<u64>()).prop_map(|(mode, shots)| Start { mode, shots })
}

fn report() -> impl Strategy<Value = Report> {
    (any::<u8>(), any::<[bool; 2]>(), any::<[u64; 4]>(), any::<[u32; 5]>()).prop_map(
        |(
            link,
            [running, is_owned_by_other],
            [next_shot, shots_sent, packets_sent, triggers_missed],
            [owner_silent_ms, lost, duplicated, reordered, corrupted],
        )| Report {
            link,
            running,
            is_owned_by_other,
            owner_silent_ms,
            next_shot,
            shots_sent,
            packets_sent,
            triggers_missed,
            lost,
            duplicated,
            reordered,
            corrupted,
        },
    )
}

fn sequence() -> impl Strategy<Value = Sequence> {
    prop::collection::vec(any::<u16>(), 0..=Sequence::MAX_EVENTS).prop_map(|events| Sequence::new(&events).unwrap())
}

fn trigger() -> impl Strategy<Value = Trigger> {
    (any::<[u32; 2]>(), any::<u64>(), any::<[bool; 3]>()).prop_map(|([sequence, token], stamp, flags)| {
        let [acknowledge, command_only, take_over] = flags;
        Trigger { sequence, token, stamp, acknowledge, command_only, take_over }
    })
}

fn verdict() -> impl Strategy<Value = Verdict> {
    prop_oneof![
        any::<u64>().prop_map(|shot| Verdict::Accepted { shot }),
        Just(Verdict::Busy),
        Just(Verdict::NotRunning),
        Just(Verdict::Repeated),
        Just(Verdict::Owned),
        (6_u8..).prop_map(Verdict::Other),
    ]
}

fn body() -> impl Strategy<Value = Body> {
    let request = prop_oneof![
        Just(Request::Query),
        configure().prop_map(Request::Configure),
        start().prop_map(Request::Start),
        any::<u8>().prop_map(|link| Request::Stop { link }),
        any::<u8>().prop_map(|link| Request::Status { link }),
        sequence().prop_map(Request::Sequence),
    ];
    let reply = prop_oneof![
        describe().prop_map(Reply::Describe),
        (configure(), source()).prop_map(|(configure, source)| Reply::Configured(configure, source)),
        any::<u64>().prop_map(|first_shot| Reply::Started { first_shot }),
        report().prop_map(Reply::Stopped),
        report().prop_map(Reply::Status),
        sequence().prop_map(Reply::Sequenced),
        (0_u8..128, 1_u8..)
            .prop_map(|(kind, code)| { Reply::Refused { kind, refusal: Refusal::from_code(code).unwrap() } }),
    ];
    prop_oneof![
        (any::<bool>(), request).prop_map(|(take_over, request)| Body::Request { take_over, request }),
        reply.prop_map(Body::Reply),
    ]
}

fn start_request() -> Message {
    let start = Start { mode: Mode::FixedRate { millihertz: 7_000_000 }, shots: 10 };
    Message::request(5, 0xABCD, false, Request::Start(start))
}

#[test]
fn rates_out_of_range_are_refused() {
    let max = 1_000_000_000_000;
    let parsed = |millihertz| {
        let start = Start { mode: Mode::FixedRate { millihertz }, shots: 0 };
        Message::parse(&Message::request(5, 7, false, Request::Start(start)).emit())
    };
    assert!(parsed(1).is_ok() && parsed(max).is_ok());
    for found in [0, max + 1, u64::MAX] {
        assert_eq!(parsed(found), Err(ParseError::Range { what: "rate in millihertz", min: 1, max, found }));
    }
}

#[test]
fn a_reply_echoes_sequence_and_token() {
    let request = start_request();
    let refusal = request.refuse(Refusal::Owned).unwrap();
    assert_eq!((refusal.sequence, refusal.token), (5, 0xABCD));
    assert_eq!(refusal.body, Body::Reply(Reply::Refused { kind: 3, refusal: Refusal::Owned }));
    assert_eq!(refusal.refuse(Refusal::Owned), None, "replies are not answered");
}

#[test]
fn unreadable_requests_are_refused_with_their_reason() {
    let reason = |at: usize, value: u8| {
        let mut bytes = start_request().emit();
        bytes[at] = value;
        Message::parse(&refuse_malformed(&bytes)?).ok().map(|reply| (reply.sequence, reply.token, reply.body))
    };
    let refused = |kind, refusal| Some((5, 0xABCD, Body::Reply(Reply::Refused { kind, refusal })));
    assert_eq!(reason(4, 2), refused(3, Refusal::Version));
    assert_eq!(reason(5, 0x70), refused(0x70, Refusal::Kind));
    assert_eq!(reason(16, 9), refused(3, Refusal::Malformed));
    assert_eq!(reason(0, 0), None, "not a set-up message");
    assert_eq!(reason(5, 0xFF), None, "a reply");
    assert_eq!(reason(16, 1), None, "a valid request");
    assert_eq!(refuse_malformed(&[0; 127]), None);
}

#[test]
fn invalid_geometry_has_its_own_refusal() {
    let configure = Configure {
        link: 0,
        framing: 0,
        geometry: Geometry::new(96, 2000, 12, Packing::Packed12, 0).unwrap(),
        destination: SocketAddr::new([127, 0, 0, 1].into(), 4791),
        dest_qp: 1,
        q_key: 2,
        stream: 3,
    };
    let mut bytes = Message::request(1, 2, false, Request::Configure(configure)).emit();
    bytes[52..54].copy_from_slice(&[0, 0]);
    let Body::Reply(reply) = Message::parse(&refuse_malformed(&bytes).unwrap()).unwrap().body else { panic!() };
    assert_eq!(reply, Reply::Refused { kind: 2, refusal: Refusal::Geometry });
    bytes[20] = 0;
    assert!(matches!(Message::parse(&bytes), Err(ParseError::Length { expected: 4096, found: 0, .. })));
}

#[test]
fn refusals_have_unique_codes_and_advice() {
    assert_eq!(Refusal::from_code(0), None);
    for code in 1..=u8::MAX {
        let refusal = Refusal::from_code(code).unwrap();
        assert_eq!(refusal.code(), code);
        assert!(refusal.to_string().contains(':'), "{refusal}");
    }
    assert_eq!(Refusal::Other(0).code(), 1);
}

#[test]
fn model_name_with_control_characters_is_refused() {
    let describe = Describe {
        model: Model::from("probe").unwrap(),
        links: 1,
        channels: 96,
        bits: 12,
        packing: Packing::Packed12,
        sample_rate_hz: 1,
        max_samples: 1,
        framings: 0b101,
        pattern_period: 0,
        array: None,
    };
    assert!(describe.supports(2) && !describe.supports(1) && !describe.supports(200));
    let message = start_request().reply(Reply::Describe(describe)).emit();
    for (at, byte) in [(16, 0x1B), (17, 0xFF), (30, b'x')] {
        let mut bytes = message;
        bytes[at] = byte;
        assert_eq!(Message::parse(&bytes), Err(ParseError::Text { what: "model" }));
    }
}

#[test]
fn array_is_described_or_zeros() {
    let array = ArrayDescription {
        pitch_nm: 300_000,
        width_nm: 270_000,
        height_nm: 5_000_000,
        centre_hz: 5_000_000,
        sound_speed_mm_s: 1_540_000,
        first_angle_urad: -174_533,
        last_angle_urad: 174_533,
        initial_time_ns: -2,
        waves: 5,
    };
    let describe = Describe {
        model: Model::from("probe").unwrap(),
        links: 2,
        channels: 96,
        bits: 12,
        packing: Packing::Packed12,
        sample_rate_hz: 40_000_000,
        max_samples: 4000,
        framings: 7,
        pattern_period: 0,
        array: Some(array),
    };
    let message = |describe| start_request().reply(Reply::Describe(describe)).emit();
    let bytes = message(describe);
    assert_eq!(bytes[68..84], *b"\0\x04\x93\xE0\0\x04\x1E\xB0\0\x4C\x4B\x40\0\x4C\x4B\x40");
    assert_eq!(bytes[84..104], *b"\0\x17\x7F\xA0\xFF\xFD\x56\x3B\0\x02\xA9\xC5\xFF\xFF\xFF\xFE\0\x05\0\0");
    // Older probes send zeros, and other bytes after a pitch of 0 are reserved.
    let without = Describe { array: None, ..describe };
    assert!(message(without)[68..].iter().all(|byte| *byte == 0));
    let mut reserved = bytes;
    reserved[68..72].fill(0);
    assert_eq!(Message::parse(&reserved).unwrap().body, Body::Reply(Reply::Describe(without)));
    for (at, what) in [(72, "width"), (76, "height"), (80, "centre frequency"), (84, "speed"), (100, "plane waves")] {
        let mut zero = bytes;
        zero[at..(at + 4).min(102)].fill(0);
        let refused = Message::parse(&zero).unwrap_err().to_string();
        assert!(refused.contains(what), "{refused}");
    }
}

#[test]
fn trigger_is_64_bytes() {
    let trigger = Trigger { stamp: 0x1112_1314_1516_1718, ..Trigger::new(0x0102_0304) };
    let bytes = trigger.emit();
    assert_eq!(bytes[..24], *b"SHTR\x01\0\0\0\x01\x02\x03\x04\0\0\0\0\x11\x12\x13\x14\x15\x16\x17\x18");
    assert_eq!(Trigger::parse(&bytes), Ok(trigger));
    assert!(Trigger::parse(&bytes[..63]).is_err());
    let error = Trigger::parse(&[bytes.as_slice(), &[0]].concat()).unwrap_err();
    assert_eq!(error, ParseError::Length { what: "a trigger", expected: 64, found: 65 });
}

#[test]
fn acknowledgement_is_the_trigger_with_verdict_and_shot() {
    let trigger = Trigger { stamp: 7, acknowledge: true, command_only: true, ..Trigger::new(5) };
    assert_eq!(trigger.emit()[4..8], [1, 0b11, 0, 0]);
    let shot = 0x2122_2324_2526_2728;
    let accepted = Acknowledgement { trigger, verdict: Verdict::Accepted { shot } };
    let bytes = accepted.emit();
    assert_eq!(bytes[4..8], [1, 0x83, 1, 0]);
    assert_eq!(bytes[8..24], trigger.emit()[8..24]);
    assert_eq!(bytes[24..32], *b"\x21\x22\x23\x24\x25\x26\x27\x28");
    assert_eq!(Acknowledgement::parse(&bytes), Ok(accepted));
    let mut echo = trigger.emit();
    echo[5] |= 0x80;
    assert_eq!(Acknowledgement::parse(&echo), Err(ParseError::Unknown { what: "verdict", found: 0 }));
}

#[test]
fn triggers_and_acknowledgements_are_not_confused() {
    let trigger = Trigger { acknowledge: true, ..Trigger::new(5) };
    let answer = Acknowledgement { trigger, verdict: Verdict::Busy };
    assert!(Trigger::parse(&answer.emit()).is_err(), "a probe would execute another probe's reply");
    assert!(Acknowledgement::parse(&trigger.emit()).is_err());
}

#[test]
fn trigger_without_flags_keeps_its_encoding() {
    let mut bytes = [0; 64];
    bytes[..5].copy_from_slice(b"SHTR\x01");
    bytes[11] = 9;
    assert_eq!(Trigger::new(9).emit(), bytes);
}

#[test]
fn sequence_cycles_and_fits_a_message() {
    let sequence = Sequence::new(&[3, 1, 4]).unwrap();
    assert_eq!([0, 1, 2, 3, u64::MAX].map(|k| sequence.event(k)), [Some(3), Some(1), Some(4), Some(3), Some(3)]);
    assert_eq!((Sequence::NONE.event(5), Sequence::new(&[]).unwrap()), (None, Sequence::NONE));
    let full = Sequence::new(&[0xFFFF; 55]).unwrap();
    assert!(Message::request(1, 2, false, Request::Sequence(full)).emit()[18..].iter().all(|byte| *byte == 0xFF));
    let error = Sequence::new(&[1; 56]).unwrap_err();
    assert_eq!(error.to_string(), "count of transmit events must be 0 to 55, found 56");
}

#[test]
fn sequence_length_is_checked_and_trailing_bytes_are_ignored() {
    let mut bytes = Message::request(1, 2, false, Request::Sequence(Sequence::new(&[7, 8]).unwrap())).emit();
    bytes[22] = 0xEE;
    let Body::Request { request, .. } = Message::parse(&bytes).unwrap().body else { panic!() };
    assert_eq!(request, Request::Sequence(Sequence::new(&[7, 8]).unwrap()));
    bytes[17] = 56;
    assert!(matches!(Message::parse(&bytes), Err(ParseError::Range { found: 56, .. })));
    let Body::Reply(reply) = Message::parse(&refuse_malformed(&bytes).unwrap()).unwrap().body else { panic!() };
    assert_eq!(reply, Reply::Refused { kind: 6, refusal: Refusal::Malformed });
}

proptest! {
    #[test]
    fn triggers_and_acknowledgements_round_trip(trigger in trigger(), verdict in verdict()) {
        let answer = Acknowledgement { trigger, verdict };
        prop_assert_eq!(Trigger::parse(&trigger.emit()), Ok(trigger));
        prop_assert_eq!(Acknowledgement::parse(&answer.emit()), Ok(answer));
        prop_assert_eq!(answer.emit().len(), trigger.emit().len());
    }

    #[test]
    fn parse_inverts_emit(sequence: u32, token: u32, body in body()) {
        let message = Message { sequence, token, body };
        prop_assert_eq!(Message::parse(&message.emit()), Ok(message));
    }

    #[test]
    fn every_other_length_is_refused(body in body(), len in 0_usize..300) {
        let bytes = Message { sequence: 1, token: 2, body }.emit();
        let other: Vec<u8> = bytes.iter().copied().cycle().take(len).collect();
        prop_assert_eq!(Message::parse(&other).is_ok(), len == LEN);
    }

    #[test]
    fn parse_does_not_panic(kind: u8, status in 0_u8..3, mut bytes in prop::collection::vec(any::<u8>(), LEN), head: bool) {
        if head {
            bytes[..7].copy_from_slice(&[b'S', b'H', b'C', b'M', 1, kind & 0x87, status]);
        }
        if let Ok(message) = Message::parse(&bytes) {
            prop_assert_eq!(Message::parse(&message.emit()), Ok(message));
        }
        let _ = (refuse_malformed(&bytes), Trigger::parse(&bytes), Trigger::parse(&bytes[..64]));
        bytes[..5].copy_from_slice(b"SHTR\x01");
        if let Ok(answer) = Acknowledgement::parse(&bytes[..64]) {
            prop_assert_eq!(Acknowledgement::parse(&answer.emit()), Ok(answer));
        }
    }
}
