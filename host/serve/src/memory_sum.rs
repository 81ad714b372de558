//! The most memory that a host takes for what its operator sets, by part.

use shardmill_config::Config;
use shardmill_sinks::letters::ROOM_BYTES;
use shardmill_wasm::{GUEST_CALLS_MAX, STACK_BYTES};

use crate::recordings::WAITING_MAX;

/// What the process takes for itself, measured with the hostile corpus and rounded up.
const OF_PROCESS: usize = 100 << 20;

/// Bytes at most, by what they are for ([decision 24](../../../docs/decisions/0024-one-sum.md)).
/// What sinks are writing comes on top.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemorySum {
    /// What plugins hold: `host.instances-memory`.
    pub instances: usize,
    /// Code of loaded versions, `host.code-memory`, and of one that is about to be loaded.
    pub code: usize,
    /// Records that were fetched and are not settled: `host.buffer`.
    pub buffer: usize,
    /// Requests of plugins under way.
    pub http: usize,
    /// Dead letters on their way to their sink.
    pub letters: usize,
    /// Batches that plugins were given lately, and what of them is about to be written:
    /// `recordings.memory`.
    pub recordings: usize,
    /// Stacks of running calls, what they pass to the host, and the copies of fetched records on
    /// their way into them.
    pub calls: usize,
    /// What the process needs before it runs a plugin.
    pub process: usize,
    /// The compiler, which is a process of its own: `compile.memory`.
    pub compiler: usize,
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
            recordings: of_recordings(config),
            calls: GUEST_CALLS_MAX
                .saturating_mul(call)
                .saturating_add(config.host.buffer_bytes),
            process: OF_PROCESS,
            compiler: usize::try_from(config.compile.memory_bytes).unwrap_or(usize::MAX),
        }
    }

    /// The sum of all parts, in bytes.
    pub fn total(&self) -> usize {
        let parts = [
            self.instances,
            self.code,
            self.buffer,
            self.http,
            self.letters,
            self.recordings,
            self.calls,
            self.process,
            self.compiler,
        ];
        parts.into_iter().fold(0, usize::saturating_add)
    }

    /// What to do if all of it is more than the process may have; `None` if it is not, or if that
    /// is unknown.
    pub fn advice(&self, memory_bytes: Option<u64>) -> Option<String> {
        let have = usize::try_from(memory_bytes?).unwrap_or(usize::MAX);
        let too_much = self.total().checked_sub(have).filter(|bytes| *bytes > 0)?;
        Some(format!(
            "at worst this host takes {} more than the {} that it may have, and the system ends it or \
                its compiler: lower host.instances-memory, host.code-memory with compile.code, \
                host.buffer, recordings.memory or compile.memory, or raise the limit of the process",
            mib(too_much),
            mib(have)
        ))
    }
}

/// Also one that is being written, beside those that wait.
fn of_recordings(config: &Config) -> usize {
    let own = &config.recordings;
    if !own.is_enabled {
        return 0;
    }
    let one = config
        .batches
        .bytes
        .saturating_add(own.instance_memory_bytes);
    own.memory_bytes
        .saturating_add(one.saturating_mul(WAITING_MAX + 1))
}

fn mib(bytes: usize) -> String {
    format!("{} MiB", bytes.div_ceil(1 << 20))
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
             [limits]\nhostcall-bytes = \"512 KiB\"\n[compile]\nmemory = \"1GiB\"\n",
            2,
        );
        let expected = MemorySum {
            instances: 256 << 20,
            code: (512 + 256) << 20,
            buffer: 64 << 20,
            http: 4 << 20,
            letters: 96 << 20,
            recordings: (32 + 5 * 8) << 20,
            calls: (512 + 64) << 20,
            process: 100 << 20,
            compiler: 1 << 30,
        };
        assert_eq!(small, expected);
        assert_eq!(
            small.total(),
            (256 + 512 + 256 + 64 + 4 + 96 + 72 + 512 + 64 + 100 + 1_024) << 20
        );
        assert_eq!(small.advice(Some(4 << 30)), None);
        assert_eq!(small.advice(None), None);
        let advice = small.advice(Some(1 << 30)).unwrap();
        assert!(
            advice.contains("1936 MiB more than the 1024 MiB") && advice.contains("compile.memory"),
            "{advice}"
        );
    }
}
