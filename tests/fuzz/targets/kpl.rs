//! Whatever a record holds, opening it loses nothing and costs no more than it may.
#![no_main]

#[path = "../checks/kpl.rs"]
mod kpl;

libfuzzer_sys::fuzz_target!(|data: &[u8]| kpl::check(data));
