//! Values of flags, whose errors show how they are written.

use std::net::SocketAddr;
use std::time::Duration;

use shardmill_core::plugin::check_ending;

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|error| format!("{error}; a duration is written such as 500ms, 10s or 5m"))
}

pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    let example = "an address is written as IP:PORT, such as 127.0.0.1:9090 or [::1]:9090; names are not accepted";
    text.parse().map_err(|error| format!("{error}; {example}"))
}

/// A lease table's name. Behind a dot it may end as its stream does.
pub(super) fn application(text: &str) -> Result<String, String> {
    if !text.contains('.') {
        check_ending(text).map_err(|taken| taken.to_string())?;
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_does_not_parse_is_told_how_it_is_written() {
        for text in ["10", "abc", ""] {
            assert!(
                duration(text).unwrap_err().contains("such as 500ms"),
                "{text}"
            );
        }
        for text in ["9090", "localhost:9090"] {
            assert!(
                address(text).unwrap_err().contains("127.0.0.1:9090"),
                "{text}"
            );
        }
        assert!(
            application("totals-state")
                .unwrap_err()
                .contains("a table of the application \"totals\"")
        );
        assert_eq!(
            application("totals.device-state"),
            Ok("totals.device-state".to_owned())
        );
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(address("127.0.0.1:80").unwrap().port(), 80);
    }
}
