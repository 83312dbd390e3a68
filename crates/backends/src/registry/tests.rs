//! Tests of parsing, formatting, refusing and opening transports.

use super::*;
use shotline_memory::Sge;
use shotline_transport::Capabilities;
use shotline_transport::conformance::{self, BUFFERS, Collector, EndpointPair, Fixture, Memory};

fn read(text: &str) -> Result<Transport, String> {
    text.parse()
}

fn parameters(bind: &str, sealed: bool, memory: &Memory) -> ReceiverParameters {
    let bind = bind.parse().unwrap();
    let (capacity, receive_buffer) = (BUFFERS as usize, 4 << 20);
    ReceiverParameters {
        bind,
        sealed,
        remainders: true,
        capacity,
        scratch: memory.scratch,
        receive_buffer,
        in_order: None,
    }
}

#[test]
fn transport_parses_as_a_name_with_optional_arguments() {
    assert_eq!(read("udp"), Ok(Transport::Udp(Udp)));
    assert_eq!(read("dpdk:0000:03:00.0"), Ok(Transport::Dpdk(Dpdk("0000:03:00.0".into()))));
    assert_eq!(read("dpdk:net_memif0,id=0"), Ok(Transport::Dpdk(Dpdk("net_memif0,id=0".into()))));
    assert_eq!(read("auto"), Ok(Transport::Auto));
    assert_eq!(read("packet:eth1"), Ok(Transport::Packet(Packet("eth1".into()))));
    for bad in ["", "tcp", "dpdk", "dpdk:", "udp:1", "udp:", "xdp", "packet:"] {
        let expected = "expected auto, udp, xdp:INTERFACE, packet:INTERFACE, ibverbs:DEVICE or dpdk:DEVICE, such as \
                        xdp:eth1, ibverbs:mlx5_0, dpdk:net_memif0,role=server,id=0,socket=/run/shot.sock or \
                        dpdk:0000:03:00.0, found ";
        assert_eq!(read(bad).unwrap_err(), format!("{expected}{bad}"));
    }
    assert!(read("xdp:").unwrap_err().contains("expected an interface"));
}

#[test]
fn display_of_a_transport_parses_to_the_same() {
    for text in [
        "auto",
        "udp",
        "xdp:eth1",
        "xdp:eth1,queues=0-3,mode=native,copy=zero,chunks=1024",
        "xdp:eth1,mode=generic,copy=yes",
        "packet:lo",
        "ibverbs:",
        "ibverbs:mlx5_0",
        "ibverbs:mlx5_0,port=2,gid=3,headers=keep",
        "dpdk:0000:03:00.0",
    ] {
        let transport = read(text).unwrap();
        assert_eq!(transport.to_string(), text);
        let json = serde_json::to_string(&transport).unwrap();
        assert_eq!(serde_json::from_str::<Transport>(&json).unwrap(), transport);
    }
    assert_eq!(read("xdp:eth1,queues=2").unwrap(), read("xdp:eth1,queues=2-2").unwrap());
}

#[test]
fn receive_only_transports_name_those_that_send() {
    let options = Options::default();
    for text in ["auto", "xdp:eth1", "packet:eth1", "ibverbs:mlx5_0"] {
        assert_eq!(
            read(text).unwrap().check(Role::Sender, &options).unwrap_err(),
            "auto, xdp:INTERFACE, packet:INTERFACE and ibverbs:DEVICE only receive: send with udp or dpdk:DEVICE"
        );
        assert_eq!(read(text).unwrap().check(Role::Receiver, &options), Ok(()));
    }
    assert_eq!(read("packet:eth1").unwrap().check(Role::CompleteFrames, &options), Ok(()));
    let dpdk = read("dpdk:net_null0").unwrap().check(Role::Receiver, &options);
    assert_eq!(dpdk.is_ok(), cfg!(feature = "dpdk"), "{dpdk:?}");
}

#[test]
fn flags_that_a_transport_does_not_use_are_refused() {
    let given = [
        Options { mtu: Some(1500), ..Options::default() },
        Options { peer_mac: Some("02:00:00:00:00:01".into()), ..Options::default() },
        Options { eal: Some("--log-level=8".into()), ..Options::default() },
        Options { receive_buffer: Some(1 << 20), ..Options::default() },
    ];
    for (options, flag) in given.iter().zip(Flag::ALL) {
        let (text, users) = match flag {
            Flag::Mtu | Flag::PeerMac | Flag::Eal => ("udp", "dpdk:DEVICE"),
            Flag::ReceiveBuffer => ("xdp:eth1", "auto, udp or packet:INTERFACE"),
        };
        let why = read(text).unwrap().check(Role::Receiver, options).unwrap_err();
        let flag = flag.name();
        assert_eq!(why, format!("{text} does not use {flag}: omit it, or give --transport {users}"));
    }
    let packet = read("packet:eth1").unwrap();
    assert_eq!(packet.check(Role::CompleteFrames, &given[1]), Ok(()));
    assert!(packet.check(Role::Receiver, &given[1]).is_err());
    let bad = Options { peer_mac: Some("02:00".into()), ..Options::default() };
    assert!(packet.check(Role::CompleteFrames, &bad).unwrap_err().contains("expected an Ethernet address"));
}

