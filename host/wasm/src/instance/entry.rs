//! A call into a guest: its name, and how much it may take.

use std::time::Duration;

use shardmill_core::plugin::GuestLimits;

use crate::Metering;

/// What `entered` calls a call, and how much it may take.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) call: &'static str,
    pub(crate) deadline: Duration,
    pub(crate) hostcall_bytes: usize,
    pub(crate) metering: Metering,
}

impl Entry {
    pub(crate) fn new(
        call: &'static str,
        deadline: Duration,
        limits: &GuestLimits,
        metering: Metering,
    ) -> Self {
        Self {
            call,
            deadline,
            hostcall_bytes: limits.hostcall_bytes,
            metering,
        }
    }
}
