//! libhdf5 calls that its bindings do not offer.

use hdf5::plist::DatasetCreate;
use hdf5::{Dataset, Dataspace, Datatype, File, Group, SimpleExtents, sync::sync};
use hdf5_sys::h5d::H5Dcreate2;
use hdf5_sys::h5f::H5Fget_file_image;
use hdf5_sys::h5o::H5O_info1_t;
use hdf5_sys::h5p::{H5P_DEFAULT, H5Pset_virtual};
use hdf5_sys::h5s::{H5S_SELECT_SET, H5S_UNLIMITED, H5Sselect_hyperslab};
use shotline_wire::shot::Packing;
use std::ffi::CStr;

/// The integers of a sample: unsigned bytes, or 16-bit little-endian ones of which the lowest bits count.
pub fn sample_type(packing: Packing) -> hdf5::Result<Datatype> {
    if packing == Packing::Uint8 {
        return Datatype::from_type::<u8>();
    }
    let (datatype, precision) = (Datatype::from_type::<i16>()?, packing.bits_per_sample() as usize);
    // SAFETY: the id is that of a live datatype which is ours alone (`from_type` copies), and the library's
    // lock is held for the call.
    let status = sync(|| unsafe { hdf5_sys::h5t::H5Tset_precision(datatype.id(), precision) });
    if status < 0 { Err(hdf5::Error::query()?) } else { Ok(datatype) }
}

/// The file address of a dataset's object header.
pub fn header_address(dataset: &Dataset) -> hdf5::Result<u64> {
    let mut info = H5O_info1_t::default();
    // SAFETY: the id is that of a live dataset, `info` is a live exclusive struct of the type that this
    // version of the call fills, and the library's lock is held.
    #[allow(deprecated)]
    let status = sync(|| unsafe { hdf5_sys::h5o::H5Oget_info1(dataset.id(), &raw mut info) });
    if status < 0 { Err(hdf5::Error::query()?) } else { Ok(info.addr) }
}

/// The bytes of an open file, as they would stand on a disk.
pub fn image(file: &File) -> hdf5::Result<Vec<u8>> {
    file.flush()?;
    sync(|| {
        // SAFETY: the id is that of a live file, and without a buffer the call only tells the size.
        let len = unsafe { H5Fget_file_image(file.id(), std::ptr::null_mut(), 0) };
        let mut bytes = vec![0_u8; usize::try_from(len).or_else(|_| Err(hdf5::Error::query()?))?];
        // SAFETY: as above, with a buffer of the length that is told.
        let len = unsafe { H5Fget_file_image(file.id(), bytes.as_mut_ptr().cast(), bytes.len()) };
        if len == bytes.len() as isize { Ok(bytes) } else { Err(hdf5::Error::query()?) }
    })
}

/// Makes a virtual dataset that shows a part of `source`: the same rows, however many there come to be, and
/// of each row the samples from `start` on, as many as the view has. (The bindings' own selections stop at
/// the rows that there are.)
pub fn create_view(
    at: &Group,
    name: &CStr,
    datatype: &Datatype,
    view: &SimpleExtents,
    (source, source_extents): (&CStr, &SimpleExtents),
    start: &[u64],
) -> hdf5::Result<Dataset> {
    let (space, source_space) = (Dataspace::try_new(view.clone())?, Dataspace::try_new(source_extents.clone())?);
    let plist = DatasetCreate::try_new()?;
    // One block of a row's samples, repeated along the first dimension without end.
    let block: Vec<u64> =
        view.iter().enumerate().map(|(d, extent)| if d == 0 { 1 } else { extent.dim as u64 }).collect();
    let mut count = vec![1; block.len()];
    count[0] = H5S_UNLIMITED;
    let (origin, stride) = (vec![0; block.len()], vec![1; block.len()]);
    assert!(start.len() == block.len() && source_extents.ndim() == block.len(), "a view has the rank of its source");
    sync(|| {
        for (space, start) in [(&space, origin.as_slice()), (&source_space, start)] {
            // SAFETY: the id is that of a live dataspace of as many dimensions as each of the four arrays has
            // elements (asserted above), and the library's lock is held.
            let status = unsafe {
                let (start, stride) = (start.as_ptr(), stride.as_ptr());
                H5Sselect_hyperslab(space.id(), H5S_SELECT_SET, start, stride, count.as_ptr(), block.as_ptr())
            };
            if status < 0 {
                return Err(hdf5::Error::query()?);
            }
        }
        // SAFETY: ids of live objects, strings that end in zero, the library's lock held.
        let status =
            unsafe { H5Pset_virtual(plist.id(), space.id(), c".".as_ptr(), source.as_ptr(), source_space.id()) };
        if status < 0 {
            return Err(hdf5::Error::query()?);
        }
        // SAFETY: as above; the new id goes to an owner at once, and only if it is one.
        unsafe {
            let id =
                H5Dcreate2(at.id(), name.as_ptr(), datatype.id(), space.id(), H5P_DEFAULT, plist.id(), H5P_DEFAULT);
            if id < 0 { Err(hdf5::Error::query()?) } else { hdf5::from_id(id) }
        }
    })
}
