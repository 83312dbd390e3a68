//! The peer process of the tests in `crates/transport/tests/integration/carrier_processes.rs`: the end of a
//! shared-memory path whose socket is standard input.
//!
//! ```sh
//! carrier_peer echo          # sends back each datagram
//! carrier_peer send COUNT    # sends numbered datagrams, prints "sent", and sleeps
//! ```

use shotline_transport::IoError;
use shotline_transport::carrier::{Carrier, shm::ShmCarrier, wait};
use std::collections::VecDeque;
use std::time::Duration;

/// Limit of one sleep: only a test that fails reaches it.
const TIMEOUT: Duration = Duration::from_secs(60);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let mut carrier = ShmCarrier::over(rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), 0)?)?;
    match &arguments[..] {
        [mode] if mode == "echo" => echo(&mut carrier)?,
        [mode, count] if mode == "send" => send(&mut carrier, count.parse()?)?,
        _ => return Err(format!("expected echo or send COUNT, found {arguments:?}").into()),
    }
    Ok(())
}

/// Sends back each datagram until the peer has gone.
fn echo(carrier: &mut ShmCarrier) -> Result<(), IoError> {
    let mut backlog = VecDeque::new();
    loop {
        loop {
            match carrier.receive() {
                Ok(Some(bytes)) => backlog.push_back(bytes.to_vec()),
                Ok(None) => break,
                Err(IoError::Disconnected) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        while let Some(bytes) = backlog.front()
            && carrier.remaining() > 0
        {
            carrier.append(bytes);
            carrier.finish()?;
            backlog.pop_front();
        }
        carrier.flush()?;
        wait(carrier, TIMEOUT)?;
    }
}

/// Sends numbered datagrams of 1000 bytes, then sleeps for ever.
fn send(carrier: &mut ShmCarrier, count: u64) -> Result<(), IoError> {
    for number in 0..count {
        while carrier.remaining() == 0 {
            carrier.flush()?;
            wait(carrier, TIMEOUT)?;
        }
        carrier.append(&number.to_le_bytes().repeat(125));
        carrier.finish()?;
    }
    carrier.flush()?;
    println!("sent");
    loop {
        std::thread::sleep(TIMEOUT);
    }
}
