//! The control protocol as `docs/wire-formats.md` specifies it, against the library's messages and a real target.

use serde_json::{Value, json};
use shotline_memory::{Access, Region};
use shotline_spacefibre::frames::{FrameConfig, FrameLink};
use shotline_verbs::api::Mtu;
use shotline_verbs::cm::message::{
    Accept, Answer, Bits24, Cause, Disconnect, Hello, Kind, LinksFrom, MAX_HELLO_BYTES, MAX_LINKS, MAX_MESSAGE_BYTES,
    MAX_RD_ATOMIC, MAX_RECEIVES, MAX_REGIONS, MAX_SERVICE_LEVEL, Offer, PathMtu, Receives, Refusal, RegionInfo,
    RegionKey, Regions, RegisteredMemory, Request, Rights, RoleAssignment, Statistics, TargetRole, VERSION, Welcome,
    framed, parse,
};
use shotline_verbs::cm::{ControlAddress, ControlLimits, Export, Exports, Target, Token};
use shotline_verbs::soft::{SoftEndpoint, UdpOptions};
use shotline_verbs::spacefibre::{CarrierKind, LinkOptions, LinkParameters, LinkStatus, LinksStatus};
use shotline_wire::{icrc, ipv4, udp};
use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};

const DOCUMENT: &str = include_str!("../../../../docs/wire-formats.md");

/// Returns the section of the document.
fn section() -> &'static str {
    let (_, section) = DOCUMENT.split_once("\n## 14. Control protocol of a target\n").expect("the section");
    section.split("\n## ").next().unwrap_or_default()
}

/// Returns the code block after the mark of an example.
fn example(name: &str) -> &'static str {
    let (_, rest) = section().split_once(&format!("<!-- example: {name} -->\n```text\n")).expect(name);
    rest.split("```").next().unwrap_or_default()
}

fn bytes_of(hex: &str) -> Vec<u8> {
    hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).expect(hex)).collect()
}

/// A message of the documented conversation.
struct Documented {
    is_request: bool,
    bytes: Vec<u8>,
}

impl Documented {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes[4..]).unwrap()
    }
}

fn conversation() -> Vec<Documented> {
    let message = |line: &str| {
        let (direction, rest) = line.split_at(1);
        let (length, text) = rest.split_at(12);
        assert!([">", "<"].contains(&direction), "{line}");
        Documented { is_request: direction == ">", bytes: [bytes_of(length), text.as_bytes()[1..].to_vec()].concat() }
    };
    example("control-conversation").lines().map(message).collect()
}

#[test]
fn documented_conversation_is_parsed_and_written_unchanged() {
    let conversation = conversation();
    assert!(conversation.len() >= 14);
    for Documented { is_request, bytes } in conversation {
        let again = match is_request {
            true => framed(&parse::<Request>(&bytes[4..]).unwrap()),
            false => framed(&parse::<Answer>(&bytes[4..]).unwrap()),
        };
        assert_eq!(again, bytes, "{}", String::from_utf8_lossy(&bytes[4..]));
    }
}

/// Serves the regions of the documented conversation with its token until `stop` is set.
fn target() -> Target<SoftEndpoint<shotline_transport::udp::UdpIo>> {
    let endpoint = SoftEndpoint::udp("127.0.0.1:0".parse().unwrap(), UdpOptions::default()).unwrap();
    let mut exports = Exports::new(endpoint);
    let change = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::LOCAL_WRITE;
    for (name, bytes, rights) in [("images", 1 << 20, change), ("counters", 4096, change | Access::REMOTE_ATOMIC)] {
        let (name, region) = (name.to_owned().try_into().unwrap(), Region::heap(bytes).unwrap());
        exports.export(Export { name, region, bytes: bytes as u64, rights }).unwrap();
    }
    let token: Token = "00112233445566778899aabbccddeeff".parse().unwrap();
    Target::listen(exports, &ControlAddress::Tcp("127.0.0.1:0".parse().unwrap()), token).unwrap()
}

