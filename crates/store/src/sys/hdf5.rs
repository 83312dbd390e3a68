//! libhdf5 calls that its bindings do not offer.

use hdf5::plist::{DatasetCreate, FileAccess};
use hdf5::types::TypeDescriptor;
use hdf5::{Dataset, Dataspace, Datatype, File, Group, Location, SimpleExtents, sync::sync};
use hdf5_sys::h5d::{H5Dcreate2, H5Dread, H5Dwrite};
use hdf5_sys::h5f::{H5F_ACC_RDONLY, H5Fget_file_image, H5Fopen};
use hdf5_sys::h5o::{H5O_INFO_BASIC, H5O_info1_t, H5Oget_info2};
use hdf5_sys::h5p::{H5P_DEFAULT, H5Pset_chunk, H5Pset_file_image, H5Pset_filter, H5Pset_virtual};
use hdf5_sys::h5s::{H5S_ALL, H5S_SELECT_SET, H5S_UNLIMITED, H5Sselect_hyperslab};
use hdf5_sys::h5t::{H5T_order_t::H5T_ORDER_BE, H5Tset_order, H5Tset_precision};
use hdf5_sys::h5z::{H5Z_FILTER_NBIT, H5Z_FLAG_OPTIONAL, H5Z_filter_t, H5Zfilter_avail};
use shotline_wire::shot::Packing;
use std::ffi::CStr;
use std::os::fd::AsRawFd;

/// Returns the integer type of a sample: unsigned bytes, or 16-bit integers in the byte order of the packing, with the
/// precision of the sample.
pub fn sample_type(packing: Packing) -> hdf5::Result<Datatype> {
    if packing == Packing::Uint8 {
        return Datatype::from_type::<u8>();
    }
    let (datatype, precision) = (Datatype::from_type::<i16>()?, packing.bits_per_sample() as usize);
    // SAFETY: the id is that of a live datatype with no other owner (`from_type` copies), and the library's lock is
    // held for the call.
    let mut status = sync(|| unsafe { H5Tset_precision(datatype.id(), precision) });
    if packing == Packing::Int16Be {
        // SAFETY: as above.
        status |= sync(|| unsafe { H5Tset_order(datatype.id(), H5T_ORDER_BE) });
    }
    if status < 0 { Err(hdf5::Error::query()?) } else { Ok(datatype) }
}

/// Returns the file address of an object's header. Only the basic fields are requested: for the size of the metadata
/// the library would read every node of the chunk index.
pub fn header_address(object: &Location) -> hdf5::Result<u64> {
    let mut info = H5O_info1_t::default();
    // SAFETY: the id is that of a live object, `info` is a live exclusive struct of the type that this
    // version of the call fills, and the library's lock is held.
    #[allow(deprecated)]
    let status = sync(|| unsafe { H5Oget_info2(object.id(), &raw mut info, H5O_INFO_BASIC) });
    if status < 0 { Err(hdf5::Error::query()?) } else { Ok(info.addr) }
}

/// Returns the image of an open file, with its contents as on disk.
pub fn image(file: &File) -> hdf5::Result<Vec<u8>> {
    file.flush()?;
    sync(|| {
        // SAFETY: the id is that of a live file, and without a buffer the call only returns the size.
        let len = unsafe { H5Fget_file_image(file.id(), std::ptr::null_mut(), 0) };
        let mut bytes = vec![0_u8; usize::try_from(len).or_else(|_| Err(hdf5::Error::query()?))?];
        // SAFETY: as above, with a buffer of the returned length.
        let len = unsafe { H5Fget_file_image(file.id(), bytes.as_mut_ptr().cast(), bytes.len()) };
        if len == bytes.len() as isize { Ok(bytes) } else { Err(hdf5::Error::query()?) }
    })
}

