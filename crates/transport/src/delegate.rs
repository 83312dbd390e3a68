//! Delegation of [`PacketIo`](crate::PacketIo), [`PrebuiltIo`](crate::prebuilt::PrebuiltIo) and
//! [`Steer`](crate::Steer) by one macro each, for implementations that wrap another one.
//!
//! None of these traits has a default method, so a wrapper that omits one does not compile. A wrapper names the methods
//! that it overrides, and the macro generates all others:
//!
//! ```
//! use shotline_transport::{IoError, PacketIo, TxPacket, delegate_packet_io};
//! use std::net::SocketAddr;
//!
//! /// Counts the packets that it sends.
//! struct Counting<P> {
//!     io: P,
//!     sent: usize,
//! }
//!
//! impl<P: PacketIo> PacketIo for Counting<P> {
//!     delegate_packet_io!(io; except send);
//!
//!     fn send(&mut self, to: SocketAddr, packets: &[TxPacket<'_>]) -> Result<usize, IoError> {
//!         let sent = self.io.send(to, packets)?;
//!         self.sent += sent;
//!         Ok(sent)
//!     }
//! }
//! ```
//!
//! An enum whose variants each hold an implementation delegates to its current variant: `delegate_packet_io!(match A,
//! B)`.

/// Implements all methods of a [`PacketIo`](crate::PacketIo) by delegation to a field (`delegate_packet_io!(io)`),
/// except those that the implementation defines itself (`delegate_packet_io!(io; except poll, send)`); or by delegation
/// to the variants of an enum (`delegate_packet_io!(match Udp, Inproc)`).
#[macro_export]
macro_rules! delegate_packet_io {
    (match $($variant:ident),* $(,)?) => {
        $crate::delegate_packet_io!(@methods (variants $($variant)*) []);
    };
    ($io:tt $(; except $($own:ident),+ $(,)?)?) => {
        $crate::delegate_packet_io!(@methods (field $io) [$($($own)+)?]);
    };
    (@methods $to:tt $own:tt) => {
        $crate::delegate_unless!(device_counters $own {
            #[inline]
            fn device_counters(&self) -> $crate::DeviceCounters {
                $crate::delegate_call!(self ref $to device_counters())
            }
        });
        $crate::delegate_unless!(counters $own {
            #[inline]
            fn counters(&self) -> ::std::vec::Vec<(::std::string::String, u64)> {
                $crate::delegate_call!(self ref $to counters())
            }
        });
        $crate::delegate_unless!(queue_pair $own {
            #[inline]
            fn queue_pair(&self) -> ::std::option::Option<(u32, u32)> {
                $crate::delegate_call!(self ref $to queue_pair())
            }
        });
        $crate::delegate_unless!(capabilities $own {
            #[inline]
            fn capabilities(&self) -> $crate::Capabilities {
                $crate::delegate_call!(self ref $to capabilities())
            }
        });
        $crate::delegate_unless!(register $own {
            #[inline]
            fn register(&mut self, regions: &$crate::Regions) {
                $crate::delegate_call!(self mut $to register(regions))
            }
        });
        $crate::delegate_unless!(post $own {
            #[inline]
            fn post(&mut self, receives: &[$crate::Recv]) -> usize {
                $crate::delegate_call!(self mut $to post(receives))
            }
        });
        $crate::delegate_unless!(withdraw $own {
            #[inline]
            fn withdraw(&mut self, ids: &[u32]) {
                $crate::delegate_call!(self mut $to withdraw(ids))
            }
        });
        $crate::delegate_unless!(poll $own {
            #[inline]
            fn poll<S: $crate::Steer>(
                &mut self,
                steer: &mut S,
                max: usize,
            ) -> ::std::result::Result<usize, $crate::IoError> {
                $crate::delegate_call!(self mut $to poll(steer, max))
            }
        });
        $crate::delegate_unless!(wait $own {
            #[inline]
            fn wait(&mut self, timeout: ::std::time::Duration) -> ::std::result::Result<(), $crate::IoError> {
                $crate::delegate_call!(self mut $to wait(timeout))
            }
        });
        $crate::delegate_unless!(fd $own {
            #[inline]
            fn fd(&self) -> ::std::option::Option<::std::os::fd::BorrowedFd<'_>> {
                $crate::delegate_call!(self ref $to fd())
            }
        });
        $crate::delegate_unless!(send $own {
            #[inline]
            fn send(
                &mut self,
                to: ::std::net::SocketAddr,
                packets: &[$crate::TxPacket<'_>],
            ) -> ::std::result::Result<usize, $crate::IoError> {
                $crate::delegate_call!(self mut $to send(to, packets))
            }
        });
    };
}

