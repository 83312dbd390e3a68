//! Completion queues.

use super::endpoint::{ENDPOINTS, shotline_endpoint};
use crate::arguments::{Out, OutArray};
use crate::handles::Handles;
use crate::record::wait::within;
use crate::status::{Failure, call, shotline_status};
use shotline_library::endpoint::{CompletionFailure, CompletionQueue, status_name};
use shotline_verbs::api::{Completion, CompletionKind, Status};
use std::ffi::{CString, c_char};
use std::sync::LazyLock;

/// Handle of a completion queue. A handle with the id 0 is never open.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct shotline_cq {
    /// Number of the handle, which is used once in the life of the process.
    pub id: u64,
}

/// What a completion is of.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum shotline_completion_kind {
    /// A SEND.
    SHOTLINE_COMPLETION_SEND = 0,
    /// A WRITE.
    SHOTLINE_COMPLETION_WRITE = 1,
    /// A READ.
    SHOTLINE_COMPLETION_READ = 2,
    /// A compare and swap.
    SHOTLINE_COMPLETION_COMPARE_SWAP = 3,
    /// A fetch and add.
    SHOTLINE_COMPLETION_FETCH_ADD = 4,
    /// A receive that was filled by a SEND.
    SHOTLINE_COMPLETION_RECV = 5,
    /// A receive that was consumed by a WRITE with immediate data, which has not written to it.
    SHOTLINE_COMPLETION_RECV_WRITE_IMM = 6,
}

/// Status of a completion; shotline_wc_status_meaning() explains each.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum shotline_wc_status {
    /// The request succeeded.
    SHOTLINE_WC_SUCCESS = 0,
    /// A message did not fit.
    SHOTLINE_WC_LOCAL_LENGTH = 1,
    /// The local queue pair could not execute the request.
    SHOTLINE_WC_LOCAL_OPERATION = 2,
    /// A local key, range or right is not valid.
    SHOTLINE_WC_LOCAL_PROTECTION = 3,
    /// An earlier request of the queue pair failed, or the target has ended.
    SHOTLINE_WC_FLUSHED = 4,
    /// The target sent an invalid response.
    SHOTLINE_WC_BAD_RESPONSE = 5,
    /// The target rejected the request as invalid.
    SHOTLINE_WC_REMOTE_INVALID = 6,
    /// The target refused key, range or rights.
    SHOTLINE_WC_REMOTE_ACCESS = 7,
    /// The target could not execute the request.
    SHOTLINE_WC_REMOTE_OPERATION = 8,
    /// No acknowledgement arrived after all retransmissions.
    SHOTLINE_WC_RETRY_EXCEEDED = 9,
    /// The target had no receive for the message.
    SHOTLINE_WC_RNR_RETRY_EXCEEDED = 10,
}

/// Completion of a request. `kind`, `bytes` and `imm` are valid only on success.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct shotline_completion {
    /// Id of the request.
    pub id: u64,
    /// One of shotline_wc_status; 0: success.
    pub status: u32,
    /// One of shotline_completion_kind.
    pub kind: u32,
    /// Number of the local queue pair.
    pub qp: u32,
    /// Bytes received by a receive or a READ; else 0.
    pub bytes: u32,
    /// Immediate data of a received message, if has_imm is 1; else 0.
    pub imm: u32,
    /// 1 if there is immediate data; else 0.
    pub has_imm: u32,
    /// Zero, for fields of later versions.
    pub reserved: [u32; 4],
}

pub(super) static QUEUES: Handles<CompletionQueue> = Handles::new("completion queue");

/// Completions that are converted at a time.
const BATCH: usize = 32;

const STATUSES: [Status; 11] = [
    Status::Success,
    Status::LocalLength,
    Status::LocalOperation,
    Status::LocalProtection,
    Status::Flushed,
    Status::BadResponse,
    Status::RemoteInvalid,
    Status::RemoteAccess,
    Status::RemoteOperation,
    Status::RetryExceeded,
    Status::RnrRetryExceeded,
];

