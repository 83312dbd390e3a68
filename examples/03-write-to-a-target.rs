//! 03: an initiator. It writes to a region of a target by name, and reads it back.
//!
//! ```sh
//! shotline target --region images=64M,rights=rw          # prints the token; or example 04
//! cargo run --package shotline-verbs --example 03-write-to-a-target -- 127.0.0.1:47920 TOKEN images
//! ```

use shotline_memory::{Access, Addressing, Mr, Region};
use shotline_transport::udp::UdpIo;
use shotline_verbs::api::Status;
use shotline_verbs::api::{Completion, Cq, Data, Element, Operation, Provider, Qp, QpConfig, QpType, Remote, SendWr};
use shotline_verbs::cm::{Client, ControlAddress, QpRequest, TargetFailure};
use shotline_verbs::soft::{SoftEndpoint, UdpOptions};
use std::error::Error;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

const TEXT: &[u8] = b"written by an initiator";

/// A queue pair that is connected to the target.
struct Connection {
    endpoint: SoftEndpoint<UdpIo>,
    client: Client,
    cq: Cq,
    qp: Qp,
}

impl Connection {
    /// Posts one operation and waits for its completion.
    fn execute(&mut self, operation: Operation, local: &Mr, offset: u64, len: u32) -> Result<(), Box<dyn Error>> {
        let element = [Element { address: local.address + offset, len, lkey: local.lkey }];
        let request = SendWr::new(1, operation, Data::Elements(&element));
        self.endpoint.post_send(self.qp, &[request]).map_err(|(_, error)| error)?;
        let mut done = [Completion::default()];
        loop {
            // An armed queue has one event: the next completion. One that is there already has none, hence the poll.
            self.endpoint.arm_cq(self.cq, false)?;
            if self.endpoint.poll_cq(self.cq, &mut done)? == 1 {
                break;
            }
            self.endpoint.wait(Duration::from_millis(100))?;
            // The end of a target is seen here first: its operations would only end after their retries.
            if !self.client.is_connected() {
                return Err(TargetFailure::Closed.into());
            }
        }
        match done[0].status {
            Status::Success => Ok(()),
            status => Err(format!("{status:?}: {}", self.client.failure(status)).into()),
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [to, token, region, offset @ ..] = arguments.as_slice() else {
        return Err("expected ADDRESS:PORT TOKEN REGION [OFFSET]".into());
    };
    let offset: u64 = offset.first().map_or(Ok(0), |offset| offset.parse())?;

    // 1. An endpoint on the local address from which the target is reached, with any port.
    let to: SocketAddr = to.parse()?;
    let route = UdpSocket::bind(if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" })?;
    route.connect(to)?;
    let local = SocketAddr::new(route.local_addr()?.ip(), 0);
    let mut endpoint = SoftEndpoint::udp(local, UdpOptions::default())?;

    // 2. The control connection. It must stay open: the target revokes the keys when it ends.
    let mut client = Client::connect(&ControlAddress::Tcp(to), Some(local.ip()), token.parse()?)?;
    println!("target with {}, operations up to {} bytes", client.welcome().provider, client.welcome().max_operation);

    // 3. Local memory that the endpoint may read and write. The target has no access to it.
    let pd = endpoint.alloc_pd()?;
    let memory = Region::host(4096)?;
    let mr = endpoint.reg_mr(pd, &memory, 0, 4096, Access::LOCAL_WRITE, Addressing::ZeroBased)?;

    // 4. A queue pair here and one at the target, connected to each other. The answer has the keys of all regions.
    let cq = endpoint.create_cq(16)?;
    let config = QpConfig::new(QpType::Rc, pd, cq, cq);
    let (qp, accept) = client.open(&mut endpoint, &QpRequest::new(config))?;
    let key = accept.keys.into_iter().find(|key| key.region.name.as_str() == region);
    let key = key.ok_or_else(|| format!("the target has no region {region}"))?;
    println!("region {region}: {} bytes, rights {}", key.region.bytes, String::from(key.region.rights));
    let remote = Remote { address: key.address + offset, rkey: key.rkey };

    // 5. WRITE: the bytes are in the target's memory when the operation is complete.
    let mut connection = Connection { endpoint, client, cq, qp };
    memory.write(0, TEXT);
    connection.execute(Operation::Write(remote), &mr, 0, TEXT.len() as u32)?;
    println!("wrote {} bytes at offset {offset}", TEXT.len());

    // 6. READ: back, to another place of the local memory.
    connection.execute(Operation::Read(remote), &mr, 2048, TEXT.len() as u32)?;
    let mut back = vec![0; TEXT.len()];
    memory.read(2048, &mut back);
    println!("read {:?}", String::from_utf8_lossy(&back));

    // 7. Close in order: the target has destroyed its queue pair when this returns.
    connection.client.goodbye()?;
    Ok(())
}
