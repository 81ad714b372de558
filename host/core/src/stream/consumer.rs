//! Fan-out consumers, to which subscriptions belong.

use std::fmt;
use std::sync::Arc;

use super::{ConsumerName, InvalidName};

/// Text that is not the ARN of a consumer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a consumer's ARN: it looks like \
        arn:aws:kinesis:REGION:ACCOUNT:stream/STREAM/consumer/NAME:TIME"
)]
pub struct InvalidConsumerArn {
    /// The text as given.
    pub text: String,
}

/// The ARN of a registered consumer. A consumer that is deregistered and registered again has
/// another one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ConsumerArn(Arc<str>);

/// Which consumer to subscribe with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FanOutConsumer {
    /// Registered by a host if it is missing.
    Named(ConsumerName),
    /// Registered by somebody else, and never by a host.
    Given(ConsumerArn),
}

impl ConsumerArn {
    /// Checks the shape (AWS limit: 2,048 characters).
    pub fn new(text: &str) -> Result<Self, InvalidConsumerArn> {
        let has_shape =
            text.starts_with("arn:") && text.len() <= 2048 && !text.contains(char::is_whitespace);
        let parts = text
            .split_once(":stream/")
            .and_then(|(_, rest)| rest.split_once("/consumer/"));
        match parts {
            Some((stream, consumer)) if has_shape && !stream.is_empty() && !consumer.is_empty() => {
                Ok(Self(text.into()))
            }
            Some(_) | None => Err(InvalidConsumerArn {
                text: text.to_owned(),
            }),
        }
    }

    /// The ARN as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of the stream that the consumer is registered with.
    pub fn stream_name(&self) -> &str {
        self.0
            .split_once(":stream/")
            .and_then(|(_, rest)| rest.split('/').next())
            .unwrap_or_default()
    }
}

impl fmt::Display for ConsumerArn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FanOutConsumer {
    /// A name, or an ARN.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.starts_with("arn:") {
            return ConsumerArn::new(text)
                .map(Self::Given)
                .map_err(|error| error.to_string());
        }
        ConsumerName::new(text)
            .map(Self::Named)
            .map_err(|error: InvalidName| error.to_string())
    }

    /// Whether records of the stream of that name can be had through it.
    ///
    /// # Errors
    ///
    /// If it is registered with another stream.
    pub fn check_stream(&self, stream: &str) -> Result<(), String> {
        match self {
            Self::Given(arn) if arn.stream_name() != stream => Err(format!(
                "{arn} is a consumer of stream {}, not of {stream}",
                arn.stream_name()
            )),
            Self::Given(_) | Self::Named(_) => Ok(()),
        }
    }
}

impl fmt::Display for FanOutConsumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => name.fmt(f),
            Self::Given(arn) => arn.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARN: &str =
        "arn:aws:kinesis:us-east-1:123456789012:stream/orders/consumer/billing:1548884200";

    #[test]
    fn a_consumer_is_given_by_name_or_by_arn() {
        assert_eq!(
            FanOutConsumer::parse(ARN).unwrap(),
            FanOutConsumer::Given(ConsumerArn::new(ARN).unwrap())
        );
        assert_eq!(ConsumerArn::new(ARN).unwrap().stream_name(), "orders");
        assert_eq!(ConsumerArn::new(ARN).unwrap().as_str(), ARN);
        assert!(matches!(
            FanOutConsumer::parse("billing"),
            Ok(FanOutConsumer::Named(_))
        ));
        for text in [ARN, "billing"] {
            assert_eq!(FanOutConsumer::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_neither_is_refused_with_the_shape_that_is_right() {
        for wrong in [
            "arn:aws:kinesis:us-east-1:1:stream/orders",
            "arn:aws:sqs:us-east-1:1:q",
            "arn: :stream/s/consumer/c",
        ] {
            let error = FanOutConsumer::parse(wrong).unwrap_err();
            assert!(error.contains("/consumer/NAME"), "{error}");
        }
        assert!(FanOutConsumer::parse("a b").is_err());
        assert!(FanOutConsumer::parse("").is_err());
    }
}
