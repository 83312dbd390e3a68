//! Declarations of `infiniband/verbs.h` that Shotline uses, with C's names.
//!
//! Structures that the library allocates are declared only up to the last field that is read, so their size here is
//! meaningless. A test compiles a C program against the header and compares every size, offset and constant.

use libc::{c_char, c_int, c_uint, c_void, pthread_mutex_t};

/// A global identifier: an IPv6 address, an IPv4 address mapped into one, or InfiniBand's prefix and identifier.
pub type RawGid = [u8; 16];

/// A device in the library's list.
#[repr(C)]
pub struct ibv_device {
    _opaque: [u8; 0],
}

/// Attributes of a device.
#[repr(C)]
#[derive(Clone, Copy)]
#[expect(missing_docs, reason = "C's names; ibv_query_device(3) describes them")]
pub struct ibv_device_attr {
    pub fw_ver: [c_char; 64],
    pub node_guid: u64,
    pub sys_image_guid: u64,
    pub max_mr_size: u64,
    pub page_size_cap: u64,
    pub vendor_id: u32,
    pub vendor_part_id: u32,
    pub hw_ver: u32,
    pub max_qp: c_int,
    pub max_qp_wr: c_int,
    pub device_cap_flags: c_uint,
    pub max_sge: c_int,
    pub max_sge_rd: c_int,
    pub max_cq: c_int,
    pub max_cqe: c_int,
    pub max_mr: c_int,
    pub max_pd: c_int,
    pub max_qp_rd_atom: c_int,
    pub max_ee_rd_atom: c_int,
    pub max_res_rd_atom: c_int,
    pub max_qp_init_rd_atom: c_int,
    pub max_ee_init_rd_atom: c_int,
    pub atomic_cap: c_uint,
    pub max_ee: c_int,
    pub max_rdd: c_int,
    pub max_mw: c_int,
    pub max_raw_ipv6_qp: c_int,
    pub max_raw_ethy_qp: c_int,
    pub max_mcast_grp: c_int,
    pub max_mcast_qp_attach: c_int,
    pub max_total_mcast_qp_attach: c_int,
    pub max_ah: c_int,
    pub max_fmr: c_int,
    pub max_map_per_fmr: c_int,
    pub max_srq: c_int,
    pub max_srq_wr: c_int,
    pub max_srq_sge: c_int,
    pub max_pkeys: u16,
    pub local_ca_ack_delay: u8,
    pub phys_port_cnt: u8,
}

/// Attributes of a port.
#[repr(C)]
#[derive(Clone, Copy)]
#[expect(missing_docs, reason = "C's names; ibv_query_port(3) describes them")]
pub struct ibv_port_attr {
    pub state: c_uint,
    pub max_mtu: c_uint,
    pub active_mtu: c_uint,
    pub gid_tbl_len: c_int,
    pub port_cap_flags: u32,
    pub max_msg_sz: u32,
    pub bad_pkey_cntr: u32,
    pub qkey_viol_cntr: u32,
    pub pkey_tbl_len: u16,
    pub lid: u16,
    pub sm_lid: u16,
    pub lmc: u8,
    pub max_vl_num: u8,
    pub sm_sl: u8,
    pub subnet_timeout: u8,
    pub init_type_reply: u8,
    pub active_width: u8,
    pub active_speed: u8,
    pub phys_state: u8,
    pub link_layer: u8,
    pub flags: u8,
    pub port_cap_flags2: u16,
}

/// Function table of a device, which C's inline functions call.
#[repr(C)]
#[expect(missing_docs, reason = "C's names")]
pub struct ibv_context_ops {
    _before: [*const c_void; 7],
    pub alloc_mw: Option<unsafe extern "C" fn(*mut ibv_pd, c_uint) -> *mut ibv_mw>,
    pub bind_mw: Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_mw, *mut c_void) -> c_int>,
    pub dealloc_mw: Option<unsafe extern "C" fn(*mut ibv_mw) -> c_int>,
    _create_cq: *const c_void,
    pub poll_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int>,
    pub req_notify_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int>,
    _cq: [*const c_void; 3],
    _srq: [*const c_void; 4],
    pub post_srq_recv: Option<unsafe extern "C" fn(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int>,
    _qp: [*const c_void; 4],
    pub post_send: Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int>,
    pub post_recv: Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int>,
    _after: [*const c_void; 5],
}

