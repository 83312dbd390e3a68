//! Tests of plan parsing, of the formulas against published systems, and of the simulation against the formulas.

mod papers;
mod plans;
mod simulation;