#[test]
fn documented_conversation_is_that_of_a_real_target() {
    let mut target = target();
    let address = target.local_addr().unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _end = SetOnDrop(&stop);
        scope.spawn(|| target.serve(&stop).unwrap());
        for (documented, found) in converse(&mut TcpStream::connect(address).unwrap()) {
            assert_eq!(found, documented);
        }
    });
    assert_eq!((target.counters().welcomed, target.exports().initiators().count()), (1, 0));
}

/// Sets a flag when it is dropped, also by a failed assertion, so that the thread that waits for it ends.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sends the documented requests. Returns the documented answers and those of the target, whose random numbers, ports and
/// counters are replaced by the documented ones.
fn converse(stream: &mut TcpStream) -> Vec<(Value, Value)> {
    let (mut answers, mut qp) = (Vec::new(), None);
    for message in conversation() {
        if message.is_request {
            let mut request = message.json();
            // The number of the target's queue pair is random.
            if let Some(qp) = qp.clone().filter(|_| request["type"] == "disconnect") {
                request["qp"] = qp;
            }
            stream.write_all(&framed(&request)).unwrap();
            continue;
        }
        let mut length = [0; 4];
        stream.read_exact(&mut length).unwrap();
        let mut bytes = vec![0; u32::from_be_bytes(length) as usize];
        stream.read_exact(&mut bytes).unwrap();
        let (documented, mut found) = (message.json(), serde_json::from_slice::<Value>(&bytes).unwrap());
        if found["type"] == "accept" {
            qp = Some(found["qp"].clone());
        }
        if let (Some(qp), Some(text)) = (&qp, found["message"].as_str()) {
            let documented = documented["message"].as_str().unwrap_or_default();
            let number = documented.rsplit(' ').next().unwrap_or_default();
            found["message"] = text.replace(&qp.to_string(), number).into();
        }
        for varies in ["qp", "psn", "q_key", "address", "cpu_s", "packets_in", "packets_out"] {
            replace_value(&mut found, &documented, varies);
        }
        let keys = found.get_mut("keys").and_then(Value::as_array_mut).into_iter().flatten();
        let documented_keys = documented["keys"].as_array().into_iter().flatten();
        for (key, documented) in keys.zip(documented_keys) {
            replace_value(key, documented, "rkey");
        }
        answers.push((documented, found));
    }
    answers
}

/// Replaces a field by the documented one of the same kind.
fn replace_value(found: &mut Value, documented: &Value, field: &str) {
    if let (Some(found), Some(documented)) = (found.get_mut(field), documented.get(field)) {
        assert_eq!((found.is_number(), found.is_string()), (documented.is_number(), documented.is_string()), "{field}");
        *found = documented.clone();
    }
}

#[test]
fn documented_packets_have_the_icrc_of_their_bytes() {
    let mut packets = vec![Vec::new(); 2];
    let mut current = 0;
    for line in example("control-packets").lines() {
        current = match line.split_whitespace().next() {
            Some("WRITE") => 0,
            Some("ACK") => 1,
            _ => current,
        };
        packets[current].extend(bytes_of(&line[15..]));
    }
    for (payload, [source, destination]) in packets.iter().zip([[49152, 4791], [4791, 49152]]) {
        let (loopback, len) = ([127, 0, 0, 1], payload.len() as u16);
        let ip = ipv4::Header {
            tos: 0,
            id: 0,
            dont_fragment: true,
            ttl: 64,
            protocol: udp::PROTOCOL,
            source: loopback,
            destination: loopback,
            payload_len: len + 8,
        };
        let udp = udp::Header { source, destination, payload_len: len, checksum: 0 };
        let whole = [ip.emit().as_slice(), &udp.emit(), payload].concat();
        assert_eq!(icrc::verify_ip_packet(&whole), Ok(true), "{payload:02x?}");
    }
    let accept = conversation().into_iter().map(|message| message.json()).find(|message| message["type"] == "accept");
    let accept = accept.unwrap();
    let word = |at: usize| u64::from(u32::from_be_bytes(packets[0][at..at + 4].try_into().unwrap()));
    assert_eq!((word(4), word(20)), (accept["qp"].as_u64().unwrap(), accept["keys"][0]["rkey"].as_u64().unwrap()));
}

