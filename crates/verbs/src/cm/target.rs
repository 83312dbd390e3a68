//! A target: exported memory, and the control connections through which initiators reach it.

use super::conversation::ControlCounters;
use super::endpoint::Endpoint;
use super::exports::Exports;
use super::message::{Accept, Cause, Offer, Refusal, Regions, RoleAssignment, Statistics, Welcome};
use super::{Control, ControlAddress, ControlLimits, Host, SessionId, Token};
use crate::api::VerbsError;
use crate::spacefibre::LinksStatus;
use arrayvec::ArrayVec;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Maximum time that [`Target::serve`] sleeps, because no descriptor is readable when its flag is set.
const MAX_SLEEP: Duration = Duration::from_millis(100);
/// Time for which an idle target polls before it sleeps, because waking takes longer than polling.
const POLL_BEFORE_SLEEP: Duration = Duration::from_micros(50);
/// Maximum rounds of the endpoint's work between two looks at the control connections, which cost system calls.
const MAX_ROUNDS: u32 = 256;

/// Memory of an endpoint that initiators read and write, as `shotline target` serves it.
///
/// One thread calls [`Self::serve`], or [`Self::round`] in its own loop; nothing is served
/// between these calls. Initiators on shared memory ([`Client::link`](super::Client::link)) each need an endpoint of
/// their own and are refused.
///
/// ```no_run
/// use shotline_memory::{Access, Region};
/// use shotline_verbs::cm::{ControlAddress, Export, Exports, Target, Token};
/// use shotline_verbs::soft::{SoftEndpoint, UdpOptions};
/// use std::sync::atomic::AtomicBool;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut exports = Exports::new(SoftEndpoint::udp("127.0.0.1:0".parse()?, UdpOptions::default())?);
/// let rights = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::LOCAL_WRITE;
/// let (name, region) = ("images".to_owned().try_into()?, Region::host(1 << 20)?);
/// exports.export(Export { name, region, bytes: 1 << 20, rights })?;
/// let token = Token::random()?;
/// let mut target = Target::listen(exports, &ControlAddress::Tcp("127.0.0.1:47920".parse()?), token)?;
/// println!("token {token}");
/// target.serve(&AtomicBool::new(false))?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Target<P: Endpoint> {
    host: MemoryHost<P>,
    control: Control,
    /// Since when nothing has arrived.
    idle_since: Option<Instant>,
}

impl<P: Endpoint> Target<P> {
    /// Listens for control connections with the default limits.
    ///
    /// # Errors
    /// See [`Control::listen`].
    pub fn listen(exports: Exports<P>, on: &ControlAddress, token: Token) -> io::Result<Self> {
        Ok(Self::new(exports, Control::listen(on, token, ControlLimits::default())?))
    }

    /// Serves the exports to the initiators of these control connections.
    pub fn new(exports: Exports<P>, control: Control) -> Self {
        Self { host: MemoryHost(exports), control, idle_since: None }
    }

    /// Returns the TCP address of its control connections.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.control.local_addr()
    }
    /// Returns the exports: regions, initiators and their usage.
    pub fn exports(&self) -> &Exports<P> {
        &self.host.0
    }
    /// Returns the exports, to add regions and to drive the endpoint.
    pub fn exports_mut(&mut self) -> &mut Exports<P> {
        &mut self.host.0
    }
    /// Returns the counters of the control connections.
    pub fn counters(&self) -> ControlCounters {
        self.control.counters()
    }

    /// Returns the number of initiators that are connected.
    pub fn sessions(&self) -> usize {
        self.control.sessions()
    }

    /// Serves initiators until the flag is set, within 100 ms, and disconnects them. Sleeps while there is nothing to
    /// do.
    ///
    /// # Errors
    /// See [`Self::progress`]. The initiators are not disconnected then: drop the target.
    pub fn serve(&mut self, stop: &AtomicBool) -> Result<(), VerbsError> {
        while !stop.load(Ordering::Relaxed) {
            self.round(None)?;
        }
        self.close();
        Ok(())
    }

    /// One round of [`Self::serve`], for loops of a program: executes and answers what has arrived; if nothing has for
    /// 50 us, sleeps until something does or `wake` is readable, at most for 100 ms. Returns `true` if it has slept.
    ///
    /// # Errors
    /// See [`Self::progress`].
    pub fn round(&mut self, wake: Option<BorrowedFd<'_>>) -> Result<bool, VerbsError> {
        if self.progress()? {
            self.idle_since = None;
            return Ok(false);
        }
        let sleeps = self.idle_since.get_or_insert_with(Instant::now).elapsed() >= POLL_BEFORE_SLEEP;
        if sleeps {
            self.wait(wake)?;
        }
        Ok(sleeps)
    }

    /// Disconnects all initiators.
    pub fn close(&mut self) {
        self.control.close(&mut self.host);
    }

    /// Executes the operations and answers the requests that have arrived. Does not block. Returns `true` if there was
    /// traffic, so that there may be more.
    ///
    /// # Errors
    /// [`VerbsError::Io`] if the transport or the control socket fails. The failure of one initiator is not an error.
    pub fn progress(&mut self) -> Result<bool, VerbsError> {
        let mut any = false;
        for _ in 0..MAX_ROUNDS {
            if !self.host.0.provider_mut().progress()? {
                break;
            }
            any = true;
        }
        while self.host.0.provider_mut().next_event().is_some() {}
        self.control.progress(&mut self.host).map_err(failed)?;
        Ok(any)
    }

    /// Sleeps until [`Self::progress`] has work, or `wake` is readable.
    fn wait(&self, wake: Option<BorrowedFd<'_>>) -> Result<(), VerbsError> {
        let timeout = self.control.next_timeout().map_or(MAX_SLEEP, |next| next.min(MAX_SLEEP));
        let fds = [self.host.0.provider().fd(), self.control.fd()].into_iter().chain(wake);
        let mut fds: ArrayVec<PollFd<'_>, 3> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        match poll(&mut fds, Timespec::try_from(timeout).ok().as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(failed(error.into())),
        }
    }
}

