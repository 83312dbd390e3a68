//! SpaceFibre links (ECSS-E-ST-50-11C) as state machines without I/O.
//!
//! No sockets, no clock, no threads: words and frames are arguments, and time is counted in words sent.
//!
//! - [`mod@column`]: scrambling and CRC-16 of whole data frames, one column per lane.
//! - [`frames`]: a link whose carrier moves whole frames.
//! - [`lane`]: the lane layer: initialisation, receive errors, loss of signal.
//! - [`link`]: the data link layer: virtual channels, flow control, sequence numbers, retry.
//! - [`multilane`]: the multi-lane layer: rows over several lanes, their alignment.
//! - [`qos`]: quality of service of virtual channels.
//! - [`words`]: a link word by word, over lanes.
#![deny(missing_docs)]

/// Adds all fields of counters to those of others. A field that is not named does not compile.
macro_rules! sum_fields {
    ($sum:ident, $other:ident: $counters:ident { $($field:ident),* $(,)? }) => {
        let $counters { $($field),* } = *$other;
        $($sum.$field += $field;)*
    };
}

pub mod column;
mod events;
pub mod frames;
pub mod lane;
pub mod link;
pub mod multilane;
pub mod qos;
pub mod words;