/// Implements all methods of a [`PrebuiltIo`](crate::prebuilt::PrebuiltIo), as
/// [`delegate_packet_io`](crate::delegate_packet_io) does.
#[macro_export]
macro_rules! delegate_prebuilt_io {
    (match $($variant:ident),* $(,)?) => {
        $crate::delegate_prebuilt_io!(@methods (variants $($variant)*) []);
    };
    ($io:tt $(; except $($own:ident),+ $(,)?)?) => {
        $crate::delegate_prebuilt_io!(@methods (field $io) [$($($own)+)?]);
    };
    (@methods $to:tt $own:tt) => {
        $crate::delegate_unless!(headroom $own {
            #[inline]
            fn headroom(&self) -> usize {
                $crate::delegate_call!(self ref $to headroom())
            }
        });
        $crate::delegate_unless!(prebuild $own {
            #[inline]
            fn prebuild(
                &mut self,
                to: ::std::net::SocketAddr,
                frame: $crate::Sge,
            ) -> ::std::result::Result<(), $crate::IoError> {
                $crate::delegate_call!(self mut $to prebuild(to, frame))
            }
        });
        $crate::delegate_unless!(frame_memory $own {
            #[inline]
            fn frame_memory(
                &mut self,
                bytes: usize,
            ) -> ::std::result::Result<::std::option::Option<::std::sync::Arc<$crate::Region>>, $crate::IoError> {
                $crate::delegate_call!(self mut $to frame_memory(bytes))
            }
        });
        $crate::delegate_unless!(in_flight $own {
            #[inline]
            fn in_flight(&mut self) -> usize {
                $crate::delegate_call!(self mut $to in_flight())
            }
        });
        $crate::delegate_unless!(send_prebuilt $own {
            #[inline]
            fn send_prebuilt(
                &mut self,
                to: ::std::net::SocketAddr,
                frames: $crate::prebuilt::FrameRun,
            ) -> ::std::result::Result<usize, $crate::IoError> {
                $crate::delegate_call!(self mut $to send_prebuilt(to, frames))
            }
        });
    };
}

/// Implements all methods of a [`Steer`](crate::Steer) by delegation to a field, except those that the implementation
/// defines itself: `delegate_steer!(steer; except landed)`.
#[macro_export]
macro_rules! delegate_steer {
    ($steer:tt $(; except $($own:ident),+ $(,)?)?) => {
        $crate::delegate_steer!(@methods (field $steer) [$($($own)+)?]);
    };
    (@methods $to:tt $own:tt) => {
        $crate::delegate_unless!(header_len $own {
            #[inline]
            fn header_len(&mut self, seen: &$crate::BatchInfo<'_>) -> usize {
                $crate::delegate_call!(self mut $to header_len(seen))
            }
        });
        $crate::delegate_unless!(pick $own {
            #[inline]
            fn pick(&mut self, seen: &$crate::BatchInfo<'_>, picks: &mut [$crate::Pick]) {
                $crate::delegate_call!(self mut $to pick(seen, picks))
            }
        });
        $crate::delegate_unless!(predict $own {
            #[inline]
            fn predict(&mut self, picks: &mut [$crate::Pick]) -> usize {
                $crate::delegate_call!(self mut $to predict(picks))
            }
        });
        $crate::delegate_unless!(margins $own {
            #[inline]
            fn margins(&self, to: $crate::PayloadDestination) -> [u32; 2] {
                $crate::delegate_call!(self ref $to margins(to))
            }
        });
        $crate::delegate_unless!(landed $own {
            #[inline]
            fn landed(&mut self, batch: &[$crate::RxPacket<'_>]) {
                $crate::delegate_call!(self mut $to landed(batch))
            }
        });
    };
}

/// Expands to one call of a delegated method: on a field, or on the value of the enum's current variant. The enum is
/// dereferenced for the match, so that an enum without variants also compiles.
#[doc(hidden)]
#[macro_export]
macro_rules! delegate_call {
    ($this:ident $kind:tt (field $field:tt) $method:ident($($argument:expr),*)) => {
        $this.$field.$method($($argument),*)
    };
    ($this:ident ref (variants $($variant:ident)*) $method:ident $arguments:tt) => {
        match *$this {
            $( Self::$variant(ref inner) => $crate::delegate_call!(inner $method $arguments), )*
        }
    };
    ($this:ident mut (variants $($variant:ident)*) $method:ident $arguments:tt) => {
        match *$this {
            $( Self::$variant(ref mut inner) => $crate::delegate_call!(inner $method $arguments), )*
        }
    };
    ($inner:ident $method:ident ($($argument:expr),*)) => {
        $inner.$method($($argument),*)
    };
}

/// Expands to an item unless its name is in the list. A macro can compare names only with literal ones, so each method
/// of the traits above has a rule; the last two advance in the list and expand to the item.
#[doc(hidden)]
#[macro_export]
macro_rules! delegate_unless {
    (device_counters [device_counters $($rest:ident)*] $item:tt) => {};
    (counters [counters $($rest:ident)*] $item:tt) => {};
    (queue_pair [queue_pair $($rest:ident)*] $item:tt) => {};
    (capabilities [capabilities $($rest:ident)*] $item:tt) => {};
    (register [register $($rest:ident)*] $item:tt) => {};
    (post [post $($rest:ident)*] $item:tt) => {};
    (withdraw [withdraw $($rest:ident)*] $item:tt) => {};
    (poll [poll $($rest:ident)*] $item:tt) => {};
    (wait [wait $($rest:ident)*] $item:tt) => {};
    (fd [fd $($rest:ident)*] $item:tt) => {};
    (send [send $($rest:ident)*] $item:tt) => {};
    (headroom [headroom $($rest:ident)*] $item:tt) => {};
    (prebuild [prebuild $($rest:ident)*] $item:tt) => {};
    (frame_memory [frame_memory $($rest:ident)*] $item:tt) => {};
    (in_flight [in_flight $($rest:ident)*] $item:tt) => {};
    (send_prebuilt [send_prebuilt $($rest:ident)*] $item:tt) => {};
    (header_len [header_len $($rest:ident)*] $item:tt) => {};
    (pick [pick $($rest:ident)*] $item:tt) => {};
    (predict [predict $($rest:ident)*] $item:tt) => {};
    (margins [margins $($rest:ident)*] $item:tt) => {};
    (landed [landed $($rest:ident)*] $item:tt) => {};
    ($name:ident [$other:ident $($rest:ident)*] $item:tt) => {
        $crate::delegate_unless!($name [$($rest)*] $item);
    };
    ($name:ident [] { $($item:tt)* }) => { $($item)* };
}
