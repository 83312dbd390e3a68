//! 07: Queue pairs over a transport of your own, and a server that answers messages by WRITE.
//!
//! `cargo run --package shotline-verbs --example 07-custom-endpoint`
//!
//! The client SENDs the number of a block. The server WRITEs the block into the client's memory, with immediate data
//! that completes a receive there. Both are in this program, one thread each, to keep it short.
//!
//! An endpoint of RoCEv2 needs nothing but a `PacketIo`: here (`side.rs`) that of example 06. Other packets need a
//! `shotline_verbs::endpoint::Datapath`, and hardware an `api::Provider`. These belong in the crate `verbs`, which has
//! the protocol engines and the conformance suite: "A provider of endpoints" in CONTRIBUTING.md lists the files.

mod side;
#[path = "../06-custom-transport/unix_io.rs"]
mod unix_io;

use shotline_memory::Mr;
use shotline_verbs::api::{CompletionKind, Operation, Provider as _, Remote};
use side::Side;
use std::error::Error;
use std::net::SocketAddr;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

type Failure = Box<dyn Error + Send + Sync>;

const BLOCK: usize = 100_000;
const BLOCKS: usize = 4;
/// Offset of a message in the memory, after the blocks. It is one byte, the number of a block.
const MESSAGE: usize = BLOCKS * BLOCK;

/// The server: answers as many requests as there are blocks. `to` is the memory of the client.
fn serve(mut side: Side, to: Mr) -> Result<(), Failure> {
    (0..BLOCKS).for_each(|block| side.memory.write(block * BLOCK, &[block as u8 + 1; BLOCK]));
    let mut answered = 0;
    while answered < BLOCKS {
        match side.next()?.kind {
            CompletionKind::Recv => {
                let mut block = [0];
                side.memory.read(MESSAGE, &mut block);
                side.post_recv()?; // before the answer, which the next request follows
                let offset = usize::from(block[0]) % BLOCKS * BLOCK;
                let remote = Remote { address: to.address + offset as u64, rkey: to.rkey };
                side.post_send(Operation::WriteImm(remote, block[0].into()), offset, BLOCK)?;
            }
            _ => answered += 1, // a WRITE: its bytes are at the client
        }
    }
    Ok(())
}

fn main() -> Result<(), Failure> {
    let (here, there) = UnixDatagram::pair()?;
    let [client, server]: [SocketAddr; 2] = ["10.0.0.1:4791".parse()?, "10.0.0.2:4791".parse()?];
    let (mut a, mut b) = (Side::open(here, client, server)?, Side::open(there, server, client)?);
    // Between programs, `shotline_verbs::cm` exchanges the numbers and keys.
    a.connect((server, b.qp.0))?;
    b.connect((client, a.qp.0))?;
    b.post_recv()?;
    let to = a.mr;
    let server = std::thread::spawn(move || serve(b, to));
    for block in (0..BLOCKS).rev() {
        a.post_recv()?; // the WRITE with immediate data takes it, and leaves its memory alone
        a.memory.write(MESSAGE, &[block as u8]);
        a.post_send(Operation::Send, MESSAGE, 1)?;
        let answer = [a.next()?, a.next()?].into_iter().find_map(|done| done.imm); // the other one is of the SEND
        let mut bytes = vec![0; BLOCK];
        a.memory.read(block * BLOCK, &mut bytes);
        let is_whole = bytes.iter().all(|byte| usize::from(*byte) == block + 1);
        println!("block {}: {BLOCK} bytes, as at the server: {is_whole}", answer.ok_or("no immediate data")?);
    }
    while !server.is_finished() {
        a.endpoint.wait(Duration::from_millis(1))?; // acknowledges the last WRITE
    }
    server.join().map_err(|_| "the server panicked")?
}
