//! One piece of output as one line of NDJSON.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use shardmill_core::ports::Origin;
use shardmill_core::stream::Emitted;

/// How output is written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LineFormat {
    /// The data itself. What is not one line of UTF-8 is written as `{"base64": "..."}`, so that lines stay lines and
    /// nothing is lost.
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
    data_base64: Option<String>,
}

impl LineFormat {
    /// Appends `emitted` as one line to `lines`.
    pub(crate) fn append(self, lines: &mut Vec<u8>, origin: &Origin, emitted: &Emitted) {
        let text = std::str::from_utf8(&emitted.data).ok();
        match self {
            Self::Data => match text.filter(|text| !text.contains(['\n', '\r'])) {
                Some(text) => lines.extend_from_slice(text.as_bytes()),
                None => append_json(lines, &serde_json::json!({ "base64": STANDARD.encode(&emitted.data) })),
            },
            Self::Envelope => append_json(
                lines,
                &Envelope {
                    plugin: origin.plugin.as_str(),
                    shard: origin.shard.as_str(),
                    key: &emitted.key,
                    through: origin.through.as_ref().map(ToString::to_string),
                    data: text,
                    data_base64: text.is_none().then(|| STANDARD.encode(&emitted.data)),
                },
            ),
        }
        lines.push(b'\n');
    }
}

fn append_json(lines: &mut Vec<u8>, value: &impl Serialize) {
    // Writing strings to a vector cannot fail.
    if let Ok(json) = serde_json::to_vec(value) {
        lines.extend_from_slice(&json);
    }
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
        };
        let emitted = Emitted { destination: "out".into(), key: "k".into(), data: Bytes::from_static(data) };
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
        assert_eq!(line(LineFormat::Data, &[0xff, 0xfe]), "{\"base64\":\"//4=\"}\n");
    }

    #[test]
    fn an_envelope_names_where_output_came_from() {
        let expected = r#"{"plugin":"alerts","shard":"shardId-000000000000","key":"k","data":"x\ny"}"#;
        assert_eq!(line(LineFormat::Envelope, b"x\ny").trim_end(), expected);
        assert!(line(LineFormat::Envelope, &[0xff]).contains(r#""data-base64":"/w==""#));
    }
}
