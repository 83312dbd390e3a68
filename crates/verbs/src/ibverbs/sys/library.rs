//! The shared library, loaded once.

use super::abi::*;
use libc::{c_char, c_int, c_uint, c_void};
use shotline_transport::IoError;
use std::ffi::CStr;
use std::sync::OnceLock;

const MISSING: &str = "libibverbs.so.1, rdma-core's library, cannot be loaded";
const INSTALL: &str = "install it: apt install libibverbs1 ibverbs-providers";

macro_rules! functions {
    (
        newer { $($newer:ident: $newer_name:ident($($newer_argument:ty),*) -> $newer_result:ty;)* }
        $($field:ident: $name:ident($($argument:ty),*) $(-> $result:ty)?;)*
    ) => {
        /// The functions of the loaded library.
        pub(super) struct Library {
            $(pub(super) $field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            $(pub(super) $newer: Option<unsafe extern "C" fn($($newer_argument),*) -> $newer_result>,)*
        }

        impl Library {
            fn find(handle: *mut c_void) -> Result<Self, String> {
                Ok(Self {
                    $($field: {
                        let name = concat!(stringify!($name), "\0");
                        let found = symbol(handle, name)?;
                        // SAFETY: the default version of this symbol in libibverbs.so.1 has had this signature since
                        // `IBVERBS_1.1`, which is why the library's name still ends in 1.
                        unsafe {
                            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>(found)
                        }
                    },)*
                    $($newer: {
                        let found = symbol(handle, concat!(stringify!($newer_name), "\0")).ok();
                        // SAFETY: as above, since the version that introduced the symbol.
                        found.map(|found| unsafe {
                            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($newer_argument),*) -> $newer_result>(
                                found,
                            )
                        })
                    },)*
                })
            }

            /// Returns a library for tests: functions that end the process, and none of the newer ones.
            #[cfg(test)]
            pub(super) fn unusable() -> Self {
                Self {
                    $($field: {
                        unsafe extern "C" fn $name($(_: $argument),*) $(-> $result)? {
                            std::process::abort()
                        }
                        $name
                    },)*
                    $($newer: None,)*
                }
            }
        }
    };
}

functions! {
    newer {
        // rdma-core 34.
        reg_dmabuf_mr: ibv_reg_dmabuf_mr(*mut ibv_pd, u64, usize, u64, c_int, c_int) -> *mut ibv_mr;
    }
    get_device_list: ibv_get_device_list(*mut c_int) -> *mut *mut ibv_device;
    free_device_list: ibv_free_device_list(*mut *mut ibv_device);
    get_device_name: ibv_get_device_name(*mut ibv_device) -> *const c_char;
    open_device: ibv_open_device(*mut ibv_device) -> *mut ibv_context;
    close_device: ibv_close_device(*mut ibv_context) -> c_int;
    query_device: ibv_query_device(*mut ibv_context, *mut ibv_device_attr) -> c_int;
    query_port: ibv_query_port(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int;
    query_gid: ibv_query_gid(*mut ibv_context, u8, c_int, *mut AlignedGid) -> c_int;
    get_async_event: ibv_get_async_event(*mut ibv_context, *mut ibv_async_event) -> c_int;
    ack_async_event: ibv_ack_async_event(*mut ibv_async_event);
    alloc_pd: ibv_alloc_pd(*mut ibv_context) -> *mut ibv_pd;
    dealloc_pd: ibv_dealloc_pd(*mut ibv_pd) -> c_int;
    reg_mr: ibv_reg_mr(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr;
    reg_mr_iova: ibv_reg_mr_iova2(*mut ibv_pd, *mut c_void, usize, u64, c_uint) -> *mut ibv_mr;
    dereg_mr: ibv_dereg_mr(*mut ibv_mr) -> c_int;
    create_comp_channel: ibv_create_comp_channel(*mut ibv_context) -> *mut ibv_comp_channel;
    destroy_comp_channel: ibv_destroy_comp_channel(*mut ibv_comp_channel) -> c_int;
    create_cq: ibv_create_cq(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq;
    destroy_cq: ibv_destroy_cq(*mut ibv_cq) -> c_int;
    get_cq_event: ibv_get_cq_event(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int;
    ack_cq_events: ibv_ack_cq_events(*mut ibv_cq, u32);
    create_srq: ibv_create_srq(*mut ibv_pd, *mut ibv_srq_init_attr) -> *mut ibv_srq;
    modify_srq: ibv_modify_srq(*mut ibv_srq, *mut ibv_srq_attr, c_int) -> c_int;
    destroy_srq: ibv_destroy_srq(*mut ibv_srq) -> c_int;
    create_qp: ibv_create_qp(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp;
    modify_qp: ibv_modify_qp(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int;
    query_qp: ibv_query_qp(*mut ibv_qp, *mut ibv_qp_attr, c_int, *mut ibv_qp_init_attr) -> c_int;
    destroy_qp: ibv_destroy_qp(*mut ibv_qp) -> c_int;
    create_ah: ibv_create_ah(*mut ibv_pd, *mut ibv_ah_attr) -> *mut ibv_ah;
    destroy_ah: ibv_destroy_ah(*mut ibv_ah) -> c_int;
}

/// Returns the library, loading it on the first call. It stays loaded, because its device drivers are separate
/// libraries that do not all unload cleanly.
pub(super) fn library() -> Result<&'static Library, IoError> {
    static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
    LIBRARY.get_or_init(load).as_ref().map_err(|reason| IoError::Config(reason.clone()))
}

fn load() -> Result<Library, String> {
    // SAFETY: the name ends in 0. Loading runs the library's constructors, which do not depend on this process.
    let handle = unsafe { libc::dlopen(c"libibverbs.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        return Err(format!("{MISSING} ({}): {INSTALL}", last_error()));
    }
    Library::find(handle)
}

fn symbol(handle: *mut c_void, name: &str) -> Result<*mut c_void, String> {
    // SAFETY: the handle is that of a loaded library, and the name ends in 0.
    let found = unsafe { libc::dlsym(handle, name.as_ptr().cast()) };
    if found.is_null() { Err(format!("{MISSING} ({}): {INSTALL}", last_error())) } else { Ok(found) }
}

fn last_error() -> String {
    // SAFETY: it returns null or a string that is valid until this thread's next call of dlopen or dlsym.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "no reason given".into();
    }
    // SAFETY: as above; it is copied here.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