static TEXTS: LazyLock<Vec<[CString; 2]>> = LazyLock::new(|| {
    let meaning = |status| CompletionFailure::of(status).map_or("the request succeeded".into(), |it| it.to_string());
    let text = |text: String| CString::new(text).unwrap_or_default();
    STATUSES.map(|status| [text(status_name(status).to_owned()), text(meaning(status))]).into()
});

fn text(status: u32, at: usize) -> *const c_char {
    TEXTS.get(status as usize).map_or(std::ptr::null(), |texts| texts[at].as_ptr())
}

/// Returns the name of a status of completions, for example "remote_access", or NULL if there is none with this number. The
/// string is static.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn shotline_wc_status_name(status: u32) -> *const c_char {
    text(status, 0)
}

/// Returns what a status of completions means, with its probable cause, or NULL if there is none with this number. The
/// string is static.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn shotline_wc_status_meaning(status: u32) -> *const c_char {
    text(status, 1)
}

/// Creates a completion queue.
///
/// depth: number of completions that it has space for.
/// cq: receives the handle; on failure one with the id 0.
///
/// Lifetime: close it with shotline_cq_close(). Threads: any. Errors: INVALID_ARGUMENT, UNSUPPORTED, CLOSED, FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_cq_create(
    endpoint: shotline_endpoint,
    depth: u32,
    cq: *mut shotline_cq,
) -> shotline_status {
    call(|| {
        // SAFETY: the contract of the header.
        let out = unsafe { Out::new(cq, "cq") }?;
        out.set(shotline_cq { id: 0 });
        let queue = ENDPOINTS.get(endpoint.id)?.create_cq(depth)?;
        out.set(shotline_cq { id: QUEUES.insert(queue) });
        Ok(())
    })
}

/// Moves completions, oldest first, to memory of the caller. Does not wait.
///
/// completions: receives at most `capacity` structures.
/// count: receives their number, which may be 0.
///
/// Threads: any, several at once; each completion goes to one of them. Errors: ENDED (the target has ended, and all
/// completions were returned), CUT_OFF (the queue was full and lost completions), CLOSED, FORKED, INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_cq_poll(
    cq: shotline_cq,
    completions: *mut shotline_completion,
    capacity: usize,
    count: *mut usize,
) -> shotline_status {
    call(|| {
        // SAFETY: the contract of the header.
        let (out, count) = unsafe { (OutArray::new(completions, capacity, "completions")?, Out::new(count, "count")?) };
        let queue = QUEUES.get(cq.id)?;
        count.set(take(out, capacity, |batch| Ok(queue.poll(batch)?))?);
        Ok(())
    })
}

/// Waits until there is a completion; otherwise as shotline_cq_poll().
///
/// timeout_ns: limit of the wait in nanoseconds, or SHOTLINE_FOREVER.
///
/// Threads: any, several at once. Errors: TIMEOUT, CLOSED (also by another thread during the call); others as for
/// shotline_cq_poll().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_cq_wait(
    cq: shotline_cq,
    timeout_ns: u64,
    completions: *mut shotline_completion,
    capacity: usize,
    count: *mut usize,
) -> shotline_status {
    call(|| {
        // SAFETY: the contract of the header.
        let (out, count) = unsafe { (OutArray::new(completions, capacity, "completions")?, Out::new(count, "count")?) };
        if capacity == 0 {
            return Err(Failure::argument("expected space for a completion in `capacity`, found 0"));
        }
        let queue = QUEUES.get(cq.id)?;
        let late = || "no completion within the limit: wait longer, or close the queue pair".to_owned();
        let mut first = [Completion::default(); BATCH];
        let first = &mut first[..capacity.min(BATCH)];
        let taken = within(timeout_ns, late, |slice| {
            let taken = queue.wait(first, slice)?;
            Ok((taken > 0).then_some(taken))
        })?;
        out.fill(first[..taken].iter().map(shotline_completion::from), "completions")?;
        // An error is that of the next call: the completions so far are not lost.
        let is_full = taken == BATCH;
        let more = if is_full {
            take(out.after(taken), capacity - taken, |batch| Ok(queue.poll(batch).unwrap_or(0)))?
        } else {
            0
        };
        count.set(taken + more);
        Ok(())
    })
}