/// An open device.
#[repr(C)]
#[expect(missing_docs, reason = "C's names")]
pub struct ibv_context {
    pub device: *mut ibv_device,
    pub ops: ibv_context_ops,
    pub cmd_fd: c_int,
    pub async_fd: c_int,
    pub num_comp_vectors: c_int,
    pub mutex: pthread_mutex_t,
    pub abi_compat: *mut c_void,
}

/// The extended structure around an open device's context; new fields are added at its front.
#[repr(C)]
#[expect(missing_docs, reason = "C's names")]
pub struct verbs_context {
    pub query_port: Option<unsafe extern "C" fn(*mut ibv_context, u8, *mut ibv_port_attr, usize) -> c_int>,
    pub advise_mr: *const c_void,
    pub alloc_null_mr: Option<unsafe extern "C" fn(*mut ibv_pd) -> *mut ibv_mr>,
    _between: [*const c_void; 36],
    pub sz: usize,
    pub context: ibv_context,
}

/// A protection domain.
#[repr(C)]
#[expect(missing_docs, reason = "C's names")]
pub struct ibv_pd {
    pub context: *mut ibv_context,
    pub handle: u32,
}

/// A memory region.
#[repr(C)]
#[expect(missing_docs, reason = "C's names")]
pub struct ibv_mr {
    pub context: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub addr: *mut c_void,
    pub length: usize,
    pub handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}

/// A memory window.
#[repr(C)]
#[expect(missing_docs, reason = "C's names")]
pub struct ibv_mw {
    pub context: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub rkey: u32,
    pub handle: u32,
    pub kind: c_uint,
}

/// A channel for completion events.
#[repr(C)]
#[expect(missing_docs, reason = "C's names")]
pub struct ibv_comp_channel {
    pub context: *mut ibv_context,
    pub fd: c_int,
    pub refcnt: c_int,
}

/// A completion queue, up to the last field that is read.
#[repr(C)]
#[expect(missing_docs, reason = "C's names")]
pub struct ibv_cq {
    pub context: *mut ibv_context,
    pub channel: *mut ibv_comp_channel,
    pub cq_context: *mut c_void,
    pub handle: u32,
    pub cqe: c_int,
}

/// A shared receive queue, up to the last field that is read.
#[repr(C)]
#[expect(missing_docs, reason = "C's names")]
pub struct ibv_srq {
    pub context: *mut ibv_context,
    pub srq_context: *mut c_void,
    pub pd: *mut ibv_pd,
    pub handle: u32,
}

/// A queue pair, up to the last field that is read.
#[repr(C)]
#[expect(missing_docs, reason = "C's names")]
pub struct ibv_qp {
    pub context: *mut ibv_context,
    pub qp_context: *mut c_void,
    pub pd: *mut ibv_pd,
    pub send_cq: *mut ibv_cq,
    pub recv_cq: *mut ibv_cq,
    pub srq: *mut ibv_srq,
    pub handle: u32,
    pub qp_num: u32,
    pub state: c_uint,
    pub qp_type: c_uint,
}

/// An address handle.
#[repr(C)]
pub struct ibv_ah {
    _opaque: [u8; 0],
}

/// Global route to a peer outside the subnet; on Ethernet, to every peer.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "C's names; ibv_create_ah(3) describes them")]
pub struct ibv_global_route {
    pub dgid: AlignedGid,
    pub flow_label: u32,
    pub sgid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
}

/// A GID with the alignment of C's union.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AlignedGid(pub RawGid);

/// Attributes of an address handle.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "C's names; ibv_create_ah(3) describes them")]
pub struct ibv_ah_attr {
    pub grh: ibv_global_route,
    pub dlid: u16,
    pub sl: u8,
    pub src_path_bits: u8,
    pub static_rate: u8,
    pub is_global: u8,
    pub port_num: u8,
}

