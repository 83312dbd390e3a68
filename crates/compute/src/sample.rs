//! The sample types that down-conversion and spectra accept.

/// A sample: `i16` (real) or `[i16; 2]` (I, Q).
pub trait Sample: Copy + private::Words {}
impl Sample for i16 {}
impl Sample for [i16; 2] {}

pub(crate) mod private {
    /// Samples as 16-bit words.
    pub trait Words: Sized {
        /// Number of 16-bit words per sample.
        const WORDS: usize;
        /// Returns the samples as a flat slice of words.
        fn words(samples: &[Self]) -> &[i16];
    }

    impl Words for i16 {
        const WORDS: usize = 1;
        fn words(samples: &[Self]) -> &[i16] {
            samples
        }
    }

    impl Words for [i16; 2] {
        const WORDS: usize = 2;
        fn words(samples: &[Self]) -> &[i16] {
            samples.as_flattened()
        }
    }
}
