//! Receives packets and makes whole shots of them, with an account of everything that is missing.
//!
//! A *shot* is what an instrument measures at a time, in many packets. A run receives the packets of up to eight links,
//! puts each payload at its place in the buffer of its shot, joins the shots of the links into events, and hands the events
//! to a recorder, to the program, or to both. [`run::run`] does all of this: the program gives it [`config::Settings`] and
//! opens a transport.
//!
//! # Record, and take the shots at the same time
//!
//! ```no_run
//! use shotline_acquire::config::Settings;
//! use shotline_acquire::consumer::{Consumer, Next};
//! use shotline_acquire::live::Live;
//! use shotline_acquire::run::run;
//! use shotline_backends::{Options, Transport};
//! use std::sync::Arc;
//! use std::sync::atomic::AtomicBool;
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let settings = Settings {
//!     probe: Some("192.168.1.20:47910".parse()?), // `listen` for senders without set-up
//!     shots: Some(1000),
//!     out: Some(vec!["run.h5".into()]), // or `discard: Some(true)`: then the program is the only sink
//!     ..Settings::default()
//! };
//! let consumer = Consumer::new()?;
//! let live = Live::default().with_consumer(Arc::clone(&consumer));
//! let (transport, options) = (Transport::default(), Options::default()); // UDP sockets
//! let stop = AtomicBool::new(false); // any thread may set it to end the run
//! let outcome = std::thread::scope(|scope| {
//!     let running = scope.spawn(|| run(&settings, &stop, &live, |wanted, regions| transport.open(wanted, &options, regions)));
//!     loop {
//!         match consumer.next(Duration::from_secs(1)) {
//!             Next::Event(lent) => {
//!                 for shot in lent.event().shots.iter().flatten() {
//!                     let mut first = [0; 16];
//!                     shot.buffer.read(0, &mut first); // bytes as the instrument has sent them
//!                     println!("shot {}: complete {}, {first:?}", shot.meta.number, shot.meta.is_complete());
//!                 }
//!             }
//!             Next::TimedOut => {}
//!             Next::Ended => break running.join(),
//!         }
//!     }
//! })
//! .map_err(|_| "the run panicked")??;
//! outcome.end.check()?; // an error if the run was cut off
//! println!("{} complete shots, {} partial", outcome.total().complete, outcome.total().partial);
//! # Ok(())
//! # }
//! ```
//!
//! Settings are the flags of `shotline record` and the keys of its settings file, with the same defaults and checks:
//!
//! ```
//! use shotline_acquire::config::{Key, Settings};
//! use shotline_wire::framing::Kind;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let settings = Settings {
//!     listen: Some("127.0.0.1:47920".parse()?),
//!     framing: Some(Kind::Udp),
//!     discard: Some(true),
//!     ..Settings::default()
//! };
//! settings.check()?;
//! let wrong = Settings { idle_s: Some(-1.0), ..settings };
//! let invalid = wrong.check().unwrap_err();
//! assert_eq!(invalid.key, Key::idle_s);
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
//! | [`config`] | [`Settings`](config::Settings), their files, checks and defaults |
//! | [`run`](mod@run) | a whole run: [`run`](run::run()), [`run_with_description`](run::run_with_description) for framings of the caller, the [`Outcome`](run::Outcome) |
//! | [`consumer`] | shots for threads of the program, without a copy |
//! | [`live`] | counters and state of a run, for other threads |
//! | [`summary`], [`counters`], [`latency`], [`stages`] | what an outcome contains: the result as JSON or table, counters that balance, latencies, load |
//! | [`tap`], [`journal`] | a part of the shots for a display; what has changed, as messages |
//! | [`sink`] | the queue between receiving and a sink, and the policies when it is full |
//! | [`pretrigger`], [`trigger`] | recording around triggers; the latency of triggers |
//! | [`control`], [`learn`] | set-up of probes; learning of senders without set-up |
//! | [`receiver`], [`event`], [`align`], [`completion`] | parts of a run for a loop of your own: the [`Receiver`] of one transport, events of several links |
//! | [`clock`], [`cpu`] | TAI timestamps; processors and priorities of threads |
//!
//! # Extend it
//!
//! These need no change of a crate. The files are in the folder `examples` of the repository.
//!
//! - **Framing**: implement [`Framing`](shotline_wire::framing::Framing) and pass it in a
//!   [`SenderDescription`](run::SenderDescription) (`02-record-your-own-framing.rs`).
//! - **Sink**: take events from a [`Consumer`](consumer::Consumer) (`05-custom-sink.rs`).
//! - **Transport**: implement [`PacketIo`](shotline_transport::PacketIo) and return it from `open`
//!   (`06-custom-transport`).
//!
//! # Threads
//!
//! [`run::run`] blocks. The calling thread receives; a run starts further threads to record, to watch the probe and to
//! compress, and ends them before it returns. [`Live`](live::Live) and [`Consumer`](consumer::Consumer) may be used by any
//! number of threads, and never delay the receiving one. A [`Receiver`] is used by one thread.
//!
//! # Errors
//!
//! [`RunError`](run::RunError) says why a run could not begin. A failure later, such as a full drive, ends the run and is in
//! [`Outcome::end`](run::Outcome::end), because what was received until then is valid; [`End::check`](run::End::check)
//! turns an early end into an error. Lost packets and shots are not errors: each is in exactly one counter, by cause
//! ([`DropCause`](shotline_wire::shot::DropCause)), and counters that do not balance are an error. No function panics
//! because of what the network has sent.
//!
//! # Features and stability
//!
//! The crate has no features. It needs Linux. Versions follow Semantic Versioning; before 1.0 a new minor version may break
//! programs. [`config`], [`run`](mod@run), [`consumer`], [`live`] and [`counters`] are meant for programs and change
//! rarely; the parts of a run ([`receiver`], [`event`], [`align`], [`learn`], [`control`]) follow the needs of the run. New
//! settings are added: use `..Settings::default()`. `api.txt` beside `Cargo.toml` lists the interface, and CHANGELOG.md what
//! has changed.

pub mod align;
pub mod clock;
pub mod completion;
pub mod config;
pub mod consumer;
pub mod control;
pub mod counters;
pub mod cpu;
pub mod event;
pub mod journal;
pub mod latency;
pub mod learn;
pub mod live;
mod memory;
pub mod pretrigger;
pub mod receiver;
pub mod run;
pub mod sink;
pub mod stages;
mod stream;
pub mod summary;
mod sys;
pub mod tap;
pub mod trigger;

pub use latency::ShotLatencies;
pub use receiver::{Receiver, ReceiverConfig};
pub use stream::{EndReason, Item, StreamConfig};