/// Attributes of a shared receive queue.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "C's names")]
pub struct ibv_srq_attr {
    pub max_wr: u32,
    pub max_sge: u32,
    pub srq_limit: u32,
}

/// Initial attributes of a shared receive queue.
#[repr(C)]
#[expect(missing_docs, reason = "C's names")]
pub struct ibv_srq_init_attr {
    pub srq_context: *mut c_void,
    pub attr: ibv_srq_attr,
}

/// Capacities of a queue pair.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "C's names; ibv_create_qp(3) describes them")]
pub struct ibv_qp_cap {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
}

/// Initial attributes of a queue pair.
#[repr(C)]
#[expect(missing_docs, reason = "C's names")]
pub struct ibv_qp_init_attr {
    pub qp_context: *mut c_void,
    pub send_cq: *mut ibv_cq,
    pub recv_cq: *mut ibv_cq,
    pub srq: *mut ibv_srq,
    pub cap: ibv_qp_cap,
    pub qp_type: c_uint,
    pub sq_sig_all: c_int,
}

/// Attributes of a queue pair. All zeros is a valid value: a mask selects the attributes in use.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "C's names; ibv_modify_qp(3) describes them")]
pub struct ibv_qp_attr {
    pub qp_state: c_uint,
    pub cur_qp_state: c_uint,
    pub path_mtu: c_uint,
    pub path_mig_state: c_uint,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qp_num: u32,
    pub qp_access_flags: c_uint,
    pub cap: ibv_qp_cap,
    pub ah_attr: ibv_ah_attr,
    pub alt_ah_attr: ibv_ah_attr,
    pub pkey_index: u16,
    pub alt_pkey_index: u16,
    pub en_sqd_async_notify: u8,
    pub sq_draining: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub port_num: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub alt_port_num: u8,
    pub alt_timeout: u8,
    pub rate_limit: u32,
}

/// A scatter or gather element.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "C's names")]
pub struct ibv_sge {
    pub addr: u64,
    pub length: u32,
    pub lkey: u32,
}

/// A receive work request.
#[repr(C)]
#[derive(Clone, Copy)]
#[expect(missing_docs, reason = "C's names")]
pub struct ibv_recv_wr {
    pub wr_id: u64,
    pub next: *mut ibv_recv_wr,
    pub sg_list: *mut ibv_sge,
    pub num_sge: c_int,
}

impl Default for ibv_recv_wr {
    fn default() -> Self {
        Self { wr_id: 0, next: std::ptr::null_mut(), sg_list: std::ptr::null_mut(), num_sge: 0 }
    }
}

/// Remote memory of a READ or WRITE.
#[repr(C)]
#[derive(Clone, Copy)]
#[expect(missing_docs, reason = "C's names")]
pub struct RemoteMemory {
    pub remote_addr: u64,
    pub rkey: u32,
}

/// Remote memory of an atomic operation, and its operands.
#[repr(C)]
#[derive(Clone, Copy)]
#[expect(missing_docs, reason = "C's names")]
pub struct RemoteAtomic {
    pub remote_addr: u64,
    pub compare_add: u64,
    pub swap: u64,
    pub rkey: u32,
}

/// The peer of a datagram.
#[repr(C)]
#[derive(Clone, Copy)]
#[expect(missing_docs, reason = "C's names")]
pub struct RemotePair {
    pub ah: *mut ibv_ah,
    pub remote_qpn: u32,
    pub remote_qkey: u32,
}

/// Remote part of a send work request, by its opcode and the type of its queue pair.
#[repr(C)]
#[derive(Clone, Copy)]
#[expect(missing_docs, reason = "C's names")]
pub union Remote {
    pub rdma: RemoteMemory,
    pub atomic: RemoteAtomic,
    pub ud: RemotePair,
}

