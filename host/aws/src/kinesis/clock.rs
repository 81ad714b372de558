//! The stream's own time: the `Date` of a reply, which is the clock of arrival times in whole
//! seconds, rounded down.

use std::sync::{Arc, Mutex, PoisonError};

use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::config::interceptors::BeforeDeserializationInterceptorContextRef;
use aws_sdk_kinesis::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_kinesis::error::BoxError;
use aws_sdk_kinesis::primitives::{DateTime, DateTimeFormat};
use shardmill_core::ports::ReadError;
use shardmill_core::stream::StreamRef;

use super::errors::read_error;
use super::naming;

/// Keeps the `Date` of the last reply.
#[derive(Debug, Clone, Default)]
struct DateKeeper(Arc<Mutex<Option<u64>>>);

impl Intercept for DateKeeper {
    fn name(&self) -> &'static str {
        "DateKeeper"
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let date = context.response().headers().get("date").and_then(millis);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = date;
        Ok(())
    }
}

/// The time in milliseconds since the Unix epoch; `None` if the reply bears none that can be read.
pub(super) async fn now_ms(client: &Client, stream: &StreamRef) -> Result<Option<u64>, ReadError> {
    let keeper = DateKeeper::default();
    client
        .describe_stream_summary()
        .set_stream_name(naming::name(stream))
        .set_stream_arn(naming::arn(stream))
        .customize()
        .interceptor(keeper.clone())
        .send()
        .await
        .map_err(|error| read_error(&error))?;
    let date = *keeper.0.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(date)
}

/// Reads an HTTP date (RFC 9110).
fn millis(date: &str) -> Option<u64> {
    let date = DateTime::from_str(date, DateTimeFormat::HttpDate).ok()?;
    date.to_millis().ok().and_then(|ms| u64::try_from(ms).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_read_as_the_second_it_names_and_nothing_else_is_one() {
        assert_eq!(
            millis("Thu, 01 Jan 2026 00:00:07 GMT"),
            Some(1_767_225_607_000)
        );
        for other in [
            "",
            "now",
            "2026-01-01T00:00:07Z",
            "Thu, 01 Jan 1950 00:00:00 GMT",
        ] {
            assert_eq!(millis(other), None, "{other}");
        }
    }
}
