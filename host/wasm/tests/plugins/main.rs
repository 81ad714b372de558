//! Plugins on the real engine: what is refused, what is delivered, what the folder tells, what a
//! hostile guest can do.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bulk;
mod components;
mod delivery;
mod empty_component;
mod folder;
mod grants;
mod hostile;
mod http;
mod memory;
mod metering;
mod state;
mod support;
mod threads;
mod ticks;
mod web;