/// A send work request.
#[repr(C)]
#[derive(Clone, Copy)]
#[expect(missing_docs, reason = "C's names; ibv_post_send(3) describes them")]
pub struct ibv_send_wr {
    pub wr_id: u64,
    pub next: *mut ibv_send_wr,
    pub sg_list: *mut ibv_sge,
    pub num_sge: c_int,
    pub opcode: c_uint,
    pub send_flags: c_uint,
    /// Immediate data in network byte order, or the key to invalidate.
    pub imm_data: u32,
    pub wr: Remote,
    _qp_type: u32,
    _bind_mw: [u64; 6],
}

impl Default for ibv_send_wr {
    fn default() -> Self {
        Self {
            wr_id: 0,
            next: std::ptr::null_mut(),
            sg_list: std::ptr::null_mut(),
            num_sge: 0,
            opcode: 0,
            send_flags: 0,
            imm_data: 0,
            wr: Remote { atomic: RemoteAtomic { remote_addr: 0, compare_add: 0, swap: 0, rkey: 0 } },
            _qp_type: 0,
            _bind_mw: [0; 6],
        }
    }
}

/// A work completion.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "C's names; ibv_poll_cq(3) describes them")]
pub struct ibv_wc {
    pub wr_id: u64,
    pub status: c_uint,
    pub opcode: c_uint,
    pub vendor_err: u32,
    pub byte_len: u32,
    /// Immediate data in network byte order, or the key that was invalidated.
    pub imm_data: u32,
    pub qp_num: u32,
    pub src_qp: u32,
    pub wc_flags: c_uint,
    pub pkey_index: u16,
    pub slid: u16,
    pub sl: u8,
    pub dlid_path_bits: u8,
}

/// An asynchronous event of a device, a port or a queue.
#[repr(C)]
#[expect(missing_docs, reason = "C's names")]
pub struct ibv_async_event {
    /// A pointer to the queue, or the port number in its first bytes.
    pub element: *mut c_void,
    pub event_type: c_uint,
}

