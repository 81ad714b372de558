//! The plugin's own configuration values, from its manifest or the host's configuration.

/// The value under `key`, if there is one.
pub fn get(key: &str) -> Option<String> {
    #[cfg(target_arch = "wasm32")]
    return crate::bindings::wasi::config::store::get(key)
        .ok()
        .flatten();
    #[cfg(not(target_arch = "wasm32"))]
    return crate::testing::configured(key);
}
