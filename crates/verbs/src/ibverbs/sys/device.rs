//! Devices, their ports and their addresses.

use super::abi::*;
use super::library::{Library, library};
use super::{check, check_pointer, failed};
use rustix::fd::BorrowedFd;
use shotline_transport::IoError;
use std::ffi::{CStr, c_int};
use std::io;
use std::mem::{offset_of, size_of};
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::Arc;

const NO_DEVICE: &str = "; is there an RDMA device (rdma link show), and its kernel driver with ib_uverbs? Linux creates one \
                         on any network interface: modprobe rdma_rxe && rdma link add rxe0 type rxe netdev INTERFACE";
const NOT_ALLOWED: &str = "; may this user open /dev/infiniband/uverbs*?";

/// The library's list of devices, freed with the last [`Device`] of it.
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
        // SAFETY: the list is from the library, and is freed once.
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

/// Returns the RDMA devices of this machine, possibly none.
///
/// # Errors
/// If the library is missing, or the kernel has no RDMA support.
pub fn devices() -> Result<Vec<Device>, IoError> {
    let library = library()?;
    let mut count = 0;
    // SAFETY: it sets the count and returns a list of that length, or null with errno set.
    let entries = unsafe { (library.get_device_list)(&raw mut count) };
    let list =
        Arc::new(List { library, entries: check_pointer(entries, || "listing RDMA devices".into(), NO_DEVICE)? });
    let found = (0..usize::try_from(count).unwrap_or(0)).filter_map(|index| {
        // SAFETY: the list has `count` entries.
        let device = NonNull::new(unsafe { *list.entries.as_ptr().add(index) })?;
        Some(Device { list: Arc::clone(&list), device })
    });
    Ok(found.collect())
}

impl Device {
    /// Returns the device with this name (`rxe0`, `mlx5_0`).
    ///
    /// # Errors
    /// If there is none; the error lists the existing ones.
    pub fn named(name: &str) -> Result<Self, IoError> {
        let mut all = devices()?;
        match all.iter().position(|device| device.name() == name) {
            Some(index) => Ok(all.swap_remove(index)),
            None => {
                let names: Vec<_> = all.iter().map(Self::name).collect();
                let found = if names.is_empty() { "none".into() } else { names.join(", ") };
                Err(IoError::Config(format!("there is no RDMA device {name:?}; found {found}{NO_DEVICE}")))
            }
        }
    }

    /// Returns the name.
    pub fn name(&self) -> String {
        // SAFETY: the device is from the library's list; the name is a string inside it.
        let name = unsafe { CStr::from_ptr((self.list.library.get_device_name)(self.device.as_ptr())) };
        name.to_string_lossy().into_owned()
    }

    /// Opens the device.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn open(&self) -> Result<Arc<Context>, IoError> {
        let library = self.list.library;
        // SAFETY: the device is from the library's list.
        let context = unsafe { (library.open_device)(self.device.as_ptr()) };
        let context = check_pointer(context, || format!("opening the RDMA device {}", self.name()), NOT_ALLOWED)?;
        let opened = Context { library, context, name: self.name() };
        nonblocking(opened.async_fd())?;
        Ok(Arc::new(opened))
    }
}

/// Packet format of a GID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GidKind {
    /// Native InfiniBand.
    InfiniBand,
    /// RoCE version 1: a separate EtherType, not routable.
    RoceV1,
    /// RoCE version 2: UDP.
    RoceV2,
    /// Not reported by the kernel.
    Unknown,
}

/// An entry of a port's GID table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gid {
    /// Index in the table.
    pub index: u8,
    /// Raw bytes.
    pub raw: RawGid,
    /// Packet format.
    pub kind: GidKind,
    /// Network interface of the port, if there is one.
    pub netdev: Option<String>,
}

impl Gid {
    /// Returns the IP address of the GID.
    pub fn ip(&self) -> IpAddr {
        Ipv6Addr::from(self.raw).to_canonical()
    }
}

/// Returns the GID of an IP address (RoCEv2, annex A17).
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
    pub(super) name: String,
}

// SAFETY: libibverbs locks the mutable state of a context.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: everything created from the context holds it, so nothing exists any more. A failure leaves the
        // clean-up to the kernel.
        unsafe { (self.library.close_device)(self.context.as_ptr()) };
    }
}

impl Context {
    /// Returns the name of the device.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the attributes of the device.
    ///
    /// # Errors
    /// If the driver fails.
    pub fn attributes(&self) -> Result<ibv_device_attr, IoError> {
        // SAFETY: all zeros is a value of this structure of integers.
        let mut attributes = unsafe { std::mem::zeroed() };
        // SAFETY: the context is open; the structure has the size that the call fills.
        let rc = unsafe { (self.library.query_device)(self.context.as_ptr(), &raw mut attributes) };
        check(rc, || format!("querying the attributes of {}", self.name), "")?;
        Ok(attributes)
    }

    /// Returns a function outside the original function table: the field of [`verbs_context`] at this offset, if this
    /// library has it (most have since 2018).
    ///
    /// # Safety
    /// `T` must be the type of that field.
    pub(super) unsafe fn extension<T>(&self, field: usize) -> Option<T> {
        // SAFETY: the context is open and lives as long as this borrow.
        let is_extended = unsafe { self.context.as_ref() }.abi_compat as usize == usize::MAX;
        let before = |offset: usize| {
            // Start of the structure as declared here; in an older library it starts later.
            let begin = self.context.as_ptr().cast::<u8>().wrapping_sub(offset_of!(verbs_context, context));
            begin.wrapping_add(offset)
        };
        // SAFETY: a context with this mark is the last field of a `verbs_context` (verbs.h, verbs_get_ctx), whose size
        // is directly before it in every version.
        let read_size = || unsafe { before(offset_of!(verbs_context, sz)).cast::<usize>().read() };
        let size = if is_extended { read_size() } else { 0 };
        // SAFETY: the structure grows at its front, so a size that includes the field means that it exists; it has this
        // type.
        (size_of::<verbs_context>() - field <= size).then(|| unsafe { before(field).cast::<T>().read() })
    }

