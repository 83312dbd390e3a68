//! Queue pairs and their requests.

use super::completions::{QUEUES, shotline_cq};
use super::endpoint::{ENDPOINTS, shotline_endpoint};
use crate::arguments::{self, Out, Plain};
use crate::handles::Handles;
use crate::status::{Failure, call, shotline_status};
use shotline_library::endpoint::{EndpointError, QueuePair, QueuePairOptions};
use shotline_verbs::api::{Data, Element, Mtu, Operation, QpType, RecvWr, Remote, SendWr};
use std::ffi::c_void;
use std::time::Duration;

/// As shotline_qp_options.retry_cnt: no retransmission.
pub const SHOTLINE_NO_RETRIES: u32 = u32::MAX;
/// Flag of a request: it has a completion only if it fails. Requests of a queue pair are executed in order, so that one
/// request without this flag at the end of an array reports for all.
pub const SHOTLINE_WR_UNSIGNALLED: u32 = 1;
/// Flag of a request: the completion of the target's receive is a solicited event.
pub const SHOTLINE_WR_SOLICITED: u32 = 2;
/// Flag of a request: it starts only when all READs and atomic operations before it are done.
pub const SHOTLINE_WR_FENCE: u32 = 4;

/// Handle of a queue pair that is connected to one of the target. A handle with the id 0 is never open.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct shotline_qp {
    /// Number of the handle, which is used once in the life of the process.
    pub id: u64,
}

/// Options of a queue pair. Initialise it with SHOTLINE_ZERO: zeros mean the defaults.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct shotline_qp_options {
    /// Acknowledgement timeout before retransmission in nanoseconds; 0: 67 ms.
    pub timeout_ns: u64,
    /// 0: reliable connection (RC); 1: unreliable connection (UC).
    pub unreliable: u32,
    /// Depth of the send queue; 0: 128.
    pub max_send_wr: u32,
    /// Depth of the receive queue; 0: 128.
    pub max_recv_wr: u32,
    /// Maximum elements of a request; 0: 4.
    pub max_sge: u32,
    /// Maximum inline bytes of a request; 0: 64.
    pub max_inline: u32,
    /// Receives that the target keeps posted, at most 65535; 0: none, so that it takes no messages.
    pub receives: u32,
    /// Bytes of each of them.
    pub receive_bytes: u32,
    /// 1: the target sends each message back; 0: it discards them.
    pub echo: u32,
    /// Maximum retransmissions, 1 to 7; 0: 7; SHOTLINE_NO_RETRIES: none.
    pub retry_cnt: u32,
    /// Service level; over SpaceFibre the virtual channel.
    pub service_level: u32,
    /// Maximum path MTU in bytes, a power of 2 from 256; 0: as large as possible.
    pub mtu: u32,
    /// Must be zero.
    pub reserved: [u32; 5],
}

/// Scatter/gather element: bytes of registered memory.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct shotline_sge {
    /// shotline_region_info.address, plus the offset of the first byte.
    pub address: u64,
    /// Length in bytes.
    pub length: u32,
    /// shotline_region_info.lkey.
    pub lkey: u32,
}

// SAFETY: three integers, 16 bytes without padding.
unsafe impl Plain for shotline_sge {}

/// Operation of a request.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum shotline_operation {
    /// Sends a message, which the target's next posted receive takes.
    SHOTLINE_SEND = 0,
    /// SEND with immediate data.
    SHOTLINE_SEND_IMM = 1,
    /// Writes to memory of the target.
    SHOTLINE_WRITE = 2,
    /// WRITE that also consumes a receive of the target, whose completion has the immediate data.
    SHOTLINE_WRITE_IMM = 3,
    /// Reads memory of the target.
    SHOTLINE_READ = 4,
    /// Replaces 8 bytes of the target by `swap` if they equal `compare_add`. Local memory of 8 bytes receives the original.
    SHOTLINE_COMPARE_SWAP = 5,
    /// Adds `compare_add` to 8 bytes of the target, modulo 2^64. Local memory of 8 bytes receives the original.
    SHOTLINE_FETCH_ADD = 6,
}

