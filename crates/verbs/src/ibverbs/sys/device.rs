//! Devices, their ports and their addresses.

use super::abi::*;
use super::library::{Library, library};
use super::{check, failed, made};
use rustix::fd::BorrowedFd;
use shotline_transport::IoError;
use std::ffi::{CStr, c_int};
use std::io;
use std::mem::{offset_of, size_of};
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::Arc;

const NO_DEVICE: &str = "; is there an RDMA device (rdma link show), and its kernel driver with ib_uverbs? Linux makes one \
                         of any network interface: modprobe rdma_rxe && rdma link add rxe0 type rxe netdev INTERFACE";
const NOT_ALLOWED: &str = "; may this user open /dev/infiniband/uverbs*?";

/// The library's list of devices; it goes with the last device of it that is held.
struct List {
    library: &'static Library,
    entries: NonNull<*mut ibv_device>,
}

// SAFETY: the list is only read, and freed once.
unsafe impl Send for List {}
// SAFETY: as above.
unsafe impl Sync for List {}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: the list is the library's, and is freed once.
        unsafe { (self.library.free_device_list)(self.entries.as_ptr()) }
    }
}

/// A device that can be opened.
pub struct Device {
    list: Arc<List>,
    device: NonNull<ibv_device>,
}

// SAFETY: devices are constant while their list lives.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

/// The RDMA devices of this machine. There may be none.
///
/// # Errors
/// Without the library, or if the kernel has no RDMA.
pub fn devices() -> Result<Vec<Device>, IoError> {
    let library = library()?;
    let mut count = 0;
    // SAFETY: it fills the count and returns a list of so many devices, or null with errno set.
    let entries = unsafe { (library.get_device_list)(&raw mut count) };
    let list = Arc::new(List { library, entries: made(entries, || "listing RDMA devices".into(), NO_DEVICE)? });
    let found = (0..usize::try_from(count).unwrap_or(0)).filter_map(|index| {
        // SAFETY: the list has so many entries.
        let device = NonNull::new(unsafe { *list.entries.as_ptr().add(index) })?;
        Some(Device { list: Arc::clone(&list), device })
    });
    Ok(found.collect())
}

impl Device {
    /// The device of this name (`rxe0`, `mlx5_0`).
    ///
    /// # Errors
    /// If there is none, with the names of those that there are.
    pub fn named(name: &str) -> Result<Self, IoError> {
        let mut all = devices()?;
        match all.iter().position(|device| device.name() == name) {
            Some(index) => Ok(all.swap_remove(index)),
            None => {
                let names: Vec<_> = all.iter().map(Self::name).collect();
                let there = if names.is_empty() { "none".into() } else { names.join(", ") };
                Err(IoError::Config(format!("there is no RDMA device {name:?}; there is {there}{NO_DEVICE}")))
            }
        }
    }

    /// Its name.
    pub fn name(&self) -> String {
        // SAFETY: the device is of the library's list; the name is a string inside it.
        let name = unsafe { CStr::from_ptr((self.list.library.get_device_name)(self.device.as_ptr())) };
        name.to_string_lossy().into_owned()
    }

    /// Opens it.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn open(&self) -> Result<Arc<Context>, IoError> {
        let library = self.list.library;
        // SAFETY: the device is of the library's list.
        let context = unsafe { (library.open_device)(self.device.as_ptr()) };
        let context = made(context, || format!("opening the RDMA device {}", self.name()), NOT_ALLOWED)?;
        let opened = Context { library, context, name: self.name() };
        nonblocking(opened.async_fd())?;
        Ok(Arc::new(opened))
    }
}

/// Which packets a GID makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GidKind {
    /// InfiniBand's own.
    InfiniBand,
    /// RoCE version 1: an Ethernet type of its own, not routable.
    RoceV1,
    /// RoCE version 2: UDP.
    RoceV2,
    /// The kernel does not say.
    Unknown,
}

/// An entry of a port's table of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gid {
    /// Its index.
    pub index: u8,
    /// Its bytes.
    pub raw: RawGid,
    /// What packets it makes.
    pub kind: GidKind,
    /// The network interface below it, if there is one.
    pub netdev: Option<String>,
}

