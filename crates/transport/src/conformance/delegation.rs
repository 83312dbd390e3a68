//! Checks that an implementation that wraps another one delegates each call that it does not override, in both
//! directions.

use crate::prebuilt::{FrameRun, PrebuiltIo};
use crate::{
    BatchInfo, Capabilities, DeviceCounters, Icrc, IoError, PacketIo, PayloadDestination, PayloadLocation, Pick, Recv,
    RxPacket, Seal, Steer, TxPacket,
};
use shotline_conformance::{Failure, ensure, ensure_eq, failed};
use shotline_memory::{Region, Regions, Registrar, Sge};
use std::cell::RefCell;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// A wrapper and the methods that it overrides.
#[derive(Clone, Copy, Debug)]
pub struct Wrapper<'a> {
    /// The name of its type.
    pub name: &'a str,
    /// Methods of [`PacketIo`] that it overrides.
    pub overrides: &'a [&'a str],
    /// The name of the type that it wraps steers in, if any, and the methods of [`Steer`] that this type overrides.
    pub steer: Option<(&'a str, &'a [&'a str])>,
}

/// Wraps a [`RecordingIo`] and calls every method: each call that the wrapper does not override must arrive with its
/// arguments, and its result must be returned. During a poll, the same must hold for the steer.
///
/// # Errors
/// The first method that is not delegated.
pub fn check<W: PacketIo>(wrapper: &Wrapper<'_>, wrap: impl FnOnce(RecordingIo) -> W) -> Result<(), Failure> {
    let log = Log::default();
    let null: OwnedFd = std::fs::File::open("/dev/null").map_err(failed("open /dev/null"))?.into();
    let fd = null.as_raw_fd();
    let mut io = wrap(RecordingIo { log: Rc::clone(&log), fd: null });
    log.borrow_mut().calls.clear();
    let delegated = |call: &str, returned: bool| wrapper.delegated(&log, call, returned);
    delegated("device_counters", io.device_counters() == DEVICE)?;
    delegated("counters", io.counters() == [("recording".to_owned(), 12)])?;
    delegated("queue_pair", io.queue_pair() == Some((13, 14)))?;
    delegated("capabilities", io.capabilities() == CAPABILITIES)?;
    let mut registrar = Registrar::new();
    registrar.add(Region::heap(64).map_err(|error| error.to_string())?);
    io.register(&registrar.finish());
    delegated("register 1", true)?;
    delegated("post [3]", io.post(&[Recv { id: 3, sge: [Sge::EMPTY; 2] }]) == 15)?;
    io.withdraw(&[4, 5]);
    delegated("withdraw [4, 5]", true)?;
    delegated("wait 16ms", matches!(io.wait(Duration::from_millis(16)), Err(IoError::Disconnected)))?;
    delegated("fd", io.fd().is_some_and(|found| found.as_raw_fd() == fd))?;
    let packet = TxPacket { header: &[1, 2], gather: &[Sge::EMPTY], seal: Seal::None };
    delegated("send 2 [::1]:18", matches!(io.send(ADDRESS, &[packet; 2]), Ok(17)))?;
    let polled = io.poll(&mut RecordingSteer(Rc::clone(&log)), 19);
    let steered = std::mem::take(&mut log.borrow_mut().steered);
    delegated("poll 19", matches!(polled, Ok(20)))?;
    let overridden = wrapper.steer.map_or(&[][..], |(_, overrides)| overrides);
    for (method, call, result) in STEERED.into_iter().filter(|(method, ..)| !overridden.contains(method)) {
        for call in [call, result].into_iter().filter(|call| !call.is_empty()) {
            let arrived = steered.iter().any(|steered| steered == call);
            ensure!(arrived, "{}: a steer's {method}: \"{call}\" is missing in {steered:?}", wrapper.name);
        }
    }
    Ok(())
}

/// Checks the same for the methods of [`PrebuiltIo`], of a wrapper that sends prebuilt frames.
///
/// # Errors
/// As [`check`].
pub fn check_prebuilt<W: PrebuiltIo>(
    wrapper: &Wrapper<'_>,
    wrap: impl FnOnce(RecordingIo) -> W,
) -> Result<(), Failure> {
    let log = Log::default();
    let fd = std::fs::File::open("/dev/null").map_err(failed("open /dev/null"))?.into();
    let mut io = wrap(RecordingIo { log: Rc::clone(&log), fd });
    log.borrow_mut().calls.clear();
    let delegated = |call: &str, returned: bool| wrapper.delegated(&log, call, returned);
    delegated("headroom", io.headroom() == 29)?;
    let frame = Sge { len: 31, ..Sge::EMPTY };
    delegated("prebuild [::1]:18 31", matches!(io.prebuild(ADDRESS, frame), Err(IoError::Disconnected)))?;
    delegated("frame_memory 32", matches!(io.frame_memory(32), Err(IoError::Disconnected)))?;
    delegated("in_flight", io.in_flight() == 30)?;
    let frames = FrameRun { region: Sge::EMPTY.region, offset: 0, stride: 64, len: 64, count: 3 };
    delegated("send_prebuilt [::1]:18 3", matches!(io.send_prebuilt(ADDRESS, frames), Ok(33)))
}

impl Wrapper<'_> {
    /// Fails unless a call that the wrapper does not override is the only one that arrived, and its result was
    /// returned.
    fn delegated(&self, log: &Log, call: &str, returned: bool) -> Result<(), Failure> {
        let found = std::mem::take(&mut log.borrow_mut().calls);
        let method = call.split(' ').next().unwrap_or_default();
        if self.overrides.contains(&method) {
            return Ok(());
        }
        ensure_eq!(found, [call], "{}: delegated calls of {method}", self.name);
        ensure!(returned, "{}: the result of {method} is not returned", self.name);
        Ok(())
    }
}