/// Work request of a send queue. Initialise it with SHOTLINE_ZERO.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct shotline_send_wr {
    /// Any number, which the completion has.
    pub id: u64,
    /// One of shotline_operation.
    pub operation: u32,
    /// Sum of SHOTLINE_WR_UNSIGNALLED, _SOLICITED and _FENCE.
    pub flags: u32,
    /// Local memory, gathered or scattered in order. It belongs to the library until the completion: do not change what is
    /// sent, and do not read what is received, before. The array itself is copied.
    pub sges: *const shotline_sge,
    /// Bytes to send instead of `sges`, which are copied at once and need no key; NULL: none.
    pub inline_data: *const c_void,
    /// Number of elements at `sges`, or of bytes at `inline_data`.
    pub length: u32,
    /// Immediate data.
    pub imm: u32,
    /// Memory of the target: shotline_remote_region.address, plus the offset of the first byte.
    pub remote_address: u64,
    /// shotline_remote_region.rkey.
    pub rkey: u32,
    /// Must be zero.
    pub reserved: u32,
    /// Operand of atomic operations.
    pub compare_add: u64,
    /// New value of a compare and swap.
    pub swap: u64,
}

/// Work request of a receive queue. Initialise it with SHOTLINE_ZERO.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct shotline_recv_wr {
    /// Any number, which the completion has.
    pub id: u64,
    /// Local memory that the message is written to, in order. The array itself is copied.
    pub sges: *const shotline_sge,
    /// Number of elements at `sges`.
    pub length: u32,
    /// Must be zero.
    pub reserved: u32,
}

static PAIRS: Handles<QueuePair> = Handles::new("queue pair");

/// Creates a queue pair and connects it to a new one of the target.
///
/// send_cq, recv_cq: completion queues of the endpoint, which may be the same.
/// options: NULL for the defaults.
/// qp: receives the handle; on failure one with the id 0.
///
/// Lifetime: close it with shotline_qp_close(). Threads: any. Errors: INVALID_ARGUMENT, UNSUPPORTED, REFUSED (by the target),
/// IO, ENDED, CLOSED, FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_qp_create(
    endpoint: shotline_endpoint,
    send_cq: shotline_cq,
    recv_cq: shotline_cq,
    options: *const shotline_qp_options,
    qp: *mut shotline_qp,
) -> shotline_status {
    call(|| {
        // SAFETY: the contract of the header.
        let (options, out) = unsafe { (arguments::read(options, "options")?, Out::new(qp, "qp")?) };
        out.set(shotline_qp { id: 0 });
        let options = options.map_or(Ok(QueuePairOptions::default()), |options| options.resolve())?;
        let endpoint = ENDPOINTS.get(endpoint.id)?;
        let (send, recv) = (QUEUES.get(send_cq.id)?, QUEUES.get(recv_cq.id)?);
        let pair = endpoint.create_qp(&send, &recv, &options)?;
        out.set(shotline_qp { id: PAIRS.insert(pair) });
        Ok(())
    })
}

/// Posts requests in order, with one doorbell.
///
/// requests: `count` requests.
/// posted: receives the number of requests that were posted, also if not all were; may be NULL.
///
/// Threads: any, several at once. Errors: QUEUE_FULL (poll the completion queue), INVALID_ARGUMENT, CLOSED, FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_qp_post_send(
    qp: shotline_qp,
    requests: *const shotline_send_wr,
    count: usize,
    posted: *mut usize,
) -> shotline_status {
    call(|| {
        // SAFETY: the contract of the header.
        let (requests, out) =
            unsafe { (arguments::array(requests, count as u64, "requests")?, Out::optional(posted, "posted")?) };
        out.iter().for_each(|out| out.set(0));
        let pair = PAIRS.get(qp.id)?;
        let mut elements = Vec::with_capacity(count);
        // SAFETY: as above.
        requests.iter().try_for_each(|request| unsafe { push_elements(request, &mut elements) })?;
        let mut rest = elements.as_slice();
        let mut list = Vec::with_capacity(count);
        for request in requests {
            // SAFETY: as above.
            list.push(unsafe { request.resolve(&mut rest) }?);
        }
        finish(pair.post_send(&list), count, out)
    })
}

