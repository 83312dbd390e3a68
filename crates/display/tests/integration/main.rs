//! Displays of this machine, under servers that these tests start.

mod conformance;
mod x11;
mod xvfb;