    /// Returns the attributes of a port, counted from 1.
    ///
    /// # Errors
    /// If there is no such port, or the driver fails.
    pub fn port(&self, port: u8) -> Result<ibv_port_attr, IoError> {
        // SAFETY: all zeros is a value of this structure of integers.
        let mut attributes: ibv_port_attr = unsafe { std::mem::zeroed() };
        type QueryPort = Option<unsafe extern "C" fn(*mut ibv_context, u8, *mut ibv_port_attr, usize) -> c_int>;
        // SAFETY: this is the field's type.
        let query = unsafe { self.extension::<QueryPort>(offset_of!(verbs_context, query_port)) }.flatten();
        let rc = match query {
            // SAFETY: the context is open; the structure has the given size.
            Some(query) => unsafe {
                query(self.context.as_ptr(), port, &raw mut attributes, size_of::<ibv_port_attr>())
            },
            // SAFETY: as above; the older function fills the older, shorter structure.
            None => unsafe { (self.library.query_port)(self.context.as_ptr(), port, &raw mut attributes) },
        };
        check(rc, || format!("querying port {port} of {}", self.name), "; ports are counted from 1")?;
        Ok(attributes)
    }

    /// Returns the filled entries of a port's GID table.
    ///
    /// # Errors
    /// If there is no such port.
    pub fn gids(&self, port: u8) -> Result<Vec<Gid>, IoError> {
        let length = u8::try_from(self.port(port)?.gid_tbl_len).unwrap_or(u8::MAX);
        let filled = (0..length).filter_map(|index| {
            let mut gid = AlignedGid::default();
            // SAFETY: the context is open; the GID is filled or unchanged.
            let rc = unsafe { (self.library.query_gid)(self.context.as_ptr(), port, i32::from(index), &raw mut gid) };
            // The interface identifier of an empty entry is all zeros, regardless of the prefix.
            (rc == 0 && gid.0[8..] != [0; 8]).then(|| self.gid(port, index, gid.0))
        });
        Ok(filled.collect())
    }

    /// Adds the attributes of a GID from sysfs.
    fn gid(&self, port: u8, index: u8, raw: RawGid) -> Gid {
        let attribute = |what: &str| {
            let file = self.sysfs(port).join("gid_attrs").join(what).join(index.to_string());
            Some(std::fs::read_to_string(file).ok()?.trim().to_owned())
        };
        let netdev = attribute("ndevs");
        let kind = match attribute("types").as_deref() {
            Some("RoCE v2") => GidKind::RoceV2,
            Some("IB/RoCE v1") if netdev.is_some() => GidKind::RoceV1,
            Some("IB/RoCE v1") => GidKind::InfiniBand,
            _ => GidKind::Unknown,
        };
        Gid { index, raw, kind, netdev }
    }

    /// Returns the sysfs directory of a port.
    pub fn sysfs(&self, port: u8) -> PathBuf {
        ["/sys/class/infiniband", &self.name, "ports", &port.to_string()].iter().collect()
    }

    /// Returns a descriptor that is readable when [`Self::next_event`] has an event.
    pub fn async_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is the context's and stays open as long as it.
        unsafe { BorrowedFd::borrow_raw((*self.context.as_ptr()).async_fd) }
    }

    /// Returns the next asynchronous event, or `None` if there is none.
    ///
    /// # Errors
    /// If the device was removed.
    pub fn next_event(&self) -> Result<Option<AsyncEvent>, IoError> {
        let mut event = ibv_async_event { element: std::ptr::null_mut(), event_type: 0 };
        // SAFETY: the context is open; its descriptor does not block.
        let rc = unsafe { (self.library.get_async_event)(self.context.as_ptr(), &raw mut event) };
        if rc != 0 {
            let error = io::Error::last_os_error();
            let no_event = matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted);
            let what = || format!("reading the events of {}", self.name);
            return if no_event { Ok(None) } else { Err(failed(what(), error, "; was the device removed?")) };
        }
        let next = match event.event_type {
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
        Ok(Some(next))
    }
}

/// An asynchronous event of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsyncEvent {
    /// The completion queue with this cookie has failed, most likely by an overrun.
    Cq(u64),
    /// An event of a shared receive queue.
    Srq {
        /// Cookie given at its creation.
        cookie: u64,
        /// `true` if fewer receives than the limit are left, `false` if the queue has failed.
        limit: bool,
    },
    /// An event of a queue pair.
    Qp {
        /// Number of the queue pair.
        number: u32,
        /// One of the constants `IBV_EVENT_*`.
        kind: u32,
    },
    /// An event of the port or the device, `IBV_EVENT_*`.
    Device(u32),
}

/// Makes a descriptor non-blocking.
pub(super) fn nonblocking(fd: BorrowedFd<'_>) -> Result<(), IoError> {
    let set =
        rustix::fs::fcntl_getfl(fd).and_then(|flags| rustix::fs::fcntl_setfl(fd, flags | rustix::fs::OFlags::NONBLOCK));
    set.map_err(|error| failed("setting an event descriptor to non-blocking mode", error.into(), ""))
}
