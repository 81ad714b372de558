//! An artifact's list of layers, as registries store it (OCI image specification).

use serde::{Deserialize, Serialize};
use shardmill_core::artifact::{CONFIG_TYPE, INDEX_TYPES, Layer, MANIFEST_TYPES, Sha256};

use crate::pull_error::PullError;

/// What it is called in errors.
pub(crate) const MANIFEST: &str = "the artifact's manifest";

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Read {
    schema_version: u32,
    media_type: Option<String>,
    manifests: Option<serde_json::Value>,
    #[serde(default)]
    layers: Vec<Descriptor>,
}

/// A layer, or the configuration, by its digest.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    media_type: String,
    digest: String,
    size: u64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    schema_version: u32,
    media_type: &'static str,
    artifact_type: &'static str,
    config: Descriptor,
    layers: Vec<Descriptor>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ConfigOfComponent {
    created: &'static str,
    architecture: &'static str,
    os: &'static str,
    layer_digests: Vec<String>,
}

/// The layers in a manifest's text.
pub(crate) fn layers_of(bytes: &[u8]) -> Result<Vec<Layer>, PullError> {
    let malformed = |why: String| PullError::Malformed {
        what: MANIFEST.to_owned(),
        why,
    };
    let read: Read = serde_json::from_slice(bytes).map_err(|error| malformed(error.to_string()))?;
    let is_index = read.manifests.is_some()
        || read
            .media_type
            .as_deref()
            .is_some_and(|media_type| INDEX_TYPES.contains(&media_type));
    if is_index {
        return Err(malformed(
            "it is a list of images for several kinds of machines, and no plugin: name the digest of \
                one of them, or use `shardmill push`"
                .to_owned(),
        ));
    }
    if read.schema_version != 2 {
        let version = read.schema_version;
        return Err(malformed(format!("it has the version {version}, not 2")));
    }
    let layer = |layer: Descriptor| {
        let digest = Sha256::parse(&layer.digest)
            .ok_or_else(|| malformed("a layer's digest is no SHA-256".to_owned()))?;
        Ok(Layer {
            media_type: layer.media_type,
            digest,
            size: layer.size,
        })
    };
    read.layers.into_iter().map(layer).collect()
}

/// The configuration and the manifest of a plugin. The same files always make the same bytes, so
/// that to push them again changes nothing.
pub(crate) fn written(layers: &[Layer]) -> Result<(Vec<u8>, Vec<u8>), PullError> {
    let fault = |error: serde_json::Error| PullError::Unfit(error.to_string());
    let config = ConfigOfComponent {
        // Tools for WebAssembly ask for a time. The true one would make each push another artifact.
        created: "1970-01-01T00:00:00Z",
        architecture: "wasm",
        os: "wasip2",
        layer_digests: layers
            .iter()
            .map(|layer| layer.digest.to_string())
            .collect(),
    };
    let config = serde_json::to_vec(&config).map_err(fault)?;
    let descriptor = |layer: &Layer| Descriptor {
        media_type: layer.media_type.clone(),
        digest: layer.digest.to_string(),
        size: layer.size,
    };
    let manifest = Written {
        schema_version: 2,
        media_type: MANIFEST_TYPES[0],
        artifact_type: CONFIG_TYPE,
        config: Descriptor {
            media_type: CONFIG_TYPE.to_owned(),
            digest: crate::answer::digest_of(&config).to_string(),
            size: config.len() as u64,
        },
        layers: layers.iter().map(descriptor).collect(),
    };
    let manifest = serde_json::to_vec(&manifest).map_err(fault)?;
    Ok((config, manifest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back_and_is_the_same_each_time() {
        let layers = [Layer {
            media_type: "application/wasm".to_owned(),
            digest: Sha256::from_hex(&"c".repeat(64)).unwrap(),
            size: 7,
        }];
        let (config, manifest) = written(&layers).unwrap();
        assert_eq!(layers_of(&manifest).unwrap(), layers);
        assert_eq!(written(&layers).unwrap(), (config, manifest));
    }

    #[test]
    fn what_is_no_list_of_layers_is_refused_for_what_it_is() {
        let index = format!("{{\"schemaVersion\":2,\"mediaType\":{:?}}}", INDEX_TYPES[0]);
        for (text, why) in [
            (index.as_str(), "several kinds of machines"),
            ("{\"schemaVersion\":2,\"manifests\":[]}", "several kinds"),
            ("{\"schemaVersion\":1}", "the version 1, not 2"),
            ("<html>", "the artifact's manifest cannot be read"),
            (
                "{\"schemaVersion\":2,\"layers\":[{\"mediaType\":\"a\",\"digest\":\"md5:0\",\"size\":1}]}",
                "no SHA-256",
            ),
        ] {
            let error = layers_of(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
