//! Values of flags, whose errors show how they are written.

use std::net::SocketAddr;
use std::time::{Duration, UNIX_EPOCH};

use shardmill_config::floor;
use shardmill_core::artifact::ArtifactRef;
use shardmill_core::control::{NAME_CHARS_MAX, WHY_CHARS_MAX};
use shardmill_core::plugin::{Part, check_ending, is_of_table_name, split_part};
use shardmill_core::stream::{SequenceNumber, check_region};
use shardmill_core::text::steers;

use crate::author::feed::KEY_CHARS_MAX;

/// Characters of the longest name of a table (DynamoDB's naming rules).
const TABLE_NAME_MAX: usize = 255;

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    shardmill_config::parse_duration(text)
}

/// How long a worker of an old fleet may be silent.
pub(super) fn failover_time(text: &str) -> Result<Duration, String> {
    floor::FAILOVER_TIME.parse(text)
}

/// How often a command looks again.
pub(super) fn watch_interval(text: &str) -> Result<Duration, String> {
    floor::WATCH.parse(text)
}

/// A service's URL.
pub(super) fn endpoint(text: &str) -> Result<String, String> {
    shardmill_config::check_url(text).map(|_| text.to_owned())
}

pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    let example = "an address is written as IP:PORT, such as 127.0.0.1:9090 or [::1]:9090; names \
        are not accepted";
    text.parse().map_err(|error| format!("{error}; {example}"))
}

/// A lease table's name. Behind a dot it may end as its stream does.
pub(super) fn application(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err(
            "an application has a name: `shardmill plugins` lists those that are served".to_owned(),
        );
    }
    let (base, part) = split_part(text);
    if base.is_empty() || matches!(part, Part::Host("") | Part::Stream("")) {
        return Err(
            "write APPLICATION, APPLICATION@HOST or APPLICATION:STREAM, with a name on each side"
                .to_owned(),
        );
    }
    if base.len() > TABLE_NAME_MAX || !is_of_table_name(base) {
        return Err(format!(
            "an application has the name of its lease table: at most {TABLE_NAME_MAX} letters, \
                digits, '_', '.' or '-'"
        ));
    }
    if !text.contains('.') {
        check_ending(text).map_err(|taken| taken.to_string())?;
    }
    Ok(text.to_owned())
}

/// How many of something there shall be: one at least.
pub(super) fn count<const MOST: u32>(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(count) if (1..=MOST).contains(&count) => Ok(count),
        Ok(_) | Err(_) => Err(format!("a whole number from 1 to {MOST}, such as 4")),
    }
}

/// A rate, of a second.
pub(super) fn rate(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(rate) if (0.0..=1e12).contains(&rate) => Ok(rate),
        Ok(_) | Err(_) => Err("a rate is written such as 2500 or 0.1".to_owned()),
    }
}

/// A rate of a load test, of a second: above nothing, and no more than one machine sends.
pub(super) fn load(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(rate) if (0.001..=10_000_000.0).contains(&rate) => Ok(rate),
        Ok(_) | Err(_) => Err("a number from 0.001 to 10000000, such as 2500".to_owned()),
    }
}

/// How long a part of a load test takes.
pub(super) fn load_time(text: &str) -> Result<Duration, String> {
    const LONGEST: Duration = Duration::from_hours(24 * 7);
    match duration(text)? {
        time if time.is_zero() || time > LONGEST => Err("from 1ms to 7d, such as 10m".to_owned()),
        time => Ok(time),
    }
}

/// A partition key.
pub(super) fn partition_key(text: &str) -> Result<String, String> {
    match text.chars().count() {
        0 => Err("a partition key must not be empty".to_owned()),
        1..=KEY_CHARS_MAX => Ok(text.to_owned()),
        _ => Err(format!(
            "a partition key has {KEY_CHARS_MAX} characters at most"
        )),
    }
}

/// A place in the range of hash keys.
pub(super) fn hash_key(text: &str) -> Result<u128, String> {
    text.parse().map_err(|_| {
        "a hash key is a whole number from 0 to 340282366920938463463374607431768211455".to_owned()
    })
}

/// A reason: one line, which hosts read again and again.
pub(super) fn why(text: &str) -> Result<String, String> {
    short_line(text, WHY_CHARS_MAX)
}

/// A name for the history.
pub(super) fn name_of_person(text: &str) -> Result<String, String> {
    short_line(text, NAME_CHARS_MAX)
}

fn short_line(text: &str, chars_max: usize) -> Result<String, String> {
    let text = text.trim();
    if text.is_empty() || text.chars().count() > chars_max || text.contains(steers) {
        return Err(format!(
            "one line of 1 to {chars_max} characters, without any that steer a terminal"
        ));
    }
    Ok(text.to_owned())
}

/// A sequence number.
pub(super) fn sequence(text: &str) -> Result<SequenceNumber, String> {
    SequenceNumber::parse(text).map_err(|error| error.to_string())
}

/// Where a shard is sent, as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// The oldest record.
    Horizon,
    /// What comes next.
    Tip,
    /// Where the application began.
    Start,
    /// A time, in milliseconds since the Unix epoch.
    Time(u64),
    /// So long before now.
    Ago(Duration),
    /// A record.
    Sequence(SequenceNumber),
    /// So many records after the checkpoint.
    Forward(u32),
    /// So many records before it.
    Back(u32),
}

/// The most records that a shard is moved by.
const RECORDS_MOVED_MAX: u32 = 10_000;

