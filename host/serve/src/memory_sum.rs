//! The most memory that a host takes for what its operator sets, by part.

use shardmill_config::Config;
use shardmill_sinks::letters::ROOM_BYTES;
use shardmill_wasm::{GUEST_CALLS_MAX, STACK_BYTES};

/// What the process takes for itself, measured with the hostile corpus and rounded up.
const OF_PROCESS: usize = 100 << 20;

/// Bytes at most, by what they are for ([decision 24](../../../docs/decisions/0024-one-sum.md)).
/// What sinks are writing and the compiler's process come on top.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemorySum {
    /// What plugins hold: `host.instances-memory`.
    pub instances: usize,
    /// Code of loaded versions, `host.code-memory`, and of one that is about to be loaded.
    pub code: usize,
    /// Fetched records: `host.buffer`.
    pub buffer: usize,
    /// Requests of plugins under way.
    pub http: usize,
    /// Dead letters on their way to their sink.
    pub letters: usize,
    /// Stacks of running calls, what they pass to the host, and the copies of fetched records on
    /// their way into them.
    pub calls: usize,
    /// The process itself.
    pub process: usize,
}

impl MemorySum {
    /// For a host that serves this many plugins.
    pub fn of(config: &Config, plugins: usize) -> Self {
        let http = config.http.limits;
        let call = STACK_BYTES.saturating_add(config.limits.hostcall_bytes);
        Self {
            instances: config.host.instances_memory_bytes,
            code: config
                .host
                .code_memory_bytes
                .saturating_add(config.compile.code_bytes),
            buffer: config.host.buffer_bytes,
            http: http.in_flight_total.saturating_mul(http.request_bytes),
            letters: plugins.saturating_mul(ROOM_BYTES),
            calls: GUEST_CALLS_MAX
                .saturating_mul(call)
                .saturating_add(config.host.buffer_bytes),
            process: OF_PROCESS,
        }
    }

    /// All parts together.
    pub fn total(&self) -> usize {
        let parts = [
            self.instances,
            self.code,
            self.buffer,
            self.http,
            self.letters,
            self.calls,
            self.process,
        ];
        parts.into_iter().fold(0, usize::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_sum_follows_the_settings_and_the_number_of_plugins() {
        let of = |text: &str, plugins| {
            let config = Config::parse(text, Path::new(".")).unwrap();
            MemorySum::of(&config, plugins)
        };
        let small = of(
            "stream = \"s\"\n[host]\ninstances-memory = \"256 MiB\"\ncode-memory = \"512 MiB\"\n\
             buffer = \"64 MiB\"\n\
             [http]\nrequests-in-flight-total = 4\nrequest-bytes = \"1 MiB\"\n\
             [limits]\nhostcall-bytes = \"512 KiB\"\n",
            2,
        );
        let expected = MemorySum {
            instances: 256 << 20,
            code: (512 + 256) << 20,
            buffer: 64 << 20,
            http: 4 << 20,
            letters: 96 << 20,
            calls: (512 + 64) << 20,
            process: 100 << 20,
        };
        assert_eq!(small, expected);
        assert_eq!(
            small.total(),
            (256 + 512 + 256 + 64 + 4 + 96 + 512 + 64 + 100) << 20
        );
    }
}
