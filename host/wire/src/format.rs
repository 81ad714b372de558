//! Which of the two formats.

use std::fmt;

/// A wire format of Kinesis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Text; data in base64.
    Json,
    /// Binary; data as it is.
    Cbor,
}

impl Format {
    /// The content type of a request, and of a reply.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/x-amz-json-1.1",
            Self::Cbor => "application/x-amz-cbor-1.1",
        }
    }

    /// What a body is written in, whatever was asked for: Kinesis answers some errors in JSON to
    /// those who speak CBOR. By its first byte, since every body is a map, and no JSON text begins
    /// like a map of CBOR.
    pub fn of(body: &[u8]) -> Self {
        match body.first() {
            Some(0xA0..=0xBF) => Self::Cbor,
            _ => Self::Json,
        }
    }
}

/// As it is configured.
impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Json => "json",
            Self::Cbor => "cbor",
        })
    }
}