const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), 18);
const CAPABILITIES: Capabilities = Capabilities { steers: false, credits: true };
const DEVICE: DeviceCounters = DeviceCounters {
    missed: 7,
    receive_errors: 8,
    no_buffers: 9,
    unsent: 10,
    queue_pair_errors: 11,
    copied_bytes: Some(12),
    link_downs: 13,
};
/// The steer's methods, the log entry of each call, and the log entry of its result.
const STEERED: [(&str, &str, &str); 5] = [
    ("header_len", "header_len of 20 bytes", "header_len gave 21"),
    ("pick", "pick of 1", "pick gave 22"),
    ("predict", "predict of 1", "predict gave 23"),
    ("margins", "margins Posted(26)", "margins gave [24, 25]"),
    ("landed", "landed Posted(27)", ""),
];

/// Log entries of the calls that arrived.
#[derive(Debug, Default)]
struct CallLog {
    calls: Vec<String>,
    steered: Vec<String>,
}

type Log = Rc<RefCell<CallLog>>;

/// A mock backend that records every call and returns distinctive values.
#[derive(Debug)]
pub struct RecordingIo {
    log: Log,
    fd: OwnedFd,
}

impl RecordingIo {
    fn record(&self, call: impl Into<String>) {
        self.log.borrow_mut().calls.push(call.into());
    }
}

impl PacketIo for RecordingIo {
    fn device_counters(&self) -> DeviceCounters {
        self.record("device_counters");
        DEVICE
    }
    fn counters(&self) -> Vec<(String, u64)> {
        self.record("counters");
        vec![("recording".into(), 12)]
    }
    fn queue_pair(&self) -> Option<(u32, u32)> {
        self.record("queue_pair");
        Some((13, 14))
    }
    fn capabilities(&self) -> Capabilities {
        self.record("capabilities");
        CAPABILITIES
    }
    fn register(&mut self, regions: &Regions) {
        self.record(format!("register {}", regions.iter().count()));
    }
    fn post(&mut self, receives: &[Recv]) -> usize {
        self.record(format!("post {:?}", receives.iter().map(|receive| receive.id).collect::<Vec<_>>()));
        15
    }
    fn withdraw(&mut self, ids: &[u32]) {
        self.record(format!("withdraw {ids:?}"));
    }
    fn poll<S: Steer>(&mut self, steer: &mut S, max: usize) -> Result<usize, IoError> {
        self.record(format!("poll {max}"));
        let returned = |what: String| self.log.borrow_mut().steered.push(what);
        let header = [21; 20];
        let seen = BatchInfo { first: &header, packets: 1, segment: 20, last: 20, source: ADDRESS };
        let mut picks = [Pick::default()];
        returned(format!("header_len gave {}", steer.header_len(&seen)));
        steer.pick(&seen, &mut picks);
        returned(format!("pick gave {}", picks[0].header_len.unwrap_or_default()));
        returned(format!("predict gave {}", steer.predict(&mut picks)));
        returned(format!("margins gave {:?}", steer.margins(PayloadDestination::Posted(26))));
        steer.landed(&[RxPacket {
            landed: PayloadLocation::Posted(27),
            header: &header,
            len: 28,
            source: ADDRESS,
            stamp_ns: 0,
            icrc: Icrc::Absent,
            payload_crc: 0,
            congested: false,
            fault: None,
        }]);
        Ok(20)
    }
    fn wait(&mut self, timeout: Duration) -> Result<(), IoError> {
        self.record(format!("wait {timeout:?}"));
        Err(IoError::Disconnected)
    }
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.record("fd");
        Some(self.fd.as_fd())
    }
    fn send(&mut self, to: SocketAddr, packets: &[TxPacket<'_>]) -> Result<usize, IoError> {
        self.record(format!("send {} {to}", packets.len()));
        Ok(17)
    }
}

impl PrebuiltIo for RecordingIo {
    fn headroom(&self) -> usize {
        self.record("headroom");
        29
    }
    fn prebuild(&mut self, to: SocketAddr, frame: Sge) -> Result<(), IoError> {
        self.record(format!("prebuild {to} {}", frame.len));
        Err(IoError::Disconnected)
    }
    fn frame_memory(&mut self, bytes: usize) -> Result<Option<Arc<Region>>, IoError> {
        self.record(format!("frame_memory {bytes}"));
        Err(IoError::Disconnected)
    }
    fn in_flight(&mut self) -> usize {
        self.record("in_flight");
        30
    }
    fn send_prebuilt(&mut self, to: SocketAddr, frames: FrameRun) -> Result<usize, IoError> {
        self.record(format!("send_prebuilt {to} {}", frames.count));
        Ok(33)
    }
}

