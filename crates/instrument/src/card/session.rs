//! A connection of a driver.

use super::channels::Channels;
use super::dma::Maps;
use super::error::{CardError, End};
use super::send::SendQueues;
use super::socket::{Peer, Request, signal};
use super::window::{self, COMMANDS, Command, Window};
use super::wire::Sink;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use shotline_rtl::card::{CHANNELS, Device};

/// Requests that are answered in one look.
const TURN: usize = 64;

/// A connection, with its window and what is known of its channels.
#[derive(Debug)]
pub(super) struct Session {
    /// The other end of the socket, `None` if the driver is in a virtual machine.
    peer: Option<Peer>,
    pub window: Window,
    pub channels: Channels,
    pub send: SendQueues,
    events: Vec<Option<OwnedFd>>,
    /// Commands carried out.
    done: u32,
}

impl Session {
    /// Greets a driver. Returns `None` if it has gone.
    ///
    /// # Errors
    /// If there is no memory for the window.
    pub fn new(fd: OwnedFd) -> Result<Option<Self>, CardError> {
        let window = Window::new().map_err(|error| CardError::System {
            what: "cannot create the window of a driver".into(),
            source: std::io::Error::other(error),
        })?;
        let peer = Peer::new(fd, &window).ok();
        Ok(peer.map(|peer| Self::with(Some(peer), window)))
    }

    /// Begins with a driver in a virtual machine, which is not greeted.
    pub fn of_guest(window: Window) -> Self {
        Self::with(None, window)
    }

    fn with(peer: Option<Peer>, window: Window) -> Self {
        let (channels, send) = (Channels::new(), SendQueues::new());
        Self { peer, window, channels, send, events: (0..CHANNELS).map(|_| None).collect(), done: 0 }
    }

    /// Returns the number of the driver's process, 0 if it is not known.
    pub fn pid(&self) -> i32 {
        self.peer.as_ref().map_or(0, Peer::pid)
    }

    /// Returns the socket, if there is one.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.peer.as_ref().map(AsFd::as_fd)
    }

    /// Answers the requests that have come. Returns `true` if there were some.
    ///
    /// # Errors
    /// If the connection has ended.
    pub fn requests(&mut self, maps: &mut Maps) -> Result<bool, End> {
        for count in 0..TURN {
            let Some(peer) = &self.peer else { return Ok(false) };
            let Some(request) = peer.receive()? else { return Ok(count > 0) };
            let result = request.and_then(|request| Self::request(&mut self.events, request, maps));
            peer.answer(result)?;
        }
        Ok(true)
    }

    fn request(events: &mut Vec<Option<OwnedFd>>, request: Request, maps: &mut Maps) -> Result<(), Errno> {
        match request {
            Request::Map { address, length, offset, fd } => maps.map(address, length, fd.as_fd(), offset),
            Request::Unmap { address, length } => maps.unmap(address, length),
            Request::Events { first, fds } => {
                let end = first.checked_add(fds.len()).filter(|&end| end <= CHANNELS).ok_or(Errno::INVAL)?;
                events.splice(first..end, fds.into_iter().map(Some));
                Ok(())
            }
        }
    }

    /// Carries out the commands that were given. Returns `true` if there were some.
    ///
    /// # Errors
    /// If there are more than fit, or the RTL broke a rule.
    pub fn commands(&mut self, device: &mut Device<Maps>) -> Result<bool, End> {
        let given = self.window.commands_given().wrapping_sub(self.done);
        if given > COMMANDS {
            return Err(End::broken(format!("expected at most {COMMANDS} commands, found {given}")));
        }
        for _ in 0..given {
            let command = self.window.command(self.done);
            let (answer, status) = match self.command(command, device)? {
                Some(answer) => (answer, 0),
                None => (0, window::REFUSED),
            };
            self.window.answer(self.done, answer, status);
            self.done = self.done.wrapping_add(1);
        }
        Ok(given > 0)
    }

    /// Carries out a command, and returns what it reads. Returns `None` if it is refused.
    fn command(&mut self, command: Command, device: &mut Device<Maps>) -> Result<Option<u32>, End> {
        let Command { address, kind, value } = command;
        if !address.is_multiple_of(4) {
            return Ok(None);
        }
        match kind {
            window::READ => device.read(address).map(Some).map_err(End::rule),
            window::WRITE => {
                let is_accepted = device.try_write(address, value).map_err(End::rule)?;
                if is_accepted {
                    self.channels.written(address, value);
                }
                Ok(is_accepted.then_some(0))
            }
            _ => Ok(None),
        }
    }

    /// Passes the interrupts on.
    pub fn interrupts(&self, device: &mut Device<Maps>) {
        for channel in device.interrupts() {
            if let Some(event) = &self.events[channel] {
                signal(event);
            }
        }
    }

    /// Looks at all that the driver shares with the card, but the socket. Returns `true` if there was something to do.
    ///
    /// # Errors
    /// If the driver or the RTL broke a rule, or the sink fails.
    pub fn look(&mut self, device: &mut Device<Maps>, sink: &mut dyn Sink) -> Result<bool, End> {
        self.window.beat();
        let mut any = self.commands(device)?;
        any |= self.channels.forward(&self.window, device)?;
        any |= self.send.collect(&self.window, device.memory(), device.now_ns(), sink)?;
        self.channels.look(device);
        self.interrupts(device);
        Ok(any)
    }
}