impl Gid {
    /// The IP address that it stands for.
    pub fn ip(&self) -> IpAddr {
        Ipv6Addr::from(self.raw).to_canonical()
    }
}

/// The GID of an IP address (RoCEv2, annex A17).
pub(super) fn gid_of(ip: IpAddr) -> RawGid {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// An open device.
pub struct Context {
    pub(super) library: &'static Library,
    pub(super) context: NonNull<ibv_context>,
    name: String,
}

// SAFETY: libibverbs locks whatever of a context changes.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: everything made of it holds it, so nothing is left. A failure leaves the kernel to clean up.
        unsafe { (self.library.close_device)(self.context.as_ptr()) };
    }
}

impl Context {
    /// The device's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it can do.
    ///
    /// # Errors
    /// If the driver fails.
    pub fn attributes(&self) -> Result<ibv_device_attr, IoError> {
        // SAFETY: all zeros is a value of this structure of integers.
        let mut attributes = unsafe { std::mem::zeroed() };
        // SAFETY: the context is open; the structure is as large as the call's.
        let rc = unsafe { (self.library.query_device)(self.context.as_ptr(), &raw mut attributes) };
        check(rc, || format!("asking {} what it can do", self.name), "")?;
        Ok(attributes)
    }

    /// One of the functions that libraries since 2018 have beside C's table, if this one has it: the field of
    /// [`verbs_context`] at this offset.
    ///
    /// # Safety
    /// `T` is the type of that field.
    pub(super) unsafe fn extension<T>(&self, field: usize) -> Option<T> {
        // SAFETY: the context is open and lives as long as this borrow.
        let marked = unsafe { self.context.as_ref() }.abi_compat as usize == usize::MAX;
        let before = |offset: usize| {
            // Where the structure begins in a library as new as our declaration of it; in an older one, before it.
            let begin = self.context.as_ptr().cast::<u8>().wrapping_sub(offset_of!(verbs_context, context));
            begin.wrapping_add(offset)
        };
        // SAFETY: a context with this mark is the last field of a `verbs_context` (verbs.h, verbs_get_ctx), whose size
        // stands right before it in every version.
        let size = if marked { unsafe { before(offset_of!(verbs_context, sz)).cast::<usize>().read() } } else { 0 };
        // SAFETY: the structure grows at its front, so a size that reaches back to the field says that it is there; it
        // is of this type.
        (size_of::<verbs_context>() - field <= size).then(|| unsafe { before(field).cast::<T>().read() })
    }

    /// What a port is, counted from 1.
    ///
    /// # Errors
    /// If there is no such port, or the driver fails.
    pub fn port(&self, port: u8) -> Result<ibv_port_attr, IoError> {
        // SAFETY: all zeros is a value of this structure of integers.
        let mut attributes: ibv_port_attr = unsafe { std::mem::zeroed() };
        type QueryPort = Option<unsafe extern "C" fn(*mut ibv_context, u8, *mut ibv_port_attr, usize) -> c_int>;
        // SAFETY: that is the field's type.
        let query = unsafe { self.extension::<QueryPort>(offset_of!(verbs_context, query_port)) }.flatten();
        let rc = match query {
            // SAFETY: the context is open; the structure and its size are given.
            Some(query) => unsafe {
                query(self.context.as_ptr(), port, &raw mut attributes, size_of::<ibv_port_attr>())
            },
            // SAFETY: as above; the older function fills the older, shorter structure.
            None => unsafe { (self.library.query_port)(self.context.as_ptr(), port, &raw mut attributes) },
        };
        check(rc, || format!("asking for port {port} of {}", self.name), "; ports are counted from 1")?;
        Ok(attributes)
    }

    /// A port's addresses: those entries of its table that are filled.
    ///
    /// # Errors
    /// If there is no such port.
    pub fn gids(&self, port: u8) -> Result<Vec<Gid>, IoError> {
        let length = u8::try_from(self.port(port)?.gid_tbl_len).unwrap_or(u8::MAX);
        let filled = (0..length).filter_map(|index| {
            let mut gid = Aligned::default();
            // SAFETY: the context is open; the GID is filled or left alone.
            let rc = unsafe { (self.library.query_gid)(self.context.as_ptr(), port, i32::from(index), &raw mut gid) };
            // The identifier is all zeros where there is none, whatever the prefix says.
            (rc == 0 && gid.0[8..] != [0; 8]).then(|| self.gid(port, index, gid.0))
        });
        Ok(filled.collect())
    }

