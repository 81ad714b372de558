//! Which stream: its name, or its ARN where it may be another account's.

use std::fmt;
use std::sync::Arc;

use super::StreamName;
use super::region::is_word;

/// A stream as configured. With an ARN, every call that takes one is given it, which is how a
/// stream of another account is read (Kinesis API reference: "Sharing data streams"); with a name
/// it is the caller's own.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamRef {
    name: StreamName,
    arn: Option<StreamArn>,
}

/// `arn:PARTITION:kinesis:REGION:ACCOUNT:stream/NAME`, taken apart.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct StreamArn {
    text: Arc<str>,
    region: Arc<str>,
    account: Arc<str>,
}

/// Text that names no stream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} names no stream: use its name (1 to 128 letters, digits, '_', '.' or '-') or its ARN \
     (arn:aws:kinesis:REGION:ACCOUNT:stream/NAME)"
)]
pub struct InvalidStreamRef {
    text: String,
}

impl StreamRef {
    /// Takes a name or an ARN.
    pub fn parse(text: &str) -> Result<Self, InvalidStreamRef> {
        /// Much longer than any; for errors that can be read.
        const SHOWN_MAX: usize = 200;
        let parsed = if text.starts_with("arn:") {
            Self::parse_arn(text)
        } else {
            StreamName::new(text)
                .ok()
                .map(|name| Self { name, arn: None })
        };
        parsed.ok_or_else(|| InvalidStreamRef {
            text: text.chars().take(SHOWN_MAX).collect(),
        })
    }

    fn parse_arn(text: &str) -> Option<Self> {
        /// Digits of an AWS account id.
        const ACCOUNT_DIGITS: usize = 12;
        let parts: Vec<&str> = text.split(':').collect();
        let ["arn", partition, "kinesis", region, account, resource] = parts[..] else {
            return None;
        };
        let is_account =
            account.len() == ACCOUNT_DIGITS && account.bytes().all(|b| b.is_ascii_digit());
        if !is_word(partition) || !is_word(region) || !is_account {
            return None;
        }
        let name = StreamName::new(resource.strip_prefix("stream/")?).ok()?;
        Some(Self {
            name,
            arn: Some(StreamArn {
                text: text.into(),
                region: region.into(),
                account: account.into(),
            }),
        })
    }

    /// The stream's name, also where it was given by ARN.
    pub fn name(&self) -> &StreamName {
        &self.name
    }

    /// Its ARN, if it was given by one.
    pub fn arn(&self) -> Option<&str> {
        self.arn.as_ref().map(|arn| &*arn.text)
    }

    /// The region in its ARN.
    pub fn region(&self) -> Option<&str> {
        self.arn.as_ref().map(|arn| &*arn.region)
    }

    /// The twelve digits of the account in its ARN.
    pub fn account(&self) -> Option<&str> {
        self.arn.as_ref().map(|arn| &*arn.account)
    }
}

impl From<StreamName> for StreamRef {
    fn from(name: StreamName) -> Self {
        Self { name, arn: None }
    }
}

impl From<&StreamName> for StreamRef {
    fn from(name: &StreamName) -> Self {
        name.clone().into()
    }
}

impl From<&StreamRef> for StreamRef {
    fn from(stream: &StreamRef) -> Self {
        stream.clone()
    }
}

impl fmt::Display for StreamRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.arn().unwrap_or(self.name.as_str()))
    }
}

impl fmt::Debug for StreamRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_and_an_arn_name_a_stream_and_show_as_they_were_given() {
        let own = StreamRef::parse("orders").unwrap();
        assert_eq!(
            (own.name().as_str(), own.arn(), own.account()),
            ("orders", None, None)
        );
        assert_eq!(own.to_string(), "orders");
        let arn = "arn:aws-cn:kinesis:cn-north-1:123456789012:stream/orders";
        let other = StreamRef::parse(arn).unwrap();
        assert_eq!((other.name().as_str(), other.arn()), ("orders", Some(arn)));
        assert_eq!(
            (other.region(), other.account()),
            (Some("cn-north-1"), Some("123456789012"))
        );
        assert_eq!(other.to_string(), arn);
        assert_ne!(
            own, other,
            "the same name in another account is another stream"
        );
    }

    #[test]
    fn what_is_neither_is_refused() {
        for text in [
            "",
            "two words",
            "arn:aws:kinesis:eu-west-1:123456789012:stream/",
            "arn:aws:kinesis:eu-west-1:12345:stream/orders",
            "arn:aws:kinesis::123456789012:stream/orders",
            "arn:aws:dynamodb:eu-west-1:123456789012:table/orders",
            "arn:aws:kinesis:eu-west-1:123456789012:stream/orders/consumer/c:1",
        ] {
            let problem = StreamRef::parse(text).unwrap_err().to_string();
            assert!(problem.contains("its ARN"), "{problem}");
        }
    }
}
