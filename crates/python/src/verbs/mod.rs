//! Endpoints: registered memory, queue pairs and completions as Python objects, and targets in this process.
//!
//! Calls release the interpreter's lock before they take that of an endpoint, and never hold the two in the other order.

mod completion;
mod endpoint;
mod error;
mod memory;
mod queues;
mod remote;
mod request;
mod served;

pub use completion::Completion;
pub use endpoint::{Connection, read_token};
pub use memory::{Element, Region};
pub use queues::{Completions, Pair};
pub use remote::{RemoteAddress, RemoteRegion};
pub use request::{Receive, Request};
pub use served::Served;
