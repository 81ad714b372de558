//! Which format to speak, and what earlier calls showed about it.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use shardmill_wire::Format;

use crate::metrics;

/// Which wire format the operator wants to speak with Kinesis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WireSetting {
    /// CBOR until it is refused, then JSON.
    #[default]
    Auto,
    /// CBOR alone.
    Cbor,
    /// JSON alone.
    Json,
}

/// The format for one Kinesis endpoint. Clones share what they learn.
#[derive(Debug, Clone, Default)]
pub struct Wire {
    learned: Arc<Learned>,
}

#[derive(Debug, Default)]
struct Learned {
    setting: WireSetting,
    /// Why CBOR was given up. Kept until the process ends: a service that does not know a format
    /// seldom learns it, and JSON costs time but loses nothing.
    refusal: OnceLock<String>,
    /// Whether it was logged that the SDK had to decode a reply.
    has_told: AtomicBool,
}

impl Wire {
    /// Speaks as `setting` says.
    pub fn new(setting: WireSetting) -> Self {
        Self {
            learned: Arc::new(Learned {
                setting,
                ..Learned::default()
            }),
        }
    }

    /// The format of the next request.
    pub fn format(&self) -> Format {
        match self.learned.setting {
            WireSetting::Json => Format::Json,
            WireSetting::Auto if self.learned.refusal.get().is_some() => Format::Json,
            WireSetting::Auto | WireSetting::Cbor => Format::Cbor,
        }
    }

    /// Whether a call that was made in `format` and failed is worth one more try: CBOR was refused
    /// since, and the other format is spoken now.
    pub(in crate::kinesis) fn has_left(&self, format: Format) -> bool {
        self.format() != format
    }

    /// Records that the endpoint does not understand CBOR.
    pub(super) fn refused(&self, why: impl fmt::Display) {
        if self.learned.setting == WireSetting::Auto
            && self.learned.refusal.set(why.to_string()).is_ok()
        {
            tracing::info!(reason = %why, "kinesis refused CBOR: speaking JSON from now on");
        }
    }

    /// Records that a reply in JSON was left to the SDK.
    pub(super) fn left_to_sdk(&self, why: impl fmt::Display) {
        ::metrics::counter!(metrics::WIRE_FALLBACKS).increment(1);
        if !self.learned.has_told.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                reason = %why,
                code = "reply-unexpected",
                "unexpected reply from kinesis, decoding it with the AWS SDK; logged once, counted \
                    always"
            );
        }
    }
}

/// The format as text for people, with the reason if it is not CBOR.
impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.format())?;
        match self.learned.refusal.get() {
            Some(why) => write!(f, ", since CBOR was refused: {why}"),
            None => Ok(()),
        }
    }
}
