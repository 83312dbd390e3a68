//! Quality of service: shares, priorities, time-slots, configuration, and a reference model.

mod configuration;
mod link;
mod model;
mod priority;
mod schedule;
mod shares;