/// Destroys a completion queue.
///
/// Threads: any. Errors: BUSY (a queue pair uses it; the handle stays open), CLOSED if it is closed already, FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_cq_close(cq: shotline_cq) -> shotline_status {
    call(|| {
        QUEUES.get(cq.id)?.close()?;
        QUEUES.remove(cq.id).map(drop)
    })
}

/// Moves up to `capacity` completions to the caller, batch by batch; returns their number.
fn take(
    mut out: OutArray<shotline_completion>,
    capacity: usize,
    mut poll: impl FnMut(&mut [Completion]) -> Result<usize, Failure>,
) -> Result<usize, Failure> {
    let mut total = 0;
    let mut batch = [Completion::default(); BATCH];
    loop {
        let space = (capacity - total).min(BATCH);
        let taken = match poll(&mut batch[..space]) {
            Ok(taken) => taken,
            // The error is that of the next call.
            Err(_) if total > 0 => 0,
            Err(error) => return Err(error),
        };
        out.fill(batch[..taken].iter().map(shotline_completion::from), "completions")?;
        out = out.after(taken);
        total += taken;
        if taken < BATCH || total == capacity {
            return Ok(total);
        }
    }
}

impl From<&Completion> for shotline_completion {
    fn from(found: &Completion) -> Self {
        use shotline_completion_kind as Kind;
        let kind = match found.kind {
            CompletionKind::Send => Kind::SHOTLINE_COMPLETION_SEND,
            CompletionKind::Write => Kind::SHOTLINE_COMPLETION_WRITE,
            CompletionKind::Read => Kind::SHOTLINE_COMPLETION_READ,
            CompletionKind::CompareSwap => Kind::SHOTLINE_COMPLETION_COMPARE_SWAP,
            CompletionKind::FetchAdd => Kind::SHOTLINE_COMPLETION_FETCH_ADD,
            CompletionKind::Recv => Kind::SHOTLINE_COMPLETION_RECV,
            CompletionKind::RecvWriteImm => Kind::SHOTLINE_COMPLETION_RECV_WRITE_IMM,
        };
        Self {
            id: found.id,
            status: number(found.status) as u32,
            kind: kind as u32,
            qp: found.qp,
            bytes: found.bytes,
            imm: found.imm.unwrap_or(0),
            has_imm: found.imm.is_some().into(),
            reserved: [0; 4],
        }
    }
}

fn number(status: Status) -> shotline_wc_status {
    use shotline_wc_status::*;
    match status {
        Status::Success => SHOTLINE_WC_SUCCESS,
        Status::LocalLength => SHOTLINE_WC_LOCAL_LENGTH,
        Status::LocalOperation => SHOTLINE_WC_LOCAL_OPERATION,
        Status::LocalProtection => SHOTLINE_WC_LOCAL_PROTECTION,
        Status::Flushed => SHOTLINE_WC_FLUSHED,
        Status::BadResponse => SHOTLINE_WC_BAD_RESPONSE,
        Status::RemoteInvalid => SHOTLINE_WC_REMOTE_INVALID,
        Status::RemoteAccess => SHOTLINE_WC_REMOTE_ACCESS,
        Status::RemoteOperation => SHOTLINE_WC_REMOTE_OPERATION,
        Status::RetryExceeded => SHOTLINE_WC_RETRY_EXCEEDED,
        Status::RnrRetryExceeded => SHOTLINE_WC_RNR_RETRY_EXCEEDED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_of_a_completion_has_its_number() {
        for (at, status) in STATUSES.into_iter().enumerate() {
            assert_eq!(number(status) as usize, at);
        }
    }
}
