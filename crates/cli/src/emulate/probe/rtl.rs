//! `shotline emulate probe --rtl`: the RTL of `hdl/`, compiled by Verilator, generates every packet.

use super::args::Probe;
use super::serve::wait_for_receivers;
use crate::Result;
use shotline_backends::{OpenedSender, Role, SenderParameters};
use shotline_instrument::probe::rtl::{Rtl, Tap, WholeFrameIo};
use shotline_instrument::probe::{LinkRequest, LinkTransport, Probe as Emulated, Server};
use shotline_memory::{Regions, Sge};
use shotline_store::pcapng::{Interface, Writer};
use shotline_transport::IoError;
use shotline_transport::prebuilt::PrebuiltIo;
use std::cell::RefCell;
use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Runs the probe until a signal stops it.
pub(super) fn run(args: &Probe, stop: &Arc<AtomicBool>) -> Result {
    if args.corrupt > 0.0 {
        return Err("--corrupt cannot alter packets of the RTL: omit --corrupt or --rtl".into());
    }
    let transport = &args.sender.transport;
    let options = args.sender.options(Role::CompleteFrames)?;
    let capture = args.pcap.as_deref().map(Capture::create).transpose()?;
    let tap = capture.as_ref().map(Capture::tap);
    let (mut rtl, regions) = Rtl::new(&args.config(), tap)?;
    if let Some(path) = &args.vcd {
        rtl.trace(path).map_err(|error| format!("cannot create {}: {error}", path.display()))?;
    }
    let scratch = rtl.scratch();
    let source = args.source;
    serve(args, rtl, regions, stop, |request, regions| {
        let parameters = SenderParameters { source, to: request.destination, sealed: false, frames: 0, scratch };
        let OpenedSender { io, source } = transport.open_sender(&parameters, &options, regions)?;
        link_transport(source, io, request, regions, scratch)
    })?;
    match capture {
        Some(capture) => Ok(capture.0.borrow_mut().flush()?),
        None => Ok(()),
    }
}

/// Serves receivers with complete frames over the transports that `open` opens.
fn serve<P: PrebuiltIo>(
    args: &Probe,
    rtl: Rtl,
    regions: Regions,
    stop: &Arc<AtomicBool>,
    open: impl FnMut(&LinkRequest, &Regions) -> std::result::Result<LinkTransport<WholeFrameIo<P>>, IoError>,
) -> Result {
    let probe = Emulated::with(rtl, regions, args.config(), open)?;
    wait_for_receivers(args, Server::with_probe(probe, args.listen)?, stop)
}

fn link_transport<P: PrebuiltIo>(
    source: SocketAddr,
    io: P,
    request: &LinkRequest,
    regions: &Regions,
    scratch: Sge,
) -> std::result::Result<LinkTransport<WholeFrameIo<P>>, IoError> {
    let mut io = WholeFrameIo::new(io);
    let ethernet = io.ethernet(request.destination, regions, scratch)?;
    Ok(LinkTransport { io, source, ethernet })
}

/// Capture file of the frames as they leave the RTL.
struct Capture(Rc<RefCell<Writer<File>>>);

impl Capture {
    fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).map_err(|error| format!("cannot create {}: {error}", path.display()))?;
        let application = concat!("shotline ", env!("CARGO_PKG_VERSION"));
        let mut writer = Writer::new(file, application, "frames of the RTL, without FCS; times are of its clock")?;
        writer.interface(&Interface {
            name: "shotline_roce_ud_tx".into(),
            description: "RTL of hdl/, simulated".into(),
            hardware: "none".into(),
            ..Interface::default()
        })?;
        Ok(Self(Rc::new(RefCell::new(writer))))
    }

    fn tap(&self) -> Tap {
        let writer = Rc::clone(&self.0);
        Box::new(move |utc_ns, frame| writer.borrow_mut().packet(0, utc_ns, &[frame]))
    }
}
