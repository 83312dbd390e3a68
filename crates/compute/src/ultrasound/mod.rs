//! Ultrasound: the transducer, its transmissions, and images of their echoes.

mod array;
mod beamform;
mod display;
mod hilbert;
mod traces;

pub use array::{Array, Wave};
pub use beamform::{Apodisation, BeamformError, Beamformer, BeamformerConfig, Grid, Quadrature, Rf};
pub use display::{Display, DisplayError, Reference};
pub use traces::{TracesError, draw_traces};
