//! Traces of channels as a picture of their extrema.

/// The sizes of traces and picture do not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{values} samples of {channels} channels cannot be drawn into {rows} rows of {pixels} pixels in all")]
pub struct TracesError {
    /// Samples of all channels.
    pub values: usize,
    /// Number of channels.
    pub channels: usize,
    /// Rows of the picture.
    pub rows: usize,
    /// Pixels of the picture.
    pub pixels: usize,
}

/// Draws channels as columns of `rows` pixels, time downwards. A pixel is the pair of the least and the greatest sample
/// of its part of the channel, so that no pulse is lost; in rows. `samples` are in the order of a shot: all channels of
/// sample 0, then of sample 1. With fewer samples than rows, samples are repeated.
///
/// # Errors
/// If the sizes do not match.
pub fn draw_traces(samples: &[i16], channels: usize, rows: usize, picture: &mut [[i16; 2]]) -> Result<(), TracesError> {
    let error = TracesError { values: samples.len(), channels, rows, pixels: picture.len() };
    let has_size = rows.checked_mul(channels) == Some(picture.len());
    if channels == 0 || !samples.len().is_multiple_of(channels) || samples.is_empty() || !has_size {
        return Err(error);
    }
    let count = samples.len() / channels;
    for (row, pixels) in picture.chunks_exact_mut(channels).enumerate() {
        // The products are of 128 bits, as the numbers of samples and rows have no limit.
        let place = |row: usize| (row as u128 * count as u128 / rows as u128) as usize;
        let (first, end) = (place(row), place(row + 1));
        let part = &samples[first * channels..end.max(first + 1) * channels];
        for (n, values) in part.chunks_exact(channels).enumerate() {
            for ([least, greatest], value) in pixels.iter_mut().zip(values) {
                *least = if n == 0 { *value } else { *value.min(least) };
                *greatest = if n == 0 { *value } else { *value.max(greatest) };
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixels_are_the_extrema_of_their_samples() {
        // Two channels, of which the second is the first times -10.
        let samples = [1, 2, 3, 4, 5, 6, 7].map(|n: i16| [n, -10 * n]);
        let mut picture = [[0; 2]; 6];
        draw_traces(samples.as_flattened(), 2, 3, &mut picture).unwrap();
        assert_eq!(picture, [[1, 2], [-20, -10], [3, 4], [-40, -30], [5, 7], [-70, -50]]);
    }

    #[test]
    fn few_samples_are_repeated() {
        let mut picture = [[0; 2]; 4];
        draw_traces(&[7, 9], 1, 4, &mut picture).unwrap();
        assert_eq!(picture, [[7, 7], [7, 7], [9, 9], [9, 9]]);
    }

    #[test]
    fn traces_of_another_size_are_refused() {
        let mut picture = [[0; 2]; 4];
        for (values, channels, rows) in [(3, 2, 2), (4, 0, 2), (0, 2, 2), (4, 2, 1), (4, 2, usize::MAX)] {
            assert!(draw_traces(&vec![0; values], channels, rows, &mut picture).is_err());
        }
    }
}
