//! Little-endian numbers, one after another.

/// Writes numbers one after another.
pub(super) struct Writer<'a>(pub(super) &'a mut [u8]);

impl Writer<'_> {
    pub(super) fn bytes<const N: usize>(&mut self, bytes: [u8; N]) {
        let (to, rest) = std::mem::take(&mut self.0).split_at_mut(N);
        to.copy_from_slice(&bytes);
        self.0 = rest;
    }
    pub(super) fn u32(&mut self, number: u32) {
        self.bytes(number.to_le_bytes());
    }
    pub(super) fn u64(&mut self, number: u64) {
        self.bytes(number.to_le_bytes());
    }
    pub(super) fn numbers<const N: usize>(&mut self, numbers: [u64; N]) {
        numbers.into_iter().for_each(|number| self.u64(number));
    }
}

/// Reads numbers one after another.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl Reader<'_> {
    pub(super) fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let (bytes, rest) = self.0.split_first_chunk().unwrap_or((&[0; N], &[]));
        self.0 = rest;
        *bytes
    }
    pub(super) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.bytes())
    }
    pub(super) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.bytes())
    }
    pub(super) fn numbers<const N: usize>(&mut self) -> [u64; N] {
        std::array::from_fn(|_| self.u64())
    }
    pub(super) fn f64(&mut self) -> f64 {
        f64::from_le_bytes(self.bytes())
    }
}