/// Where a shard is sent.
pub(super) fn target(text: &str) -> Result<Target, String> {
    let written = "a place is written as horizon, tip, start, 2026-01-01T10:00:00Z, -2h, +10, -10, \
        or a sequence number";
    match text {
        "horizon" => return Ok(Target::Horizon),
        "tip" => return Ok(Target::Tip),
        "start" => return Ok(Target::Start),
        _ => {}
    }
    if let Some(count) = text.strip_prefix('+') {
        return Ok(Target::Forward(self::count::<RECORDS_MOVED_MAX>(count)?));
    }
    if let Some(back) = text.strip_prefix('-') {
        if back.bytes().all(|byte| byte.is_ascii_digit()) {
            return Ok(Target::Back(self::count::<RECORDS_MOVED_MAX>(back)?));
        }
        return Ok(Target::Ago(duration(back).map_err(|_| written)?));
    }
    if let Ok(number) = SequenceNumber::parse(text) {
        return Ok(Target::Sequence(number));
    }
    Ok(Target::Time(time_ms(text).map_err(|_| written)?))
}

/// A time, in milliseconds since the Unix epoch.
pub(super) fn time_ms(text: &str) -> Result<u64, String> {
    let written = "a time is written as in 2026-01-01T10:00:00Z";
    let time = humantime::parse_rfc3339_weak(text).map_err(|_| written)?;
    let since_epoch = time.duration_since(UNIX_EPOCH).map_err(|_| written)?;
    Ok(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
}

/// Where a version of a plugin is.
pub(super) fn reference(text: &str) -> Result<ArtifactRef, String> {
    ArtifactRef::parse(text).map_err(|fault| format!("it {fault}"))
}

/// An AWS region's name.
pub(super) fn region(text: &str) -> Result<String, String> {
    match check_region(text) {
        Ok(()) => Ok(text.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// An AWS account's number.
pub(super) fn account(text: &str) -> Result<String, String> {
    if text.len() == 12 && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(text.to_owned());
    }
    Err("an account is twelve digits, such as 123456789012".to_owned())
}

/// Any ARN.
pub(super) fn arn(text: &str) -> Result<String, String> {
    let is_allowed = |c: char| c.is_ascii_graphic() && !"\"\\${}".contains(c);
    if text.starts_with("arn:") && text.split(':').count() >= 6 && text.chars().all(is_allowed) {
        return Ok(text.to_owned());
    }
    Err("an ARN is written such as arn:aws:kms:eu-west-1:123456789012:key/ID".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_application_has_a_name_that_a_table_can_have_also_before_its_part() {
        let longest = "x".repeat(TABLE_NAME_MAX);
        for good in [
            "orders",
            "orders@pod 1",
            "orders:012345678901.flights",
            &longest,
        ] {
            assert_eq!(application(good).as_deref(), Ok(good));
        }
        let too_long = format!("{longest}x");
        for bad in [
            "a b",
            "orders/1",
            "é",
            "a b@pod-1",
            "a\nb:flights",
            &too_long,
        ] {
            let told = application(bad).unwrap_err();
            assert!(told.contains("letters, digits"), "{bad}: {told}");
        }
    }

    #[test]
    fn a_count_is_told_how_it_is_written_and_within_which_bounds() {
        assert_eq!(count::<5>("5"), Ok(5));
        for bad in ["0", "6", "ten", "-1", "1.5", ""] {
            assert!(
                count::<5>(bad).unwrap_err().contains("from 1 to 5"),
                "{bad}"
            );
        }
    }

    #[test]
    fn a_rate_is_a_number_that_can_be() {
        assert!(rate("0.5").is_ok() && rate("0").is_ok());
        for bad in ["-1", "NaN", "inf", "many"] {
            assert!(rate(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_key_is_what_kinesis_takes() {
        assert!(partition_key("a").is_ok() && partition_key(&"é".repeat(256)).is_ok());
        assert!(partition_key("").is_err() && partition_key(&"é".repeat(257)).is_err());
        assert_eq!(hash_key(&u128::MAX.to_string()), Ok(u128::MAX));
        for bad in ["-1", "0x10", "340282366920938463463374607431768211456", ""] {
            assert!(hash_key(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_place_that_would_break_a_policy_is_refused() {
        assert!(region("eu-west-1").is_ok() && region("*").is_err() && region("a\"-1").is_err());
        assert!(account("123456789012").is_ok() && account("12345678901x").is_err());
        assert!(arn("arn:aws:kms:eu-west-1:123456789012:key/1").is_ok());
        for bad in [
            "key/1",
            "arn:aws:kms",
            "arn:aws:kms:eu-west-1:1:key/\"",
            "arn:a:b:c:d:${x}",
        ] {
            assert!(arn(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_place_is_read_as_it_is_written_or_told_how_it_is() {
        let number = SequenceNumber::parse("495").unwrap();
        for (text, expected) in [
            ("horizon", Target::Horizon),
            ("tip", Target::Tip),
            ("start", Target::Start),
            ("2026-01-01T00:00:00Z", Target::Time(1_767_225_600_000)),
            ("2026-01-01 00:00:00", Target::Time(1_767_225_600_000)),
            ("-2h", Target::Ago(Duration::from_hours(2))),
            ("+10", Target::Forward(10)),
            ("-10", Target::Back(10)),
            ("495", Target::Sequence(number)),
        ] {
            assert_eq!(target(text), Ok(expected), "{text}");
        }
        for bad in [
            "",
            "+",
            "-",
            "+0",
            "-0",
            "+2h",
            "soon",
            "1969-01-01T00:00:00Z",
            "+10001",
        ] {
            assert!(target(bad).is_err(), "{bad}");
        }
        assert!(target("soon").unwrap_err().contains("written as horizon"));
    }

    #[test]
    fn a_reason_is_one_short_line() {
        assert_eq!(why(" incident 7 "), Ok("incident 7".to_owned()));
        for bad in ["", "  ", "a\nb", "a\u{1b}[2J", &"x".repeat(301)] {
            assert!(why(bad).is_err(), "{bad}");
        }
    }

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