macro_rules! constants {
    ($($(#[$doc:meta])* $name:ident = $value:expr;)*) => {
        $(#[doc = concat!("C's `", stringify!($name), "`.")] pub const $name: c_uint = $value;)*
        /// All constants by name, for the test that compares them with the header.
        #[cfg(test)]
        pub(super) const CONSTANTS: &[(&str, c_uint)] = &[$((stringify!($name), $name)),*];
    };
}

constants! {
    IBV_PORT_ACTIVE = 4;
    IBV_LINK_LAYER_UNSPECIFIED = 0;
    IBV_LINK_LAYER_INFINIBAND = 1;
    IBV_LINK_LAYER_ETHERNET = 2;
    IBV_MTU_256 = 1;
    IBV_MTU_4096 = 5;
    IBV_DEVICE_MEM_WINDOW_TYPE_2A = 1 << 23;
    IBV_DEVICE_MEM_WINDOW_TYPE_2B = 1 << 24;
    IBV_ATOMIC_NONE = 0;
    IBV_ACCESS_LOCAL_WRITE = 1;
    IBV_ACCESS_REMOTE_WRITE = 2;
    IBV_ACCESS_REMOTE_READ = 4;
    IBV_ACCESS_REMOTE_ATOMIC = 8;
    IBV_ACCESS_MW_BIND = 16;
    IBV_ACCESS_ZERO_BASED = 32;
    IBV_QPT_RC = 2;
    IBV_QPT_UC = 3;
    IBV_QPT_UD = 4;
    IBV_QPS_RESET = 0;
    IBV_QPS_INIT = 1;
    IBV_QPS_RTR = 2;
    IBV_QPS_RTS = 3;
    IBV_QPS_SQD = 4;
    IBV_QPS_SQE = 5;
    IBV_QPS_ERR = 6;
    IBV_QP_STATE = 1;
    IBV_QP_ACCESS_FLAGS = 1 << 3;
    IBV_QP_PKEY_INDEX = 1 << 4;
    IBV_QP_PORT = 1 << 5;
    IBV_QP_QKEY = 1 << 6;
    IBV_QP_AV = 1 << 7;
    IBV_QP_PATH_MTU = 1 << 8;
    IBV_QP_TIMEOUT = 1 << 9;
    IBV_QP_RETRY_CNT = 1 << 10;
    IBV_QP_RNR_RETRY = 1 << 11;
    IBV_QP_RQ_PSN = 1 << 12;
    IBV_QP_MAX_QP_RD_ATOMIC = 1 << 13;
    IBV_QP_MIN_RNR_TIMER = 1 << 15;
    IBV_QP_SQ_PSN = 1 << 16;
    IBV_QP_MAX_DEST_RD_ATOMIC = 1 << 17;
    IBV_QP_CAP = 1 << 19;
    IBV_QP_DEST_QPN = 1 << 20;
    IBV_SRQ_MAX_WR = 1;
    IBV_SRQ_LIMIT = 2;
    IBV_WR_RDMA_WRITE = 0;
    IBV_WR_RDMA_WRITE_WITH_IMM = 1;
    IBV_WR_SEND = 2;
    IBV_WR_SEND_WITH_IMM = 3;
    IBV_WR_RDMA_READ = 4;
    IBV_WR_ATOMIC_CMP_AND_SWP = 5;
    IBV_WR_ATOMIC_FETCH_AND_ADD = 6;
    IBV_WR_LOCAL_INV = 7;
    IBV_WR_BIND_MW = 8;
    IBV_WR_SEND_WITH_INV = 9;
    IBV_SEND_FENCE = 1;
    IBV_SEND_SIGNALED = 2;
    IBV_SEND_SOLICITED = 4;
    IBV_SEND_INLINE = 8;
    IBV_WC_SUCCESS = 0;
    IBV_WC_LOC_LEN_ERR = 1;
    IBV_WC_LOC_QP_OP_ERR = 2;
    IBV_WC_LOC_PROT_ERR = 4;
    IBV_WC_WR_FLUSH_ERR = 5;
    IBV_WC_MW_BIND_ERR = 6;
    IBV_WC_BAD_RESP_ERR = 7;
    IBV_WC_LOC_ACCESS_ERR = 8;
    IBV_WC_REM_INV_REQ_ERR = 9;
    IBV_WC_REM_ACCESS_ERR = 10;
    IBV_WC_REM_OP_ERR = 11;
    IBV_WC_RETRY_EXC_ERR = 12;
    IBV_WC_RNR_RETRY_EXC_ERR = 13;
    IBV_WC_REM_ABORT_ERR = 16;
    IBV_WC_FATAL_ERR = 19;
    IBV_WC_RESP_TIMEOUT_ERR = 20;
    IBV_WC_GENERAL_ERR = 21;
    IBV_WC_SEND = 0;
    IBV_WC_RDMA_WRITE = 1;
    IBV_WC_RDMA_READ = 2;
    IBV_WC_COMP_SWAP = 3;
    IBV_WC_FETCH_ADD = 4;
    IBV_WC_BIND_MW = 5;
    IBV_WC_LOCAL_INV = 6;
    IBV_WC_RECV = 128;
    IBV_WC_RECV_RDMA_WITH_IMM = 129;
    IBV_WC_GRH = 1;
    IBV_WC_WITH_IMM = 2;
    IBV_WC_WITH_INV = 8;
    IBV_EVENT_CQ_ERR = 0;
    IBV_EVENT_QP_FATAL = 1;
    IBV_EVENT_QP_REQ_ERR = 2;
    IBV_EVENT_QP_ACCESS_ERR = 3;
    IBV_EVENT_COMM_EST = 4;
    IBV_EVENT_SQ_DRAINED = 5;
    IBV_EVENT_DEVICE_FATAL = 8;
    IBV_EVENT_PORT_ACTIVE = 9;
    IBV_EVENT_PORT_ERR = 10;
    IBV_EVENT_SRQ_ERR = 14;
    IBV_EVENT_SRQ_LIMIT_REACHED = 15;
    IBV_EVENT_QP_LAST_WQE_REACHED = 16;
    IBV_EVENT_GID_CHANGE = 18;
}
