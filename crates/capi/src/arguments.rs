//! Pointers of the caller: checks, and conversion to references.
//!
//! The contract of the header is that a pointer which is not NULL points to memory of the documented size, which no other
//! thread uses during the call. Each function here is `unsafe` because it relies on that.

use crate::status::{Failure, shotline_status};
use std::ffi::{CStr, c_char};
use std::ptr::NonNull;

/// Type of which every bit pattern is a value, so that memory from C may hold anything before the call.
///
/// # Safety
/// It has no padding, no reference and no invalid value.
pub(crate) unsafe trait Plain: Copy {}
// SAFETY: integers have neither padding nor invalid values.
unsafe impl Plain for u8 {}
// SAFETY: as above.
unsafe impl Plain for i16 {}
// SAFETY: as above.
unsafe impl Plain for u64 {}

/// Memory of the caller for one result.
pub(crate) struct Out<T>(NonNull<T>);

impl<T> Out<T> {
    /// Checks a pointer. `name` is that of the parameter.
    ///
    /// # Safety
    /// `to` is NULL, or valid for writes of `T` as long as the value is used.
    pub(crate) unsafe fn new(to: *mut T, name: &str) -> Result<Self, Failure> {
        check_aligned(to, name)?;
        NonNull::new(to).map(Self).ok_or_else(|| null(name))
    }
    /// As [`Self::new`], for a result that the caller may do without.
    ///
    /// # Safety
    /// As for [`Self::new`].
    pub(crate) unsafe fn optional(to: *mut T, name: &str) -> Result<Option<Self>, Failure> {
        check_aligned(to, name)?;
        Ok(NonNull::new(to).map(Self))
    }
    pub(crate) fn set(&self, value: T) {
        // SAFETY: `new` received a pointer that is valid for writes, and has checked that it is aligned.
        unsafe { self.0.write(value) }
    }
}

/// Memory of the caller for several results, which may be unused before.
pub(crate) struct OutArray<T> {
    to: *mut T,
    capacity: usize,
}

impl<T> OutArray<T> {
    /// Checks a pointer to `capacity` elements. NULL is accepted with a capacity of 0.
    ///
    /// # Safety
    /// `to` is NULL, or valid for writes of `capacity` elements as long as the value is used.
    pub(crate) unsafe fn new(to: *mut T, capacity: usize, name: &str) -> Result<Self, Failure> {
        check_aligned(to, name)?;
        if to.is_null() && capacity > 0 {
            return Err(null(name));
        }
        Ok(Self { to, capacity })
    }
    /// Fails if fewer than `needed` elements fit. `what` says what they are.
    pub(crate) fn check(&self, needed: usize, what: &str) -> Result<(), Failure> {
        if needed > self.capacity {
            let words = format!("expected a buffer for {needed} {what}, found one for {}", self.capacity);
            return Err(Failure::new(shotline_status::SHOTLINE_ERROR_BUFFER_TOO_SMALL, words));
        }
        if needed.checked_mul(size_of::<T>()).is_none_or(|bytes| isize::try_from(bytes).is_err()) {
            return Err(Failure::argument(format!(
                "expected at most half of the address space, found {needed} {what}"
            )));
        }
        Ok(())
    }
    /// Writes elements from the first one on.
    pub(crate) fn fill(&self, elements: impl ExactSizeIterator<Item = T>, what: &str) -> Result<(), Failure> {
        self.check(elements.len(), what)?;
        for (index, element) in elements.enumerate().take(self.capacity) {
            // SAFETY: `index` is below the capacity for which `new` received a valid pointer.
            unsafe { self.to.add(index).write(element) }
        }
        Ok(())
    }
    /// Returns the memory after the first elements.
    pub(crate) fn after(self, elements: usize) -> Self {
        let skipped = elements.min(self.capacity);
        // SAFETY: `new` received a valid pointer to at least that many elements; 0 is added to NULL.
        Self { to: unsafe { self.to.add(skipped) }, capacity: self.capacity - skipped }
    }
}

impl<T: Plain> OutArray<T> {
    /// Returns the first `needed` elements.
    pub(crate) fn slice(&mut self, needed: usize, what: &str) -> Result<&mut [T], Failure> {
        self.check(needed, what)?;
        if needed == 0 {
            return Ok(&mut []);
        }
        // SAFETY: `new` received a pointer to at least this many elements and has checked its alignment; `check` has
        // checked their size. Any bit pattern is a value (`Plain`), and the memory is from C, so Rust's compiler cannot
        // know it as uninitialised. No other thread uses it during the call (header).
        Ok(unsafe { std::slice::from_raw_parts_mut(self.to, needed) })
    }
}