/// Posts receives in order.
///
/// requests: `count` receives.
/// posted: receives the number of receives that were posted, also if not all were; may be NULL.
///
/// Threads: any, several at once. Errors: QUEUE_FULL, INVALID_ARGUMENT, CLOSED, FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_qp_post_recv(
    qp: shotline_qp,
    requests: *const shotline_recv_wr,
    count: usize,
    posted: *mut usize,
) -> shotline_status {
    call(|| {
        // SAFETY: the contract of the header.
        let (requests, out) =
            unsafe { (arguments::array(requests, count as u64, "requests")?, Out::optional(posted, "posted")?) };
        out.iter().for_each(|out| out.set(0));
        let pair = PAIRS.get(qp.id)?;
        let mut elements = Vec::with_capacity(count);
        for request in requests {
            check_zero(request.reserved)?;
            // SAFETY: as above.
            let sges = unsafe { arguments::slice(request.sges, request.length.into(), "sges") }?;
            elements.extend(sges.iter().map(element));
        }
        let mut rest = elements.as_slice();
        let list = requests.iter().map(|request| {
            let (elements, others) = rest.split_at(request.length as usize);
            rest = others;
            RecvWr { id: request.id, elements }
        });
        finish(pair.post_recv(&list.collect::<Vec<_>>()), count, out)
    })
}

/// Stores the number of a queue pair, as completions have it, and that of the target's.
///
/// number, peer: receive the numbers; may be NULL.
///
/// Threads: any. Errors: CLOSED, FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_qp_get_numbers(qp: shotline_qp, number: *mut u32, peer: *mut u32) -> shotline_status {
    call(|| {
        // SAFETY: the contract of the header.
        let (number, peer) = unsafe { (Out::optional(number, "number")?, Out::optional(peer, "peer")?) };
        let pair = PAIRS.get(qp.id)?;
        number.inspect(|out| out.set(pair.number()));
        peer.inspect(|out| out.set(pair.peer()));
        Ok(())
    })
}

/// Destroys a queue pair at both ends. Outstanding requests do not complete.
///
/// Threads: any. Errors: CLOSED if it is closed already, FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_qp_close(qp: shotline_qp) -> shotline_status {
    call(|| Ok::<_, Failure>(PAIRS.remove(qp.id)?.close()?))
}

/// Stores how many requests were posted.
fn finish(done: Result<(), EndpointError>, count: usize, out: Option<Out<usize>>) -> Result<(), Failure> {
    let posted = match &done {
        Ok(()) => count,
        Err(EndpointError::Post { posted, .. }) => *posted,
        Err(_) => 0,
    };
    out.inspect(|out| out.set(posted));
    Ok(done?)
}

fn element(sge: &shotline_sge) -> Element {
    Element { address: sge.address, len: sge.length, lkey: sge.lkey }
}

fn check_zero(reserved: u32) -> Result<(), Failure> {
    if reserved == 0 {
        return Ok(());
    }
    let words = "expected zero in `reserved` of a request, found another value: initialise it with SHOTLINE_ZERO";
    Err(Failure::argument(words))
}

/// Adds the elements of a request.
///
/// # Safety
/// The contract of the header for its pointers.
unsafe fn push_elements(request: &shotline_send_wr, elements: &mut Vec<Element>) -> Result<(), Failure> {
    if request.inline_data.is_null() {
        // SAFETY: the caller guarantees it.
        let sges = unsafe { arguments::slice(request.sges, request.length.into(), "sges") }?;
        elements.extend(sges.iter().map(element));
    }
    Ok(())
}