/// Opens a file for reading by its descriptor, because its name may belong to another file by now.
pub fn open_same(file: &std::fs::File) -> hdf5::Result<File> {
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Like [`open_same`], without HDF5's lock, which would conflict with the one that the caller holds.
pub fn open_locked(file: &std::fs::File) -> hdf5::Result<File> {
    let mut options = File::with_options();
    options.with_fapl(|plist| plist.file_locking(false)).open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Opens a file image in memory for reading.
pub fn open_image(bytes: &[u8]) -> hdf5::Result<File> {
    let plist = FileAccess::build().core_options(1 << 20, false).finish()?;
    // The name must be unique, because the library treats in-memory files of the same name as one.
    let name = std::ffi::CString::new(format!("recording-{}", uuid::Uuid::new_v4())).unwrap_or_default();
    sync(|| {
        // SAFETY: the id is that of a live property list; the library copies the bytes, and does not write to them.
        let status = unsafe { H5Pset_file_image(plist.id(), bytes.as_ptr().cast_mut().cast(), bytes.len()) };
        if status < 0 {
            return Err(hdf5::Error::query()?);
        }
        // SAFETY: the string ends in zero, the id is that of a live property list, and the library's lock is held. The
        // new id is checked, then owned by the returned value. No file is opened, because the list has an image.
        unsafe {
            let id = H5Fopen(name.as_ptr(), H5F_ACC_RDONLY, plist.id());
            if id < 0 { Err(hdf5::Error::query()?) } else { hdf5::from_id(id) }
        }
    })
}

/// Creates a chunked dataset with a registered filter, then n-bit. The filter need not be installed (the bindings'
/// builder requires that): it is named and never applied. `parameters` are those in the file. An installed filter sets
/// the first three of them itself when HDF5 calls it, so they are then not passed.
pub fn create_filtered(
    at: &Group,
    name: &CStr,
    datatype: &Datatype,
    extents: &SimpleExtents,
    chunk: [usize; 3],
    (filter, parameters): &(H5Z_filter_t, Vec<u32>),
) -> hdf5::Result<Dataset> {
    let (space, plist) = (Dataspace::try_new(extents.clone())?, DatasetCreate::try_new()?);
    let chunk = chunk.map(|extent| extent as u64);
    sync(|| {
        // SAFETY: a query; the library's lock is held, here and below.
        let passed = if unsafe { H5Zfilter_avail(*filter) } > 0 { &parameters[3..] } else { &parameters[..] };
        // SAFETY: the id is that of a live property list, and the length of each array is passed with it.
        let status = unsafe {
            [
                H5Pset_chunk(plist.id(), chunk.len() as _, chunk.as_ptr()),
                H5Pset_filter(plist.id(), *filter, H5Z_FLAG_OPTIONAL, passed.len(), passed.as_ptr()),
                H5Pset_filter(plist.id(), H5Z_FILTER_NBIT, H5Z_FLAG_OPTIONAL, 0, std::ptr::null()),
            ]
        };
        if status.into_iter().any(|status| status < 0) {
            return Err(hdf5::Error::query()?);
        }
        create(at, name, datatype, &space, &plist)
    })
}

/// Calls `H5Dcreate2`. The caller must hold the library's lock.
fn create(
    at: &Group,
    name: &CStr,
    datatype: &Datatype,
    space: &Dataspace,
    plist: &DatasetCreate,
) -> hdf5::Result<Dataset> {
    // SAFETY: the ids are those of live objects, the string ends in zero, and the caller holds the library's lock. The
    // new id is checked, then owned by the returned value.
    unsafe {
        let id = H5Dcreate2(at.id(), name.as_ptr(), datatype.id(), space.id(), H5P_DEFAULT, plist.id(), H5P_DEFAULT);
        if id < 0 { Err(hdf5::Error::query()?) } else { hdf5::from_id(id) }
    }
}

/// Mapping of rows of a source dataset to rows of a virtual one.
#[derive(Clone, Debug)]
pub struct Mapping<'a> {
    /// File of the source: `.` is the file of the virtual dataset itself.
    pub file: &'a CStr,
    /// Path of the source dataset.
    pub dataset: &'a CStr,
    /// Extents of the source.
    pub extents: &'a SimpleExtents,
    /// First mapped element of the source, in each dimension.
    pub source_start: &'a [u64],
    /// Row of the virtual dataset to which it is mapped.
    pub row: u64,
    /// Stride in rows of the virtual dataset per row of the source.
    pub stride: u64,
    /// Number of mapped rows; `None`: unlimited, including rows added later.
    pub rows: Option<u64>,
}

/// Creates a virtual dataset of rows of others. Each row is mapped as far as it fits the extents of the virtual
/// dataset. (The selections of the bindings cannot be unlimited.)
pub fn create_virtual(
    at: &Group,
    name: &CStr,
    datatype: &Datatype,
    extents: &SimpleExtents,
    mappings: &[Mapping<'_>],
) -> hdf5::Result<Dataset> {
    let plist = DatasetCreate::try_new()?;
    let space = Dataspace::try_new(extents.clone())?;
    let mut block: Vec<u64> = extents.iter().map(|extent| extent.dim as u64).collect();
    block[0] = 1;
    for mapping in mappings {
        let source_space = Dataspace::try_new(mapping.extents.clone())?;
        let mut start = vec![0; block.len()];
        start[0] = mapping.row;
        let mut stride = vec![1; block.len()];
        select(&source_space, mapping.source_start, &stride, mapping.rows, &block)?;
        stride[0] = mapping.stride;
        select(&space, &start, &stride, mapping.rows, &block)?;
        sync(|| {
            let (file, dataset) = (mapping.file.as_ptr(), mapping.dataset.as_ptr());
            // SAFETY: the ids are those of live objects, the strings end in zero, and the library's lock is held.
            let status = unsafe { H5Pset_virtual(plist.id(), space.id(), file, dataset, source_space.id()) };
            if status < 0 { Err(hdf5::Error::query()?) } else { Ok(()) }
        })?;
    }
    let space = Dataspace::try_new(extents.clone())?;
    sync(|| create(at, name, datatype, &space, &plist))
}

/// Selects one block in each of `rows` rows; `None`: in unlimited rows.
fn select(space: &Dataspace, start: &[u64], stride: &[u64], rows: Option<u64>, block: &[u64]) -> hdf5::Result<()> {
    let rank = space.ndim();
    let mut count = vec![1; rank];
    count[0] = rows.unwrap_or(H5S_UNLIMITED);
    assert!([start.len(), stride.len(), block.len()] == [rank; 3], "a view has the rank of its source");
    // SAFETY: the id is that of a live dataspace of as many dimensions as each of the four arrays has elements
    // (asserted above), and the library's lock is held.
    let status = sync(|| unsafe {
        let (start, stride) = (start.as_ptr(), stride.as_ptr());
        H5Sselect_hyperslab(space.id(), H5S_SELECT_SET, start, stride, count.as_ptr(), block.as_ptr())
    });
    if status < 0 { Err(hdf5::Error::query()?) } else { Ok(()) }
}

/// Writes all elements of a dataset, given as bytes of its own type.
pub fn write_bytes(dataset: &Dataset, bytes: &[u8]) -> hdf5::Result<()> {
    let datatype = dataset.dtype()?;
    if bytes.len() != dataset.size() * datatype.size() {
        return Err(format!("expected {} elements, found {} bytes", dataset.size(), bytes.len()).into());
    }
    // SAFETY: the buffer holds every element of the dataset in the dataset's own type (checked above; only types of
    // fixed size are created here), ids are those of live objects, and the library's lock is held.
    let status =
        sync(|| unsafe { H5Dwrite(dataset.id(), datatype.id(), H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes.as_ptr().cast()) });
    if status < 0 { Err(hdf5::Error::query()?) } else { Ok(()) }
}

/// Reads all elements of a dataset as bytes of its type, which must have a fixed size.
pub fn read_bytes(dataset: &Dataset) -> hdf5::Result<Vec<u8>> {
    let datatype = dataset.dtype()?;
    if !has_fixed_size(&datatype.to_descriptor()?) {
        return Err("expected elements of fixed size, found strings of variable length".into());
    }
    let mut bytes = vec![0_u8; dataset.size() * datatype.size()];
    // SAFETY: as in `write_bytes`; the library fills exactly the elements, which own no memory.
    let status = sync(|| unsafe {
        H5Dread(dataset.id(), datatype.id(), H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes.as_mut_ptr().cast())
    });
    if status < 0 { Err(hdf5::Error::query()?) } else { Ok(bytes) }
}

/// Returns `true` if elements of this type have a fixed size and refer to no heap data.
fn has_fixed_size(descriptor: &TypeDescriptor) -> bool {
    match descriptor {
        TypeDescriptor::Integer(_)
        | TypeDescriptor::Unsigned(_)
        | TypeDescriptor::Float(_)
        | TypeDescriptor::Boolean
        | TypeDescriptor::Enum(_)
        | TypeDescriptor::FixedAscii(_)
        | TypeDescriptor::FixedUnicode(_) => true,
        TypeDescriptor::Compound(compound) => compound.fields.iter().all(|field| has_fixed_size(&field.ty)),
        TypeDescriptor::FixedArray(element, _) => has_fixed_size(element),
        _ => false,
    }
}
