//! `wasi:logging/logging`.

use crate::bindings::wasi::logging::logging::{Host, Level};
use crate::instance::state::InstanceState;

impl Host for InstanceState {
    fn log(&mut self, level: Level, context: String, message: String) {
        self.log.write(level, &context, &message);
    }
}
