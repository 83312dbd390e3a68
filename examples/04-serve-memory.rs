//! 04: a target. It serves two regions of its memory to initiators, until Enter is pressed.
//!
//! ```sh
//! cargo run --package shotline-verbs --example 04-serve-memory -- 127.0.0.1:47920    # prints the token
//! printf 'hello' | shotline put images --to 127.0.0.1:47920 --token TOKEN            # or example 03
//! shotline get --to 127.0.0.1:47920 --token TOKEN                                     # lists the regions
//! ```

use shotline_memory::{Access, Region};
use shotline_verbs::cm::{ControlAddress, Export, Exports, Target, Token};
use shotline_verbs::soft::{SoftEndpoint, UdpOptions};
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const IMAGES_BYTES: u64 = 64 << 20;
const COUNTERS_BYTES: u64 = 4096;

fn main() -> Result<(), Box<dyn Error>> {
    let listen: SocketAddr = std::env::args().nth(1).ok_or("expected ADDRESS:PORT to listen on")?.parse()?;

    // 1. The memory. The kernel may place it anywhere: initiators see addresses that begin at 0.
    let (images, counters) = (Region::host(IMAGES_BYTES as usize)?, Region::host(COUNTERS_BYTES as usize)?);

    // 2. An endpoint for the packets. Initiators learn its port; software needs no particular one.
    let endpoint = SoftEndpoint::udp(SocketAddr::new(listen.ip(), 0), UdpOptions::default())?;

    // 3. What is served: names, lengths and the rights of initiators. Memory that they change needs LOCAL_WRITE, too.
    let mut exports = Exports::new(endpoint);
    let change = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::LOCAL_WRITE;
    for (name, region, bytes, rights) in [
        ("images", &images, IMAGES_BYTES, change),
        ("counters", &counters, COUNTERS_BYTES, change | Access::REMOTE_ATOMIC),
    ] {
        exports.export(Export { name: name.to_owned().try_into()?, region: Arc::clone(region), bytes, rights })?;
    }

    // 4. Control connections. Who has the token has the rights of the regions: pass it on over a safe channel.
    let token = Token::random()?;
    let mut target = Target::listen(exports, &ControlAddress::Tcp(listen), token)?;
    println!("token {token}");
    println!("listening on {}", target.local_addr().ok_or("a TCP address")?);

    // 5. Serve. This thread executes the operations; any other may use the memory at the same time.
    let stop = Arc::new(AtomicBool::new(false));
    let on_enter = Arc::clone(&stop);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_line(&mut String::new());
        on_enter.store(true, Ordering::Relaxed);
    });
    target.serve(&stop)?;

    // 6. The initiators are disconnected, and their bytes are here.
    let mut text = [0; 23];
    images.read(0, &mut text);
    println!("images begins with {:?}", String::from_utf8_lossy(&text));
    for (export, usage) in target.exports().exports().iter().zip(target.exports().total_usage().unwrap_or_default()) {
        println!("{}: {} bytes written, {} bytes read", export.name, usage.bytes_in, usage.bytes_out);
    }
    Ok(())
}