/// A mock steer that records every call and returns distinctive values.
struct RecordingSteer(Log);

impl RecordingSteer {
    fn record(&self, call: String) {
        self.0.borrow_mut().steered.push(call);
    }
}

impl Steer for RecordingSteer {
    fn header_len(&mut self, seen: &BatchInfo<'_>) -> usize {
        self.record(format!("header_len of {} bytes", seen.first.len()));
        21
    }
    fn pick(&mut self, _seen: &BatchInfo<'_>, picks: &mut [Pick]) {
        self.record(format!("pick of {}", picks.len()));
        picks.iter_mut().for_each(|pick| pick.header_len = Some(22));
    }
    fn predict(&mut self, picks: &mut [Pick]) -> usize {
        self.record(format!("predict of {}", picks.len()));
        23
    }
    fn margins(&self, to: PayloadDestination) -> [u32; 2] {
        self.record(format!("margins {to:?}"));
        [24, 25]
    }
    fn landed(&mut self, batch: &[RxPacket<'_>]) {
        batch.iter().for_each(|done| self.record(format!("landed {:?}", done.landed)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lossy::Lossy;
    use crate::{delegate_packet_io, delegate_prebuilt_io, delegate_steer};

    /// One of several implementations, chosen at run time.
    enum OneOf {
        First(RecordingIo),
        Second(Lossy<RecordingIo>),
    }

    impl PacketIo for OneOf {
        delegate_packet_io!(match First, Second);
    }

    /// Does not delegate `queue_pair`.
    struct Forgetful<P> {
        io: P,
    }

    impl<P: PacketIo> PacketIo for Forgetful<P> {
        delegate_packet_io!(io; except queue_pair, poll);

        fn queue_pair(&self) -> Option<(u32, u32)> {
            None
        }
        fn poll<S: Steer>(&mut self, steer: &mut S, max: usize) -> Result<usize, IoError> {
            self.io.poll(&mut NoPrediction { steer }, max)
        }
    }

    /// Returns no prediction, regardless of its inner steer.
    struct NoPrediction<'a, S> {
        steer: &'a mut S,
    }

    impl<S: Steer> Steer for NoPrediction<'_, S> {
        delegate_steer!(steer; except predict);

        fn predict(&mut self, _picks: &mut [Pick]) -> usize {
            0
        }
    }

    #[test]
    fn lossy_overrides_only_send() {
        let wrapper = Wrapper { name: "Lossy", overrides: &["send"], steer: None };
        check(&wrapper, |io| Lossy::new(io, 0.0, 1)).unwrap();
        // Without loss it also passes sends through unchanged.
        check(&Wrapper { overrides: &[], ..wrapper }, |io| Lossy::new(io, 0.0, 1)).unwrap();
    }

    #[test]
    fn enum_delegates_to_its_current_variant() {
        let wrapper = Wrapper { name: "OneOf", overrides: &[], steer: None };
        check(&wrapper, OneOf::First).unwrap();
        check(&wrapper, |io| OneOf::Second(Lossy::new(io, 0.0, 1))).unwrap();
    }

    #[test]
    fn missing_delegation_is_found() {
        let wrapper = |overrides| Wrapper { name: "Forgetful", overrides, steer: Some(("NoPrediction", &["predict"])) };
        let wrap = |io| Forgetful { io };
        assert!(check(&wrapper(&["poll"]), wrap).unwrap_err().contains("delegated calls of queue_pair"));
        check(&wrapper(&["queue_pair", "poll"]), wrap).unwrap();
        let no_steer = Wrapper { steer: None, ..wrapper(&["queue_pair", "poll"]) };
        assert!(check(&no_steer, wrap).unwrap_err().contains("steer's predict"));
    }

    enum OneSender {
        Only(RecordingIo),
    }

    impl PacketIo for OneSender {
        delegate_packet_io!(match Only);
    }

    impl PrebuiltIo for OneSender {
        delegate_prebuilt_io!(match Only);
    }

    /// Reports no frames in use.
    struct Careless<P>(P);

    impl<P: PacketIo> PacketIo for Careless<P> {
        delegate_packet_io!(0);
    }

    impl<P: PrebuiltIo> PrebuiltIo for Careless<P> {
        delegate_prebuilt_io!(0; except in_flight);

        fn in_flight(&mut self) -> usize {
            0
        }
    }

    #[test]
    fn missing_delegation_of_prebuilt_io_is_found() {
        let wrapper = |overrides| Wrapper { name: "Careless", overrides, steer: None };
        check_prebuilt(&wrapper(&[]), OneSender::Only).unwrap();
        check_prebuilt(&wrapper(&["in_flight"]), Careless).unwrap();
        assert!(check_prebuilt(&wrapper(&[]), Careless).unwrap_err().contains("delegated calls of in_flight"));
    }
}
