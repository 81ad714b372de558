//! What a plugin may call: one file for each interface that it imports.

mod config;
mod context;
mod emit;
mod line_stream;
mod log_budget;
mod logging;
mod metrics;
mod plugin_output;

use wasmtime::component::{HasSelf, Linker};

pub(crate) use emit::EmitBuffer;
pub(crate) use line_stream::LineStream;
pub(crate) use logging::GuestLog;
pub(crate) use plugin_output::PluginOutput;

use crate::bindings::shardmill::processor;
use crate::bindings::wasi::config::store as wasi_config;
use crate::bindings::wasi::logging::logging as wasi_logging;
use crate::instance_state::InstanceState;

/// Links everything that plugins are given.
pub(crate) fn add_to_linker(linker: &mut Linker<InstanceState>) -> wasmtime::Result<()> {
    wasmtime_wasi::p2::add_to_linker_async(linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(linker)?;
    wasi_config::add_to_linker::<_, HasSelf<InstanceState>>(linker, |state| state)?;
    wasi_logging::add_to_linker::<_, HasSelf<InstanceState>>(linker, |state| state)?;
    processor::types::add_to_linker::<_, HasSelf<InstanceState>>(linker, |state| state)?;
    processor::context::add_to_linker::<_, HasSelf<InstanceState>>(linker, |state| state)?;
    processor::emit::add_to_linker::<_, HasSelf<InstanceState>>(linker, |state| state)?;
    processor::metrics::add_to_linker::<_, HasSelf<InstanceState>>(linker, |state| state)
}

/// Makes text from a guest safe for terminals and log files: no control characters, no more than `bytes_max`.
pub(crate) fn clean(text: &str, bytes_max: usize) -> String {
    let end = text.floor_char_boundary(bytes_max);
    let is_unsafe = |c: char| {
        c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut cleaned: String = text[..end].chars().map(|c| if is_unsafe(c) { ' ' } else { c }).collect();
    if end < text.len() {
        cleaned.push('…');
    }
    cleaned
}

#[cfg(test)]
mod tests {
    use super::clean;

    #[test]
    fn text_from_a_guest_is_cut_at_a_character_and_cannot_steer_a_terminal() {
        assert_eq!(clean("héllo", 2), "h…");
        assert_eq!(clean("a\u{1b}[31mb\nc\u{202e}", 100), "a [31mb c ");
    }
}
