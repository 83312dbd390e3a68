//! Frame buffers as dma-bufs (linux-dmabuf), so that a compositor with a GPU composes with them without a copy.
//!
//! The kernel makes dma-bufs of the memory of the frame buffers if it has `/dev/udmabuf` and this user may open it. Whatever
//! fails, `wl_shm` is used. UNTESTED: the machines of the tests have no such device.

use super::state::State;
use crate::{FrameBuffer, Mode};
use rustix::fd::{AsFd as _, OwnedFd};
use std::sync::OnceLock;
use wayland_client::protocol::wl_buffer::WlBuffer;
use wayland_client::{Connection, Dispatch, Proxy as _, QueueHandle, event_created_child};
use wayland_protocols::wp::linux_dmabuf::zv1::client::zwp_linux_buffer_params_v1::{self, ZwpLinuxBufferParamsV1};
use wayland_protocols::wp::linux_dmabuf::zv1::client::zwp_linux_dmabuf_v1::{self, ZwpLinuxDmabufV1};

/// `DRM_FORMAT_XRGB8888` of `include/uapi/drm/drm_fourcc.h`.
const XRGB8888: u32 = u32::from_le_bytes(*b"XR24");
/// `DRM_FORMAT_MOD_LINEAR`, in two parts.
const LINEAR: (u32, u32) = (0, 0);

/// Requests a `wl_buffer` for the memory of each frame buffer. Returns whether answers will follow.
pub(super) fn request(state: &State, queue: &QueueHandle<State>) -> bool {
    let Some(interface) = state.dmabufs.interface.as_ref().filter(|_| state.dmabufs.is_linear) else { return false };
    let (mode, buffers) = (state.mode, state.buffers.all());
    let Some(dmabufs) = dmabufs(mode, buffers) else { return false };
    for (index, (dmabuf, buffer)) in dmabufs.iter().zip(buffers).enumerate() {
        let params = interface.create_params(queue, index);
        // One plane from its begin.
        params.add(dmabuf.as_fd(), 0, 0, buffer.stride as u32, LINEAR.0, LINEAR.1);
        let flags = zwp_linux_buffer_params_v1::Flags::empty();
        params.create(mode.width as i32, mode.height as i32, XRGB8888, flags);
    }
    true
}

/// Returns whether the compositor has answered the requests.
pub(super) fn has_answered(state: &State) -> bool {
    state.dmabufs.has_failed || state.dmabufs.created.len() == state.buffers.all().len()
}

/// Returns the buffers that the compositor has made, in their order. `None` if it refused one.
pub(super) fn take(state: &mut State) -> Option<Vec<WlBuffer>> {
    let mut created = std::mem::take(&mut state.dmabufs.created);
    if state.dmabufs.has_failed {
        created.iter().for_each(WlBuffer::destroy);
        return None;
    }
    created.sort_by_key(|buffer| buffer.data::<OnceLock<usize>>().and_then(OnceLock::get).copied());
    Some(created)
}

/// Returns dma-bufs of the frame buffers, or `None` if one cannot be created.
fn dmabufs(mode: Mode, buffers: &[FrameBuffer]) -> Option<Vec<OwnedFd>> {
    let dmabuf = |buffer: &FrameBuffer| {
        let bytes = buffer.stride * mode.height as usize;
        buffer.region.to_dmabuf(buffer.offset, bytes).ok()
    };
    buffers.iter().map(dmabuf).collect()
}

impl Dispatch<ZwpLinuxDmabufV1, ()> for State {
    fn event(
        state: &mut Self,
        _: &ZwpLinuxDmabufV1,
        event: zwp_linux_dmabuf_v1::Event,
        (): &(),
        _: &Connection,
        _: &QueueHandle<Self>,
    ) {
        if let zwp_linux_dmabuf_v1::Event::Modifier { format: XRGB8888, modifier_hi, modifier_lo } = event {
            state.dmabufs.is_linear |= (modifier_hi, modifier_lo) == LINEAR;
        }
    }
}

/// The number of a frame buffer.
impl Dispatch<ZwpLinuxBufferParamsV1, usize> for State {
    fn event(
        state: &mut Self,
        params: &ZwpLinuxBufferParamsV1,
        event: zwp_linux_buffer_params_v1::Event,
        index: &usize,
        _: &Connection,
        _: &QueueHandle<Self>,
    ) {
        match event {
            zwp_linux_buffer_params_v1::Event::Created { buffer } => {
                if let Some(data) = buffer.data::<OnceLock<usize>>() {
                    let _ = data.set(*index);
                }
                state.dmabufs.created.push(buffer);
            }
            zwp_linux_buffer_params_v1::Event::Failed => state.dmabufs.has_failed = true,
            _ => return,
        }
        params.destroy();
    }
    event_created_child!(State, ZwpLinuxBufferParamsV1, [
        zwp_linux_buffer_params_v1::EVT_CREATED_OPCODE => (WlBuffer, OnceLock::new())
    ]);
}
