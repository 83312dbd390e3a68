use shotline_instrument::probe::{pace::Pace, *};
use shotline_memory::Sge;
use shotline_transport::udp::{UdpConfig, UdpIo};
use shotline_wire::{framing, setup::*, shot::*};
use std::net::*;
use std::time::*;
fn main() {
    let n: u32 = std::env::args().nth(1).unwrap().parse().unwrap();
    let mut p = Probe::new(
        Config { links: 1, samples: Some(n), free_running: Pace::Max, ..Config::default() },
        |w: &Wanted, r: &shotline_memory::Regions| {
            let io = UdpIo::open(
                &UdpConfig {
                    bind: "127.0.0.2:0".parse().unwrap(),
                    sealed: w.sealed,
                    capacity: 0,
                    scratch: Sge::EMPTY,
                    receive_buffer: 0,
                },
                r,
            )?;
            let source = io.local_addr();
            Ok(Outlet { io, source })
        },
    )
    .unwrap();
    let sink = UdpSocket::bind("127.0.0.1:0").unwrap();
    let g = Geometry::new(96, n, 12, Packing::Packed12, 0).unwrap();
    let c = Configure {
        link: 0,
        framing: framing::id_of("ud").unwrap(),
        geometry: g,
        destination: sink.local_addr().unwrap(),
        dest_qp: 9,
        q_key: 1,
        stream: 0,
    };
    p.receive(&Message::request(1, 1, false, Request::Configure(c)).emit(), 0).unwrap();
    p.receive(&Message::request(2, 1, false, Request::Start(Start { mode: Mode::FreeRunning, shots: 0 })).emit(), 0)
        .unwrap();
    let t = Instant::now();
    let mut shots = 0u64;
    while t.elapsed() < Duration::from_secs(2) {
        for _ in 0..16 {
            assert_eq!(p.next(0), Step::Fire);
            p.fire(Stamp::default(), &mut || true).unwrap();
            p.sent(0);
            shots += 1;
        }
    }
    println!(
        "{n}: {:.1} Gbit/s payload, {:.1} kshots/s",
        shots as f64 * g.shot_bytes() as f64 * 8.0 / t.elapsed().as_secs_f64() / 1e9,
        shots as f64 / t.elapsed().as_secs_f64() / 1e3
    );
}
