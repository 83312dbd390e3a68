//! Displays of this machine, under servers that these tests start.

mod compositors;
mod conformance;
mod wayland;
mod x11;
mod xvfb;