/// Returns one request of each kind, with all fields. The matches do not compile if a new kind is missing.
fn requests() -> Vec<Request> {
    let number = Bits24::new(5).unwrap();
    let memory = RegisteredMemory { address: 0, bytes: 8, rkey: 1 };
    let offer = Offer {
        kind: Kind::Rc,
        address: Some("127.0.0.1:9".parse().unwrap()),
        qp: number,
        psn: number,
        mtu: PathMtu(Mtu::B1024),
        max_dest_rd_atomic: 1,
        max_rd_atomic: 1,
        service_level: 1,
        receives: Receives { count: 1, bytes: 1 },
        sends: 1,
    };
    let roles = [
        TargetRole::Echo,
        TargetRole::Commands,
        TargetRole::Ping { region: 0, bytes: 8, memory },
        TargetRole::Stream { read: true, bytes: 8, group: 1, memory },
    ];
    for role in roles {
        match role {
            TargetRole::Echo | TargetRole::Commands | TargetRole::Ping { .. } | TargetRole::Stream { .. } => {}
        }
    }
    let mut requests = vec![
        Request::Hello(Hello { version: VERSION, token: Token::from_bytes([0; 16]) }),
        Request::Regions,
        Request::Link,
        Request::Connect(offer),
        Request::Disconnect(Disconnect { qp: number }),
        Request::Statistics,
        Request::Links(LinksFrom { first: 0 }),
        Request::Goodbye,
    ];
    requests.extend(roles.map(|role| Request::StartRole(RoleAssignment { qp: number, role })));
    for request in &requests {
        match request {
            Request::Hello(_)
            | Request::Regions
            | Request::Link
            | Request::Connect(_)
            | Request::StartRole(_)
            | Request::Disconnect(_)
            | Request::Statistics
            | Request::Links(_)
            | Request::Goodbye => {}
        }
    }
    requests
}

/// Returns one answer of each kind, with all fields, and one for each cause of a refusal.
fn answers() -> Vec<Answer> {
    let number = Bits24::new(5).unwrap();
    let region = RegionInfo { name: "images".to_owned().try_into().unwrap(), bytes: 1, rights: Rights(Access::ALL) };
    let mut answers = vec![
        Answer::Welcome(Welcome {
            version: VERSION,
            provider: "spacefibre".into(),
            max_queue_pairs: 1,
            max_operation: 1,
            supports_roles: true,
            link: Some(LinkParameters { carrier: CarrierKind::Udp, lanes: 1, channels: 1 }),
        }),
        Answer::Regions(Regions { regions: vec![region.clone()] }),
        Answer::Linked,
        Answer::Accept(Accept {
            address: Some("127.0.0.1:9".parse().unwrap()),
            qp: number,
            psn: number,
            mtu: PathMtu(Mtu::B1024),
            max_rd_atomic: 1,
            q_key: 1,
            keys: vec![RegionKey { region, address: 0, rkey: 1 }],
        }),
        Answer::RoleStarted,
        Answer::Disconnected,
        Answer::Statistics(Statistics::default()),
        Answer::Links(Box::new(LinksStatus { links: vec![link()], ..LinksStatus::default() })),
        Answer::Goodbye,
    ];
    answers.extend(causes().map(|cause| Answer::Refused(Refusal::new(cause, "why"))));
    for answer in &answers {
        match answer {
            Answer::Welcome(_)
            | Answer::Regions(_)
            | Answer::Linked
            | Answer::Accept(_)
            | Answer::RoleStarted
            | Answer::Disconnected
            | Answer::Statistics(_)
            | Answer::Links(_)
            | Answer::Goodbye
            | Answer::Refused(_) => {}
        }
    }
    answers
}