impl shotline_send_wr {
    /// Returns the request of the verbs, with the first of the elements that are left.
    ///
    /// # Safety
    /// The contract of the header for the pointers.
    unsafe fn resolve<'a>(&'a self, rest: &mut &'a [Element]) -> Result<SendWr<'a>, Failure> {
        check_zero(self.reserved)?;
        let all = SHOTLINE_WR_UNSIGNALLED | SHOTLINE_WR_SOLICITED | SHOTLINE_WR_FENCE;
        if self.flags & !all != 0 {
            return Err(Failure::argument(format!("expected flags of {all:#x}, found {:#x}", self.flags)));
        }
        let data = if self.inline_data.is_null() {
            let (elements, others) = rest.split_at(self.length as usize);
            *rest = others;
            Data::Elements(elements)
        } else {
            // SAFETY: the caller guarantees it.
            Data::Inline(unsafe { arguments::slice(self.inline_data.cast(), self.length.into(), "inline_data") }?)
        };
        let has = |flag| self.flags & flag != 0;
        Ok(SendWr {
            signalled: !has(SHOTLINE_WR_UNSIGNALLED),
            solicited: has(SHOTLINE_WR_SOLICITED),
            fence: has(SHOTLINE_WR_FENCE),
            ..SendWr::new(self.id, self.operation()?, data)
        })
    }

    fn operation(&self) -> Result<Operation, Failure> {
        use shotline_operation as O;
        let remote = Remote { address: self.remote_address, rkey: self.rkey };
        Ok(match self.operation {
            found if found == O::SHOTLINE_SEND as u32 => Operation::Send,
            found if found == O::SHOTLINE_SEND_IMM as u32 => Operation::SendImm(self.imm),
            found if found == O::SHOTLINE_WRITE as u32 => Operation::Write(remote),
            found if found == O::SHOTLINE_WRITE_IMM as u32 => Operation::WriteImm(remote, self.imm),
            found if found == O::SHOTLINE_READ as u32 => Operation::Read(remote),
            found if found == O::SHOTLINE_COMPARE_SWAP as u32 => {
                Operation::CompareSwap { remote, compare: self.compare_add, swap: self.swap }
            }
            found if found == O::SHOTLINE_FETCH_ADD as u32 => Operation::FetchAdd { remote, add: self.compare_add },
            found => return Err(Failure::argument(format!("expected a shotline_operation, found {found}"))),
        })
    }
}

impl shotline_qp_options {
    /// Replaces zeros by the defaults.
    fn resolve(&self) -> Result<QueuePairOptions, Failure> {
        if self.reserved != [0; 5] {
            let words = "expected zeros in `reserved` of the options, found others: initialise them with SHOTLINE_ZERO";
            return Err(Failure::argument(words));
        }
        let default = QueuePairOptions::default();
        let or = |value: u32, default: u32| if value == 0 { default } else { value };
        let small = |what: &str, value: u32, max: u32| {
            let words = || Failure::argument(format!("expected `{what}` of at most {max}, found {value}"));
            if value > max { Err(words()) } else { Ok(value) }
        };
        Ok(QueuePairOptions {
            service: if small("unreliable", self.unreliable, 1)? == 0 { QpType::Rc } else { QpType::Uc },
            max_send_wr: or(self.max_send_wr, default.max_send_wr),
            max_recv_wr: or(self.max_recv_wr, default.max_recv_wr),
            max_sge: or(self.max_sge, default.max_sge),
            max_inline: or(self.max_inline, default.max_inline),
            receives: (small("receives", self.receives, u16::MAX.into())? as u16, self.receive_bytes),
            echo: small("echo", self.echo, 1)? == 1,
            timeout: match self.timeout_ns {
                0 => default.timeout,
                timeout_ns => Duration::from_nanos(timeout_ns),
            },
            retry_cnt: match self.retry_cnt {
                0 => default.retry_cnt,
                SHOTLINE_NO_RETRIES => 0,
                retries => small("retry_cnt", retries, 7)? as u8,
            },
            service_level: small("service_level", self.service_level, u8::MAX.into())? as u8,
            mtu: match self.mtu {
                0 => default.mtu,
                bytes => Mtu::from_bytes(bytes).ok_or_else(|| {
                    Failure::argument(format!("expected `mtu` of 256 to 32768, a power of 2, found {bytes}"))
                })?,
            },
        })
    }
}
