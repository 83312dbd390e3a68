//! RDMA verbs: registered memory, queue pairs, work requests, completions, in software and over RDMA devices.
//!
//! A program registers memory, which gives it keys. It posts work requests to a queue pair: SEND a message, WRITE into or
//! READ from the memory of the peer by address and key, atomic operations. A completion queue says when each is done. The
//! peer's program takes no part in a WRITE or a READ. The calls are the same for every [`provider`]: RoCEv2 in software over
//! UDP or any other packets ([`soft`]), shared memory ([`shm`]), SpaceFibre links ([`spacefibre`]), devices ([`ibverbs`]).
//!
//! # Write into the memory of a peer
//!
//! Both ends are in one program here, connected by queues instead of a network:
//!
//! ```
//! use shotline_memory::{Access, Addressing, Region};
//! use shotline_verbs::api::{
//!     Completion, Data, Element, Modify, Operation, Provider, QpConfig, QpType, Remote, SendWr, Status,
//! };
//! use shotline_verbs::soft::SoftEndpoint;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let addresses = ["10.0.0.1:4791".parse()?, "10.0.0.2:4791".parse()?];
//! // Between hosts: `SoftEndpoint::udp(address, UdpOptions::default())` at each.
//! let [mut a, mut b] = SoftEndpoint::pair(64, addresses)?;
//!
//! // Each end: a protection domain, memory with rights, a completion queue, a queue pair.
//! let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
//! let mut open = |end: &mut SoftEndpoint<_>| -> Result<_, Box<dyn std::error::Error>> {
//!     let (pd, memory, cq) = (end.alloc_pd()?, Region::host(4096)?, end.create_cq(16)?);
//!     let mr = end.reg_mr(pd, &memory, 0, 4096, access, Addressing::ZeroBased)?;
//!     let qp = end.create_qp(&QpConfig::new(QpType::Rc, pd, cq, cq))?;
//!     Ok((memory, mr, cq, qp))
//! };
//! let (source, local, cq, qp_a) = open(&mut a)?;
//! let (target, remote, _, qp_b) = open(&mut b)?;
//!
//! // Connect the queue pairs. Programs exchange these numbers and keys, for example by `cm`.
//! for change in Modify::connection(Access::REMOTE_WRITE, (addresses[1], qp_b.0), 0) {
//!     a.modify_qp(qp_a, change)?;
//! }
//! for change in Modify::connection(Access::REMOTE_WRITE, (addresses[0], qp_a.0), 0) {
//!     b.modify_qp(qp_b, change)?;
//! }
//!
//! // WRITE five bytes, and wait until they are there.
//! source.write(0, b"bytes");
//! let element = [Element { address: local.address, len: 5, lkey: local.lkey }];
//! let to = Remote { address: remote.address + 100, rkey: remote.rkey };
//! let request = SendWr::new(1, Operation::Write(to), Data::Elements(&element));
//! a.post_send(qp_a, &[request]).map_err(|(_, error)| error)?;
//! let mut done = [Completion::default()];
//! while a.poll_cq(cq, &mut done)? == 0 {
//!     b.progress()?; // the other program does this in a loop of its own
//! }
//! assert_eq!(done[0].status, Status::Success);
//! let mut bytes = [0; 5];
//! target.read(100, &mut bytes);
//! assert_eq!(&bytes, b"bytes");
//! # Ok(())
//! # }
//! ```
//!
//! # Modules
//!
//! In the order in which a program needs them:
//!
//! | module | contents |
//! |---|---|
//! | [`api`] | the verbs, the same for every provider; [`api::guide`] explains each with examples |
//! | [`soft`] | RoCEv2 in software, over UDP, Ethernet frames or any [`PacketIo`](shotline_transport::PacketIo) |
//! | [`cm`] | connections by name: a [`Target`](cm::Target) serves memory, a [`Client`](cm::Client) reaches it |
//! | [`connect`] | endpoints that are connected to targets, by the name of their provider |
//! | [`shm`], [`spacefibre`], [`ibverbs`] | the other providers: two processes of a host, SpaceFibre links, RDMA devices |
//! | [`provider`] | the registry of providers: names, capabilities, command-line syntax |
//! | [`rdma_cm`] | the InfiniBand connection manager protocol, which programs based on `librdmacm` use |
//! | [`ud`] | unreliable datagrams (IBTA 9.8.3) as a filter over any [`PacketIo`](shotline_transport::PacketIo) |
//! | [`conformance`] | checks that every provider must pass |
//! | [`endpoint`] | what providers in software share: endpoints over any link |
//! | [`engine`], [`sim`] | the protocols as state machines without I/O, and a simulated network for them, with a seed |
//!
//! The examples 01, 03, 04 and 07 in the folder `examples` of the repository are whole programs.
//!
//! # Extend it
//!
//! An endpoint over packets of your own needs only a [`PacketIo`](shotline_transport::PacketIo):
//! [`SoftEndpoint::with_transport`](soft::SoftEndpoint::with_transport) (`07-custom-endpoint`). Another protocol or device is
//! an implementation of [`api::Provider`], checked by [`conformance`]; CONTRIBUTING.md lists what belongs to it.
//!
//! # Threads
//!
//! One thread uses an endpoint at a time. No endpoint has a thread of its own: it sends, receives, acknowledges and repeats
//! packets only within [`poll_cq`](api::Provider::poll_cq), [`wait`](api::Provider::wait) and
//! [`progress`](api::Provider::progress), and an end that is not called answers nothing. To sleep, arm a completion queue
//! ([`arm_cq`](api::Provider::arm_cq)), poll it once more, then wait. The memory of a [`Region`](shotline_memory::Region)
//! may be used by other threads meanwhile.
//!
//! # Errors
//!
//! [`VerbsError`](api::VerbsError) says why a verb failed, and [`PostError`](api::PostError) why a request was not posted,
//! with its index: those before it are posted. A request that fails later ends with another
//! [`Status`](api::Status) than success; its queue pair is then in the error state and flushes the others. A wrong key or
//! address is dropped or refused by the peer and damages nothing. What a peer sends cannot cause a panic.
//!
//! # Features and stability
//!
//! The crate has no features: the library of RDMA devices is loaded when a device is opened. It needs Linux. Versions follow
//! Semantic Versioning; before 1.0 a new minor version may break programs. [`api`], [`cm`] and [`soft`] are meant for
//! programs and change rarely; [`endpoint`], [`engine`] and [`sim`] are the inside of the providers, public for their tests.
//! `api.txt` beside `Cargo.toml` lists the interface, and CHANGELOG.md what has changed.

pub mod api;
pub mod cm;
pub mod conformance;
pub mod connect;
mod dial;
pub mod endpoint;
pub mod engine;
pub mod ibverbs;
pub mod provider;
mod random;
pub mod rdma_cm;
pub mod shm;
pub mod sim;
mod slab;
pub mod soft;
pub mod spacefibre;
pub mod ud;