fn causes() -> [Cause; 7] {
    let causes =
        [Cause::Token, Cause::Version, Cause::Message, Cause::Limit, Cause::Unsupported, Cause::Unknown, Cause::Failed];
    for cause in causes {
        match cause {
            Cause::Token
            | Cause::Version
            | Cause::Message
            | Cause::Limit
            | Cause::Unsupported
            | Cause::Unknown
            | Cause::Failed => {}
        }
    }
    causes
}

fn link() -> LinkStatus {
    let channels = LinkOptions::new(1, 1).unwrap().channels;
    let link = FrameLink::new(FrameConfig { lanes: 1, scrambled: true, seed: 1 }, &channels).unwrap();
    LinkStatus::of(0, "127.0.0.1:9".parse().unwrap(), &link)
}

/// Adds the names of all fields, and the values that are names.
fn collect(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                names.insert(field.clone());
                let is_name = ["type", "cause", "kind", "carrier"].contains(&field.as_str());
                names.extend(value.as_str().filter(|_| is_name).map(str::to_owned));
                collect(value, names);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| collect(value, names)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn every_message_field_and_cause_is_documented() {
    let requests = requests().into_iter().map(|request| serde_json::to_value(request).unwrap());
    let answers = answers().into_iter().map(|answer| serde_json::to_value(answer).unwrap());
    let mut names = BTreeSet::new();
    requests.chain(answers).for_each(|message| {
        collect(&message, &mut names);
        names.extend(message["role"]["name"].as_str().map(str::to_owned));
    });
    names.extend(["uc", "ud", "shm"].map(str::to_owned));
    assert!(names.len() > 100, "{names:?}");
    let is_documented = |name: &&String| section().contains(&format!("`{name}`"));
    let missing: Vec<_> = names.iter().filter(|name| !is_documented(name)).collect();
    assert!(missing.is_empty(), "not in section 14: {missing:?}");
}

#[test]
fn documented_limits_are_those_of_the_library() {
    let ControlLimits { sessions, max_unauthenticated, message, wrong_token } = ControlLimits::default();
    for row in [
        format!("The version of this protocol is {VERSION}."),
        format!("| length of a message | {},{:03} bytes |", MAX_MESSAGE_BYTES / 1000, MAX_MESSAGE_BYTES % 1000),
        format!("| length of the first message | {MAX_HELLO_BYTES} bytes |"),
        format!("from the connection on | {} s |", message.as_secs()),
        format!("| connections without token | {max_unauthenticated} |"),
        format!("`--initiators`, {sessions} |"),
        format!("comes after {} s |", wrong_token.as_secs_f64()),
        format!("array | at most {MAX_REGIONS} objects"),
        format!("array | at most {MAX_LINKS} links"),
        format!("`count` (u16, at most {MAX_RECEIVES})"),
        format!("accepts at once, at most {MAX_RD_ATOMIC} |"),
        format!("| u8 | at most {MAX_SERVICE_LEVEL};"),
    ] {
        assert!(section().contains(&row), "not in section 14: {row}");
    }
}

#[test]
fn unknown_fields_are_handled_as_documented() {
    for (message, is_valid) in [
        (json!({"type": "hello", "version": 2, "token": "0".repeat(32), "new": 1}), false),
        (json!({"type": "regions", "new": 1}), true),
        (json!({"type": "goodbye", "new": 1}), true),
        (json!({"type": "disconnect", "qp": 5, "new": 1}), false),
        (json!({"qp": 5, "type": "disconnect"}), true),
        (json!({"type": "reset"}), false),
    ] {
        assert_eq!(parse::<Request>(message.to_string().as_bytes()).is_ok(), is_valid, "{message}");
    }
    let answer = json!({"type": "welcome", "version": 2, "provider": "soft", "max_queue_pairs": 1, "max_operation": 1,
        "supports_roles": false, "new": 1});
    assert!(matches!(parse::<Answer>(answer.to_string().as_bytes()), Ok(Answer::Welcome(_))));
}
