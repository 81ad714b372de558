//! The body of a request to an HTTP endpoint: pieces of output as lines, or as an array.

use std::io::{self, Write};

use serde::Deserialize;
use serde::de::IgnoredAny;
use shardmill_core::ports::Origin;
use shardmill_core::stream::Emitted;

use super::LineFormat;
use super::line::{Size, write_base64};

/// How pieces are put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BodyFormat {
    /// One line a piece, as in a file.
    #[default]
    Ndjson,
    /// One JSON array. Data that is JSON is copied as it is, other text becomes a string, and the
    /// rest `{"base64": "..."}`.
    Json,
}

/// A body that grows up to a size.
pub(super) struct Body {
    format: BodyFormat,
    pieces: LineFormat,
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl BodyFormat {
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::Ndjson => "application/x-ndjson",
            Self::Json => "application/json",
        }
    }

    /// Writes one piece, with the separator that precedes it in the middle of a body.
    fn write(
        self,
        out: &mut impl Write,
        pieces: LineFormat,
        origin: &Origin,
        piece: &Emitted,
    ) -> io::Result<()> {
        if self == Self::Ndjson {
            return pieces.write(out, origin, piece);
        }
        out.write_all(b",")?;
        if pieces == LineFormat::Envelope {
            return pieces.write_unended(out, origin, piece);
        }
        match std::str::from_utf8(&piece.data) {
            // As text: otherwise, strings with invalid UTF-8 would be accepted as JSON.
            Ok(text) if serde_json::from_str::<IgnoredAny>(text).is_ok() => {
                out.write_all(text.as_bytes())
            }
            Ok(text) => Ok(serde_json::to_writer(out, text)?),
            Err(_) => write_base64(out, &piece.data),
        }
    }

    /// What `finish` adds.
    fn end_bytes(self) -> usize {
        match self {
            Self::Ndjson => 0,
            Self::Json => "]".len(),
        }
    }
}

impl Body {
    pub(super) fn new(format: BodyFormat, pieces: LineFormat, bytes_max: usize) -> Self {
        Self {
            format,
            pieces,
            bytes: Vec::new(),
            bytes_max,
        }
    }

    /// Adds a piece if it fits; otherwise says how large it is.
    pub(super) fn add(&mut self, origin: &Origin, piece: &Emitted) -> Result<(), usize> {
        let before = self.bytes.len();
        if piece.data.len() > self.bytes_max {
            // No format makes it smaller: it is measured and not made, since it may be as large as
            // a call may emit.
            let mut size = Size(0);
            // Counting cannot fail, nor can writing to a vector.
            let _ = self.format.write(&mut size, self.pieces, origin, piece);
            return Err(size.0);
        }
        let _ = self
            .format
            .write(&mut self.bytes, self.pieces, origin, piece);
        if self.format == BodyFormat::Json && before == 0 {
            self.bytes[0] = b'[';
        }
        let added = self.bytes.len() - before;
        if self.bytes.len() + self.format.end_bytes() > self.bytes_max {
            self.bytes.truncate(before);
            return Err(added);
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        if self.format == BodyFormat::Json {
            self.bytes.push(b']');
        }
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use shardmill_core::plugin::PluginName;
    use shardmill_core::stream::ShardId;

    use super::*;

    fn body(
        format: BodyFormat,
        pieces: LineFormat,
        data: &[&[u8]],
        bytes_max: usize,
    ) -> (String, Vec<usize>) {
        let origin = Origin {
            plugin: PluginName::new("alerts").unwrap(),
            shard: ShardId::new("shardId-0").unwrap(),
            through: None,
            trace: None,
        };
        let mut body = Body::new(format, pieces, bytes_max);
        let mut refused = Vec::new();
        for data in data {
            let piece = Emitted {
                destination: "out".into(),
                key: "k".into(),
                data: data.to_vec().into(),
            };
            refused.extend(body.add(&origin, &piece).err());
        }
        (String::from_utf8(body.finish()).unwrap(), refused)
    }

    #[test]
    fn lines_are_those_of_a_file() {
        let (text, refused) = body(
            BodyFormat::Ndjson,
            LineFormat::Data,
            &[b"{\"a\":1}", b"x\ny"],
            1_000,
        );
        assert_eq!(
            (text.as_str(), refused.len()),
            ("{\"a\":1}\n{\"base64\":\"eAp5\"}\n", 0)
        );
    }

    #[test]
    fn an_array_is_json_whatever_is_emitted() {
        let (text, _) = body(
            BodyFormat::Json,
            LineFormat::Data,
            &[b"{\"a\":\n1}", b"plain \"text\"", &[0xff], b"", b"\"\xff\""],
            1_000,
        );
        let array: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
        let expected = [
            serde_json::json!({ "a": 1 }),
            serde_json::json!("plain \"text\""),
            serde_json::json!({ "base64": "/w==" }),
            serde_json::json!(""),
            serde_json::json!({ "base64": "Iv8i" }),
        ];
        assert_eq!(array, expected);
        let (text, _) = body(BodyFormat::Json, LineFormat::Envelope, &[b"1", b"2"], 1_000);
        let array: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (array.len(), &array[1]["data"]),
            (2, &serde_json::json!("2"))
        );
    }

    #[test]
    fn a_body_never_grows_beyond_its_size_and_says_how_large_a_piece_is() {
        for format in [BodyFormat::Ndjson, BodyFormat::Json] {
            for bytes_max in 0..40 {
                let (text, refused) = body(
                    format,
                    LineFormat::Data,
                    &[b"12345678", b"1234567890123456"],
                    bytes_max,
                );
                assert!(
                    refused.len() == 2 || text.len() <= bytes_max,
                    "{format:?} {bytes_max} {text}"
                );
                assert!(!refused.is_empty() || text.len() >= 26);
                assert!(
                    refused.iter().all(|size| [9, 17].contains(size)),
                    "{refused:?}"
                );
            }
        }
    }
}
