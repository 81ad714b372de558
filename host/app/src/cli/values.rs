//! Values of flags, whose errors show how they are written.

use std::net::SocketAddr;
use std::time::Duration;

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| format!("{error}; a duration is written such as 500ms, 10s or 5m"))
}

pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    let example = "an address is written as IP:PORT, such as 127.0.0.1:9090 or [::1]:9090; names are not taken";
    text.parse().map_err(|error| format!("{error}; {example}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_does_not_parse_is_told_how_it_is_written() {
        for text in ["10", "abc", ""] {
            assert!(duration(text).unwrap_err().contains("such as 500ms"), "{text}");
        }
        for text in ["9090", "localhost:9090"] {
            assert!(address(text).unwrap_err().contains("127.0.0.1:9090"), "{text}");
        }
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(address("127.0.0.1:80").unwrap().port(), 80);
    }
}