/// Serves memory, and neither messages nor roles in measurements.
#[derive(Debug)]
struct MemoryHost<P: Endpoint>(Exports<P>);

impl<P: Endpoint> Host for MemoryHost<P> {
    fn welcome(&mut self) -> Welcome {
        self.0.welcome()
    }
    fn regions(&mut self) -> Regions {
        self.0.regions()
    }
    fn connect(&mut self, session: SessionId, peer: Option<IpAddr>, offer: &Offer) -> Result<Accept, Refusal> {
        if offer.receives.count > 0 || offer.sends > 0 {
            let words = "this target serves memory only: start `shotline target --messages` to accept messages";
            return Err(Refusal::new(Cause::Unsupported, words));
        }
        self.0.connect(session, peer, offer)
    }
    fn link(&mut self, session: SessionId, socket: OwnedFd) -> Result<(), Refusal> {
        self.0.link(session, socket)
    }
    fn start_role(&mut self, session: SessionId, assignment: &RoleAssignment) -> Result<(), Refusal> {
        self.0.start_role(session, assignment)
    }
    fn disconnect(&mut self, session: SessionId, qp: u32) -> Result<(), Refusal> {
        self.0.disconnect(session, qp)
    }
    fn statistics(&mut self, session: SessionId) -> Statistics {
        self.0.statistics(session)
    }
    fn links(&mut self, first: u32) -> Result<LinksStatus, Refusal> {
        self.0.links(first)
    }
    fn session_ended(&mut self, session: SessionId) {
        self.0.session_ended(session);
    }
}

fn failed(source: io::Error) -> VerbsError {
    VerbsError::Io(shotline_transport::IoError::System { what: "serving initiators".into(), source, hint: "" })
}

#[cfg(test)]
mod tests {
    use super::super::{Client, Export};
    use super::*;
    use crate::soft::{SoftEndpoint, UdpOptions};
    use shotline_memory::{Access, Region};

    #[test]
    fn end_of_serving_disconnects_the_initiators() {
        let loopback: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let mut exports = Exports::new(SoftEndpoint::udp(loopback, UdpOptions::default()).unwrap());
        let (name, region) = ("a".to_owned().try_into().unwrap(), Region::heap(4096).unwrap());
        exports.export(Export { name, region, bytes: 4096, rights: Access::REMOTE_READ }).unwrap();
        let token = Token::random().unwrap();
        let mut target = Target::listen(exports, &ControlAddress::Tcp(loopback), token).unwrap();
        let to = ControlAddress::Tcp(target.local_addr().unwrap());
        let stop = AtomicBool::new(false);
        let client = std::thread::scope(|scope| {
            let initiator = scope.spawn(|| {
                let connected = Client::connect(&to, None, token);
                let listed = connected.and_then(|mut client| client.regions().map(|regions| (client, regions)));
                stop.store(true, Ordering::Relaxed);
                listed
            });
            target.serve(&stop).unwrap();
            let (client, regions) = initiator.join().unwrap().unwrap();
            assert_eq!(regions.regions.len(), 1);
            client
        });
        assert!(!client.is_connected());
        assert_eq!((target.counters().welcomed, target.exports().initiators().count()), (1, 0));
    }
}
