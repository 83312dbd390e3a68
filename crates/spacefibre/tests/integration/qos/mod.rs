//! Quality of service: shares, priorities, time-slots, configuration, and a reference model.

mod configuration;
mod link;
mod model;
mod priority;
mod round_trip;
mod schedule;
mod shares;
