//! For each invariant the shortest history that keeps it and one that breaks it, and nothing but
//! it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod commands;
mod heart;
mod instances;
mod legal;
mod liveness;
mod outputs;
mod pace;
mod parents;
mod policy;
mod releasing;
mod safety;
mod starting;
mod story;
