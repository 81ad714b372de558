//! Whatever a configuration file says, it is refused with words or makes a configuration that works.
#![no_main]
#![allow(dead_code, unused_imports, missing_docs)]

#[path = "../checks/config.rs"]
mod check;
/// As much of the application as the configuration knows, at the places that it knows.
#[path = "../../../host/app/src"]
mod app {
    pub mod config;
    pub mod sinks {
        pub mod line;
        pub use line::LineFormat;
    }
}

use app::{config, sinks};

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::check(data));
