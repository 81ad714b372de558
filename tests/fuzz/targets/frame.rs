//! Whatever a frame holds, it is refused or means one thing.
#![no_main]

#[path = "../checks/frame.rs"]
mod frame;

libfuzzer_sys::fuzz_target!(|data: &[u8]| frame::check(data));