#[test]
fn sockets_opened_by_the_registry_conform() {
    let memory = Memory::new();
    let (udp, options) = (Transport::default(), Options::default());
    for sealed in [true, false] {
        let open = |memory: &Memory| {
            let failed = |error: IoError| error.to_string();
            let parameters = parameters("[::1]:0", sealed, memory);
            let OpenedReceiver { io: rx, local: to, .. } =
                udp.open(&parameters, &options, &memory.regions).map_err(failed)?;
            let sending = SenderParameters { source: None, to, sealed, frames: 0, scratch: Sge::EMPTY };
            let OpenedSender { io: tx, .. } = udp.open_sender(&sending, &options, &memory.regions).map_err(failed)?;
            Ok(EndpointPair { tx, rx, to })
        };
        let capabilities = Capabilities { steers: true, credits: false };
        let fixture = Fixture { name: "udp".into(), sealed, capabilities, open, close: |_| Ok(()) };
        let report = conformance::run(fixture, &memory);
        report.expect_conformance();
    }
}

#[test]
fn opened_transports_have_the_listed_capabilities() {
    let memory = Memory::new();
    for text in ["udp", "packet:lo"] {
        let transport = read(text).unwrap();
        let parameters = parameters("127.0.0.1:0", true, &memory);
        let opened = match transport.open(&parameters, &Options::default(), &memory.regions) {
            Ok(opened) => opened,
            Err(error) if text != "udp" => shotline_testing::skip!("cannot open {text}: {error}"),
            Err(error) => panic!("{error}"),
        };
        let (about, can) = (transport.about(), opened.io.capabilities());
        assert_eq!((about.steers == "yes", about.credits == "yes"), (can.steers, can.credits), "{text}");
    }
}

#[test]
fn remainders_of_plain_packets_are_computed_only_if_wanted() {
    let memory = Memory::new();
    for text in ["udp", "packet:lo"] {
        for remainders in [true, false] {
            let parameters = ReceiverParameters { remainders, ..parameters("127.0.0.1:0", false, &memory) };
            let opened = match read(text).unwrap().open(&parameters, &Options::default(), &memory.regions) {
                Ok(opened) => opened,
                Err(error) if text != "udp" => shotline_testing::skip!("cannot open {text}: {error}"),
                Err(error) => panic!("{error}"),
            };
            let OpenedReceiver { mut io, local, .. } = opened;
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.send_to(&[7; 200], local).unwrap();
            let received = conformance::receive(&mut io, Collector::new(&memory, [].into()), 1).unwrap();
            assert_eq!(received[0].payload_crc != 0, remainders, "{text}");
        }
    }
}

#[test]
fn only_rdma_devices_receive_one_link() {
    assert_eq!(read("ibverbs:mlx5_0").unwrap().one_link(Role::Receiver).as_deref(), Some("mlx5_0"));
    for text in ["auto", "udp", "xdp:eth1", "packet:eth1"] {
        for role in [Role::Receiver, Role::Sender, Role::CompleteFrames] {
            assert_eq!(read(text).unwrap().one_link(role), None, "{text}");
        }
    }
}

#[test]
fn receive_only_transports_open_no_sender() {
    let memory = Memory::new();
    let to = "127.0.0.1:9".parse().unwrap();
    let sending = SenderParameters { source: None, to, sealed: true, frames: 0, scratch: Sge::EMPTY };
    for text in ["auto", "xdp:eth1", "ibverbs:mlx5_0"] {
        let opened = read(text).unwrap().open_sender(&sending, &Options::default(), &memory.regions);
        assert!(matches!(opened, Err(IoError::Config(_))), "{text}");
    }
}

#[test]
fn each_transport_has_a_row_starting_with_its_form() {
    let rows = crate::rows();
    let forms: Vec<_> = rows.iter().map(|row| row[0].as_str()).collect();
    assert_eq!(forms, ["auto", "udp", "xdp:INTERFACE", "packet:INTERFACE", "ibverbs:DEVICE", "dpdk:DEVICE"]);
    assert!(rows.iter().flatten().all(|cell| !cell.is_empty()), "{rows:?}");
}
