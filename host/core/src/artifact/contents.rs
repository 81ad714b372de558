use super::reference::Sha256;

/// The layer that is the component, as every tool for WebAssembly in registries has it (CNCF).
pub const COMPONENT_TYPE: &str = "application/wasm";
/// The configuration of such an artifact (CNCF).
pub const CONFIG_TYPE: &str = "application/vnd.wasm.config.v0+json";
/// A layer that is the plugin's manifest, `NAME.toml`.
pub const SETTINGS_TYPE: &str = "application/vnd.shardmill.manifest.v1+toml";
/// A layer that is the component's signature, `NAME.wasm.sig`.
pub const SIGNATURE_TYPE: &str = "application/vnd.shardmill.signature.v1";
/// What the list of layers is called by registries: now, and by older ones.
pub const MANIFEST_TYPES: [&str; 2] = [
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
];
/// What a list of several artifacts is called, one for each kind of machine.
pub const INDEX_TYPES: [&str; 2] = [
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
];

/// A part of an artifact, as its list of layers describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// What it says it is.
    pub media_type: String,
    /// The SHA-256 of its bytes.
    pub digest: Sha256,
    /// How many bytes it has.
    pub size: u64,
}

/// The most bytes that each file of a plugin may have.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// Of the component: `host.plugin-bytes-max`.
    pub component: u64,
    /// Of the manifest, which a host reads no further.
    pub settings: u64,
    /// Of the signature, in any form.
    pub signature: u64,
}

/// The files of a plugin in an artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contents {
    /// `NAME.wasm`. Its digest is the version.
    pub component: Layer,
    /// `NAME.toml`, if the artifact has one.
    pub settings: Option<Layer>,
    /// `NAME.wasm.sig`, if the artifact has one.
    pub signature: Option<Layer>,
}

/// Why an artifact is not a plugin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAPlugin {
    /// No layer is a component.
    #[error(
        "it is no plugin: none of its layers is {COMPONENT_TYPE}{}; `shardmill push` makes one that \
            has it",
        found(.types)
    )]
    NoComponent {
        /// What its layers are.
        types: Vec<String>,
    },
    /// More than one layer is of a kind that a plugin has once.
    #[error("it is no plugin: it has several layers of the type {media_type}, and may have one")]
    Several {
        /// The type that is there too often.
        media_type: &'static str,
    },
    /// A layer is larger than such a file may be.
    #[error(
        "its layer {media_type} has {size} bytes, more than the {limit} allowed{}",
        mend(.media_type)
    )]
    TooBig {
        /// The type of the layer.
        media_type: &'static str,
        /// How many bytes it says it has.
        size: u64,
        /// How many it may have.
        limit: u64,
    },
}

/// Which layers are a plugin's files. Layers of other types are left alone.
pub fn contents_of(layers: &[Layer], sizes: Sizes) -> Result<Contents, NotAPlugin> {
    let Some(component) = only(layers, COMPONENT_TYPE, sizes.component)? else {
        let types = layers.iter().map(|layer| layer.media_type.clone());
        return Err(NotAPlugin::NoComponent {
            types: types.collect(),
        });
    };
    Ok(Contents {
        component,
        settings: only(layers, SETTINGS_TYPE, sizes.settings)?,
        signature: only(layers, SIGNATURE_TYPE, sizes.signature)?,
    })
}

fn only(
    layers: &[Layer],
    media_type: &'static str,
    limit: u64,
) -> Result<Option<Layer>, NotAPlugin> {
    let mut found = layers.iter().filter(|layer| layer.media_type == media_type);
    let (first, second) = (found.next(), found.next());
    if second.is_some() {
        return Err(NotAPlugin::Several { media_type });
    }
    match first {
        Some(layer) if layer.size > limit => Err(NotAPlugin::TooBig {
            media_type,
            size: layer.size,
            limit,
        }),
        found => Ok(found.cloned()),
    }
}

fn mend(media_type: &str) -> &'static str {
    if media_type == COMPONENT_TYPE {
        "; make it smaller, or raise host.plugin-bytes-max"
    } else {
        ""
    }
}

/// The types of layers, a few of them: a container's image has many of one type.
fn found(types: &[String]) -> String {
    const SHOWN_MAX: usize = 3;
    let mut distinct: Vec<&str> = types.iter().map(String::as_str).collect();
    distinct.dedup();
    if distinct.is_empty() {
        return String::new();
    }
    distinct.truncate(SHOWN_MAX);
    format!(", but {}", distinct.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: Sizes = Sizes {
        component: 100,
        settings: 10,
        signature: 5,
    };

    fn layer(media_type: &str, size: u64) -> Layer {
        Layer {
            media_type: media_type.to_owned(),
            digest: Sha256::from_hex(&"a".repeat(64)).unwrap(),
            size,
        }
    }

    #[test]
    fn a_plugin_has_one_component_and_maybe_a_manifest_and_a_signature() {
        let (component, settings, signature) = (
            layer(COMPONENT_TYPE, 100),
            layer(SETTINGS_TYPE, 10),
            layer(SIGNATURE_TYPE, 5),
        );
        let other = layer("text/plain", 1_000);
        let found = contents_of(std::slice::from_ref(&component), SIZES).unwrap();
        assert_eq!((found.settings, found.signature), (None, None));
        let all = [
            other,
            signature.clone(),
            component.clone(),
            settings.clone(),
        ];
        let expected = Contents {
            component,
            settings: Some(settings),
            signature: Some(signature),
        };
        assert_eq!(contents_of(&all, SIZES), Ok(expected));
    }

    #[test]
    fn what_is_no_plugin_is_refused_before_anything_is_fetched() {
        let image = layer("application/vnd.oci.image.layer.v1.tar+gzip", 1);
        let refused = contents_of(&[image.clone(), image], SIZES).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "it is no plugin: none of its layers is application/wasm, but \
                application/vnd.oci.image.layer.v1.tar+gzip; `shardmill push` makes one that has it"
        );
        let component = layer(COMPONENT_TYPE, 1);
        let twice = [component.clone(), component.clone()];
        assert!(matches!(
            contents_of(&twice, SIZES),
            Err(NotAPlugin::Several { .. })
        ));
        for (layers, mends) in [
            (vec![layer(COMPONENT_TYPE, 101)], true),
            (vec![component.clone(), layer(SETTINGS_TYPE, 11)], false),
            (vec![component, layer(SIGNATURE_TYPE, 6)], false),
        ] {
            let refused = contents_of(&layers, SIZES).unwrap_err().to_string();
            assert!(refused.contains("more than the"), "{refused}");
            assert_eq!(
                refused.contains("host.plugin-bytes-max"),
                mends,
                "{refused}"
            );
        }
    }
}
