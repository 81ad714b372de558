//! Whatever a configuration file says, it is refused with words or makes a configuration that
//! works.
#![no_main]
#![allow(dead_code, unused_imports, missing_docs)]

#[path = "../checks/config.rs"]
mod check;
use shardmill_config as config;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::check(data));