    /// An address with what the kernel says of it beside the library.
    fn gid(&self, port: u8, index: u8, raw: RawGid) -> Gid {
        let at = |what: &str| {
            let file = self.sysfs(port).join("gid_attrs").join(what).join(index.to_string());
            Some(std::fs::read_to_string(file).ok()?.trim().to_owned())
        };
        let netdev = at("ndevs");
        let kind = match at("types").as_deref() {
            Some("RoCE v2") => GidKind::RoceV2,
            Some("IB/RoCE v1") if netdev.is_some() => GidKind::RoceV1,
            Some("IB/RoCE v1") => GidKind::InfiniBand,
            _ => GidKind::Unknown,
        };
        Gid { index, raw, kind, netdev }
    }

    /// Where the kernel says more of a port.
    pub fn sysfs(&self, port: u8) -> PathBuf {
        ["/sys/class/infiniband", &self.name, "ports", &port.to_string()].iter().collect()
    }

    /// Readable when [`Self::next_event`] has something.
    pub fn async_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is the context's and stays open as long as it.
        unsafe { BorrowedFd::borrow_raw((*self.context.as_ptr()).async_fd) }
    }

    /// What happened beside the completions, in order; none when there is nothing new.
    ///
    /// # Errors
    /// If the device is gone.
    pub fn next_event(&self) -> Result<Option<AsyncEvent>, IoError> {
        let mut event = ibv_async_event { element: std::ptr::null_mut(), event_type: 0 };
        // SAFETY: the context is open; its descriptor does not block.
        let rc = unsafe { (self.library.get_async_event)(self.context.as_ptr(), &raw mut event) };
        if rc != 0 {
            let error = io::Error::last_os_error();
            let nothing = matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted);
            let what = || format!("reading the events of {}", self.name);
            return if nothing { Ok(None) } else { Err(failed(what(), error, "; was it unplugged?")) };
        }
        let happened = match event.event_type {
            IBV_EVENT_CQ_ERR => {
                // SAFETY: the element of this event is a completion queue, which is not destroyed before the event is
                // acknowledged, below.
                AsyncEvent::Cq(unsafe { (*event.element.cast::<ibv_cq>()).cq_context as u64 })
            }
            IBV_EVENT_SRQ_ERR | IBV_EVENT_SRQ_LIMIT_REACHED => {
                // SAFETY: as above, a shared receive queue.
                let cookie = unsafe { (*event.element.cast::<ibv_srq>()).srq_context as u64 };
                AsyncEvent::Srq { cookie, limit: event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED }
            }
            kind @ (IBV_EVENT_QP_FATAL..=IBV_EVENT_SQ_DRAINED | IBV_EVENT_QP_LAST_WQE_REACHED) => {
                // SAFETY: as above, a queue pair.
                AsyncEvent::Qp { number: unsafe { (*event.element.cast::<ibv_qp>()).qp_num }, kind }
            }
            kind => AsyncEvent::Device(kind),
        };
        // SAFETY: the event was read above and is acknowledged once.
        unsafe { (self.library.ack_async_event)(&raw mut event) };
        Ok(Some(happened))
    }
}

/// What happened beside the completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsyncEvent {
    /// The completion queue of this cookie is broken, most likely because it ran over.
    Cq(u64),
    /// To the shared receive queue of this cookie.
    Srq {
        /// What it was made with.
        cookie: u64,
        /// Fewer receives are left than the limit; otherwise it is broken.
        limit: bool,
    },
    /// To a queue pair.
    Qp {
        /// Its number.
        number: u32,
        /// One of the constants `IBV_EVENT_*`.
        kind: u32,
    },
    /// To the port or the device.
    Device(u32),
}

/// Has reads of a descriptor return at once.
pub(super) fn nonblocking(fd: BorrowedFd<'_>) -> Result<(), IoError> {
    let set =
        rustix::fs::fcntl_getfl(fd).and_then(|flags| rustix::fs::fcntl_setfl(fd, flags | rustix::fs::OFlags::NONBLOCK));
    set.map_err(|error| failed("making an event descriptor non-blocking", error.into(), ""))
}
