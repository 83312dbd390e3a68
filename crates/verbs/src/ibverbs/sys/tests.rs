//! Comparison of our declarations with C's.

use super::abi::*;
use std::fmt::Write as _;
use std::mem::{offset_of, size_of};
use std::path::Path;
use std::process::Command;

/// Offsets of the fields and sizes of C's structures: (C's expression, our value).
macro_rules! layout {
    ($($type:ident { $($field:tt $(as $c:literal)?),* $(,)? } $($whole:ident)?;)*) => {
        vec![$(
            $((format!("offsetof(struct {}, {})", stringify!($type), layout!(@name $field $($c)?)), offset_of!($type, $field)),)*
            $((format!("sizeof(struct {})", stringify!($type)), { let _ = stringify!($whole); size_of::<$type>() }),)?
        )*]
    };
    (@name $field:tt $c:literal) => { $c };
    (@name $field:tt) => { stringify!($field) };
}

#[rustfmt::skip]
fn layouts() -> Vec<(String, usize)> {
    let mut all = layout! {
        ibv_device_attr { fw_ver, node_guid, max_mr_size, max_qp, max_qp_wr, device_cap_flags, max_sge, max_cq, max_cqe,
            max_mr, max_pd, max_qp_rd_atom, max_qp_init_rd_atom, atomic_cap, max_mw, max_ah, max_srq, max_srq_wr, max_srq_sge,
            max_pkeys, local_ca_ack_delay, phys_port_cnt } whole;
        ibv_port_attr { state, max_mtu, active_mtu, gid_tbl_len, port_cap_flags, max_msg_sz, pkey_tbl_len, lid, sm_lid, lmc,
            active_width, active_speed, phys_state, link_layer, flags, port_cap_flags2 } whole;
        ibv_context_ops { alloc_mw, bind_mw, dealloc_mw, poll_cq, req_notify_cq, post_srq_recv, post_send, post_recv } whole;
        ibv_context { device, ops, cmd_fd, async_fd, num_comp_vectors, mutex, abi_compat } whole;
        verbs_context { query_port, advise_mr, alloc_null_mr, sz, context } whole;
        ibv_pd { context, handle };
        ibv_mr { context, pd, addr, length, handle, lkey, rkey } whole;
        ibv_mw { context, pd, rkey, handle, kind as "type" } whole;
        ibv_comp_channel { context, fd, refcnt } whole;
        ibv_cq { context, channel, cq_context, handle, cqe };
        ibv_srq { context, srq_context, pd, handle };
        ibv_qp { context, qp_context, pd, send_cq, recv_cq, srq, handle, qp_num, state, qp_type };
        ibv_global_route { dgid, flow_label, sgid_index, hop_limit, traffic_class } whole;
        ibv_ah_attr { grh, dlid, sl, src_path_bits, static_rate, is_global, port_num } whole;
        ibv_srq_attr { max_wr, max_sge, srq_limit } whole;
        ibv_srq_init_attr { srq_context, attr } whole;
        ibv_qp_cap { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data } whole;
        ibv_qp_init_attr { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all } whole;
        ibv_qp_attr { qp_state, cur_qp_state, path_mtu, path_mig_state, qkey, rq_psn, sq_psn, dest_qp_num, qp_access_flags,
            cap, ah_attr, alt_ah_attr, pkey_index, alt_pkey_index, en_sqd_async_notify, sq_draining, max_rd_atomic,
            max_dest_rd_atomic, min_rnr_timer, port_num, timeout, retry_cnt, rnr_retry, alt_port_num, alt_timeout,
            rate_limit } whole;
        ibv_sge { addr, length, lkey } whole;
        ibv_recv_wr { wr_id, next, sg_list, num_sge } whole;
        ibv_send_wr { wr_id, next, sg_list, num_sge, opcode, send_flags, imm_data, wr } whole;
        ibv_wc { wr_id, status, opcode, vendor_err, byte_len, imm_data, qp_num, src_qp, wc_flags, pkey_index, slid, sl,
            dlid_path_bits } whole;
        ibv_async_event { element, event_type } whole;
    };
    let wr = offset_of!(ibv_send_wr, wr);
    for (c, ours) in [
        ("wr.rdma.remote_addr", wr + offset_of!(RemoteMemory, remote_addr)),
        ("wr.rdma.rkey", wr + offset_of!(RemoteMemory, rkey)),
        ("wr.atomic.compare_add", wr + offset_of!(RemoteAtomic, compare_add)),
        ("wr.atomic.swap", wr + offset_of!(RemoteAtomic, swap)),
        ("wr.atomic.rkey", wr + offset_of!(RemoteAtomic, rkey)),
        ("wr.ud.ah", wr + offset_of!(RemotePair, ah)),
        ("wr.ud.remote_qpn", wr + offset_of!(RemotePair, remote_qpn)),
        ("wr.ud.remote_qkey", wr + offset_of!(RemotePair, remote_qkey)),
    ] {
        all.push((format!("offsetof(struct ibv_send_wr, {c})"), ours));
    }
    all
}

#[test]
fn layouts_and_constants_match_the_c_header() {
    if !Path::new("/usr/include/infiniband/verbs.h").exists() {
        shotline_testing::skip!("no infiniband/verbs.h here (apt install libibverbs-dev)");
    }
    let mut expected = layouts();
    expected.extend(CONSTANTS.iter().map(|(name, value)| ((*name).to_owned(), *value as usize)));
    let mut source =
        String::from("#include <infiniband/verbs.h>\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {\n");
    for (c, _) in &expected {
        writeln!(source, "    printf(\"%zu\\n\", (size_t)({c}));").unwrap();
    }
    source.push_str("    return 0;\n}\n");
    let folder = tempfile::tempdir().unwrap();
    let (c, program) = (folder.path().join("layout.c"), folder.path().join("layout"));
    std::fs::write(&c, source).unwrap();
    let compiled = Command::new("cc").args([&c, Path::new("-o"), &program]).output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let printed = String::from_utf8(Command::new(&program).output().unwrap().stdout).unwrap();
    let theirs: Vec<usize> = printed.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(theirs.len(), expected.len());
    for ((c, ours), theirs) in expected.iter().zip(theirs) {
        assert_eq!(*ours, theirs, "{c}");
    }
}

#[test]
fn missing_device_error_says_what_to_do() {
    let Err(error) = super::Device::named("no-such-device") else { panic!("it was found") };
    let text = error.to_string();
    assert!(text.contains("apt install") || text.contains("rdma link add"), "{text}");
}
