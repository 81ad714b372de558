//! The plugin's own configuration values, as the host's configuration gives them.

/// The value under `key`, if there is one.
pub fn get(key: &str) -> Option<String> {
    #[cfg(target_arch = "wasm32")]
    return crate::bindings::wasi::config::store::get(key).ok().flatten();
    #[cfg(not(target_arch = "wasm32"))]
    return crate::testing::configured(key);
}
