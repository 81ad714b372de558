//! Where a host keeps what outlives it unless the operator says so: in its own folder, as long as
//! that can be used. And where other commands keep the code that they compile.

use std::path::{Path, PathBuf};

use shardmill_config::{CacheSetting, Config};
use shardmill_wasm::try_cache;

/// The folder for a host whose configuration was read from `file`. A folder that the operator named
/// is not tested here: a host that cannot use it does not start. A default folder must never
/// prevent a start.
pub fn own_cache(config: &Config, file: &Path) -> CacheSetting {
    if config.host.cache != CacheSetting::Unset {
        return config.host.cache.clone();
    }
    let tried = config
        .cache_of_host(file)
        .and_then(|cache| match try_cache(&cache) {
            Ok(()) => Ok(cache),
            Err(error) => Err(error.to_string()),
        });
    match tried {
        Ok(cache) => {
            tracing::info!(cache = %cache.display(), "host.cache is not set, using a folder of \
                this host's own");
            CacheSetting::At(cache)
        }
        Err(why) => {
            tracing::warn!(
                why,
                code = "no-cache",
                "each start compiles every plugin, no version is kept to fall back to, and a \
                    plugin that kills this host is not detected: set host.cache to a folder that \
                    this user can write to and that outlives the process, or to \"off\" if you \
                    want that"
            );
            CacheSetting::Nowhere(why)
        }
    }
}

/// Bytes that a default folder must have room for, or else commands keep nothing: a plugin in
/// JavaScript with its functions takes 50 MB, and what cannot be kept is refused.
const ROOM_BYTES: u64 = 256 << 20;

/// Where a command that is no host keeps the code that it compiles: only that, so that nothing is
/// learned about plugins from it. A default folder that cannot be used, or has no room, costs time,
/// and is no reason to fail or to warn.
pub fn cache_of_command(setting: &CacheSetting) -> Option<PathBuf> {
    match setting {
        CacheSetting::At(folder) => Some(folder.clone()),
        CacheSetting::Nowhere(_) => None,
        CacheSetting::Unset => {
            let own = Config::cache_of_commands().ok();
            own.filter(|cache| try_cache(cache).is_ok() && has_room(cache))
        }
    }
}

fn has_room(folder: &Path) -> bool {
    rustix::fs::statvfs(folder)
        .is_ok_and(|found| found.f_bavail.saturating_mul(found.f_frsize) >= ROOM_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(host: &str) -> Config {
        Config::parse(
            &format!("stream = \"s\"\n[host]\n{host}"),
            Path::new("/etc"),
        )
        .unwrap()
    }

    #[test]
    fn what_the_operator_says_is_taken_at_his_word() {
        let file = Path::new("/etc/shardmill.toml");
        let named = own_cache(&config("cache = \"/dev/null/cache\""), file);
        assert_eq!(named, CacheSetting::At("/dev/null/cache".into()));
        let off = own_cache(&config("cache = \"off\""), file);
        assert!(off.folder().unwrap_err().contains("off"));
        assert_eq!(cache_of_command(&off), None);
        assert_eq!(cache_of_command(&named), Some("/dev/null/cache".into()));
    }
}
