//! One piece of output as one line of NDJSON.

use std::io::{self, Write};

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize, Serializer};
use shardmill_core::ports::Origin;
use shardmill_core::stream::Emitted;

/// How output is written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LineFormat {
    /// The data itself. What is not one line of UTF-8 is written as `{"base64": "..."}`, so that
    /// lines stay lines and nothing is lost.
    #[default]
    Data,
    /// A JSON object with plugin, shard, key and data (or `data-base64`).
    Envelope,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Envelope<'a> {
    plugin: &'a str,
    shard: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    key: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    through: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_base64: Option<Base64<'a>>,
}

#[derive(Serialize)]
struct Encoded<'a> {
    base64: Base64<'a>,
}

/// Bytes that are encoded while they are written.
struct Base64<'a>(&'a [u8]);

impl Serialize for Base64<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Base64Display::new(self.0, &STANDARD))
    }
}

/// How much was written, and nothing of it.
pub(super) struct Size(pub(super) usize);

impl Write for Size {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl LineFormat {
    /// Appends `emitted` as one line to `lines`.
    pub fn append(self, lines: &mut Vec<u8>, origin: &Origin, emitted: &Emitted) {
        // Writing to a vector cannot fail.
        let _ = self.write(lines, origin, emitted);
    }

    /// Writes `emitted` as one line, bit by bit: a line may be six times as large as its data.
    pub(crate) fn write(
        self,
        out: &mut impl Write,
        origin: &Origin,
        emitted: &Emitted,
    ) -> io::Result<()> {
        self.write_unended(out, origin, emitted)?;
        out.write_all(b"\n")
    }

    /// The same without the line's end.
    pub(super) fn write_unended(
        self,
        out: &mut impl Write,
        origin: &Origin,
        emitted: &Emitted,
    ) -> io::Result<()> {
        let text = std::str::from_utf8(&emitted.data).ok();
        match self {
            Self::Data => match text.filter(|text| !text.contains(['\n', '\r'])) {
                Some(text) => out.write_all(text.as_bytes()),
                None => write_base64(out, &emitted.data),
            },
            Self::Envelope => {
                let envelope = Envelope {
                    plugin: origin.plugin.as_str(),
                    shard: origin.shard.as_str(),
                    key: &emitted.key,
                    through: origin.through.as_ref().map(ToString::to_string),
                    data: text,
                    data_base64: text.is_none().then_some(Base64(&emitted.data)),
                };
                Ok(serde_json::to_writer(out, &envelope)?)
            }
        }
    }
}

/// As `{"base64": "..."}`.
pub(super) fn write_base64(out: &mut impl Write, data: &[u8]) -> io::Result<()> {
    Ok(serde_json::to_writer(
        out,
        &Encoded {
            base64: Base64(data),
        },
    )?)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use shardmill_core::plugin::PluginName;
    use shardmill_core::stream::ShardId;

    use super::*;

    fn line(format: LineFormat, data: &'static [u8]) -> String {
        let origin = Origin {
            plugin: PluginName::new("alerts").unwrap(),
            shard: ShardId::new("shardId-000000000000").unwrap(),
            through: None,
            trace: None,
        };
        let emitted = Emitted {
            destination: "out".into(),
            key: "k".into(),
            data: Bytes::from_static(data),
        };
        let mut lines = Vec::new();
        format.append(&mut lines, &origin, &emitted);
        String::from_utf8(lines).unwrap()
    }

    #[test]
    fn a_line_of_text_is_written_as_it_is() {
        assert_eq!(line(LineFormat::Data, br#"{"a":1}"#), "{\"a\":1}\n");
        assert_eq!(line(LineFormat::Data, b""), "\n");
    }

    #[test]
    fn what_is_not_one_line_of_text_is_encoded_and_not_lost() {
        assert_eq!(line(LineFormat::Data, b"a\nb"), "{\"base64\":\"YQpi\"}\n");
        assert_eq!(
            line(LineFormat::Data, &[0xff, 0xfe]),
            "{\"base64\":\"//4=\"}\n"
        );
    }

    /// Takes some bytes, and then no more.
    struct Full {
        offered: usize,
        room: usize,
    }

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.offered += bytes.len();
            if self.offered > self.room {
                Err(io::ErrorKind::StorageFull.into())
            } else {
                Ok(bytes.len())
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_that_is_far_larger_than_its_data_is_never_held_whole() {
        let plugin = PluginName::new("alerts").unwrap();
        let origin = Origin {
            plugin,
            shard: ShardId::new("shardId-0").unwrap(),
            through: None,
            trace: None,
        };
        for (format, byte) in [
            (LineFormat::Envelope, 1),
            (LineFormat::Envelope, 0xff),
            (LineFormat::Data, 0xff),
        ] {
            let data = Bytes::from(vec![byte; 1 << 20]);
            let piece = Emitted {
                destination: "out".into(),
                key: "k".into(),
                data,
            };
            let mut full = Full {
                offered: 0,
                room: 1_000,
            };
            let mut out = io::BufWriter::with_capacity(100, &mut full);
            assert!(format.write(&mut out, &origin, &piece).is_err());
            drop(out.into_parts());
            assert!(
                full.offered < 3_000,
                "{} bytes were made before the first were written",
                full.offered
            );
        }
    }

    #[test]
    fn an_envelope_names_where_output_came_from() {
        let expected =
            r#"{"plugin":"alerts","shard":"shardId-000000000000","key":"k","data":"x\ny"}"#;
        assert_eq!(line(LineFormat::Envelope, b"x\ny").trim_end(), expected);
        assert!(line(LineFormat::Envelope, &[0xff]).contains(r#""data-base64":"/w==""#));
    }
}