/// Returns a structure that the caller passes, or `None` for NULL.
///
/// # Safety
/// `from` is NULL, or valid for reads of an initialised `T`.
pub(crate) unsafe fn read<T: Copy>(from: *const T, name: &str) -> Result<Option<T>, Failure> {
    check_aligned(from, name)?;
    // SAFETY: the pointer is not null, aligned as checked, and valid as the caller guarantees.
    Ok((!from.is_null()).then(|| unsafe { from.read() }))
}

/// Returns a string that the caller passes.
///
/// # Safety
/// `from` is NULL, or a string that ends with a zero byte and does not change during `'a`.
pub(crate) unsafe fn text<'a>(from: *const c_char, name: &str) -> Result<&'a CStr, Failure> {
    if from.is_null() {
        return Err(null(name));
    }
    // SAFETY: as the caller guarantees.
    Ok(unsafe { CStr::from_ptr(from) })
}

/// Returns a string of UTF-8 that the caller passes.
///
/// # Safety
/// As for [`text`].
pub(crate) unsafe fn utf8<'a>(from: *const c_char, name: &str) -> Result<&'a str, Failure> {
    // SAFETY: as the caller guarantees.
    let bytes = unsafe { text(from, name) }?;
    bytes.to_str().map_err(|error| Failure::argument(format!("expected UTF-8 as argument `{name}`, found {error}")))
}

/// As [`utf8`], with a default for NULL.
///
/// # Safety
/// As for [`text`].
pub(crate) unsafe fn utf8_or<'a>(from: *const c_char, default: &'a str, name: &str) -> Result<&'a str, Failure> {
    // SAFETY: as the caller guarantees.
    if from.is_null() { Ok(default) } else { unsafe { utf8(from, name) } }
}

/// Returns elements that the caller passes. NULL is accepted with a count of 0.
///
/// # Safety
/// As for [`array`]. Any bytes are elements.
pub(crate) unsafe fn slice<'a, T: Plain>(from: *const T, count: u64, name: &str) -> Result<&'a [T], Failure> {
    // SAFETY: as the caller guarantees.
    unsafe { array(from, count, name) }
}

/// Returns structures that the caller passes. NULL is accepted with a count of 0.
///
/// # Safety
/// `from` is NULL, or valid for reads of `count` initialised elements, which do not change during `'a`.
pub(crate) unsafe fn array<'a, T: Copy>(from: *const T, count: u64, name: &str) -> Result<&'a [T], Failure> {
    check_aligned(from, name)?;
    if count == 0 {
        return Ok(&[]);
    }
    if from.is_null() {
        return Err(null(name));
    }
    let fits = usize::try_from(count)
        .ok()
        .filter(|count| count.checked_mul(size_of::<T>()).is_some_and(|bytes| isize::try_from(bytes).is_ok()));
    let count = fits.ok_or_else(|| {
        Failure::argument(format!(
            "expected at most half of the address space as argument `{name}`, found {count} elements"
        ))
    })?;
    // SAFETY: the pointer is not null, aligned and of a size that exists as checked, and valid as the caller guarantees.
    Ok(unsafe { std::slice::from_raw_parts(from, count) })
}

/// Memory of the caller for a string, and for its length.
pub(crate) struct OutText {
    to: OutArray<u8>,
    length: Option<Out<usize>>,
}

impl OutText {
    /// Checks the pointers; both may be NULL, `to` with a capacity of 0.
    ///
    /// # Safety
    /// As for [`Out::new`] and [`OutArray::new`].
    pub(crate) unsafe fn new(to: *mut c_char, capacity: usize, length: *mut usize) -> Result<Self, Failure> {
        // SAFETY: as the caller guarantees.
        unsafe {
            Ok(Self { to: OutArray::new(to.cast(), capacity, "text")?, length: Out::optional(length, "length")? })
        }
    }
    /// Stores a text with a zero byte at its end, and its length without it. Without memory for the text, only the
    /// length.
    pub(crate) fn set(&mut self, text: &str) -> Result<(), Failure> {
        if let Some(length) = &self.length {
            length.set(text.len());
        }
        if self.to.to.is_null() {
            return Ok(());
        }
        let to = self.to.slice(text.len() + 1, "text bytes")?;
        to[..text.len()].copy_from_slice(text.as_bytes());
        to[text.len()] = 0;
        Ok(())
    }
}

fn null(name: &str) -> Failure {
    Failure::argument(format!("expected a pointer as argument `{name}`, found NULL"))
}

fn check_aligned<T>(pointer: *const T, name: &str) -> Result<(), Failure> {
    if pointer.is_aligned() {
        return Ok(());
    }
    let words = format!("expected a multiple of {} as address of argument `{name}`", align_of::<T>());
    Err(Failure::argument(format!("{words}, found {pointer:p}")))
}
