//! Runs, emulated probes and endpoints as handles that any thread of a program may use: what the bindings of Python
//! (crate `python`) and C (crate `capi`) share.
//!
//! A handle owns its thread and what it has opened, and ends both when it is closed or dropped. Nothing here knows a
//! language: the bindings convert values and errors, and release the interpreter's lock.
