//! Plans: what is refused, what the formulas say of published systems, and the simulation beside the formulas.

mod papers;
mod plans;
mod simulation;
