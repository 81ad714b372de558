//! Where a host keeps what outlives it: compiled plugins and, beside them, the versions that worked
//! well and the record of its crashes.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use shardmill_core::hash::stable;

/// The value of `host.cache` for keeping nothing.
const OFF: &str = "off";
/// Characters of the configuration's name that the folder's name repeats, for people. File names
/// have at most 255 bytes.
const NAME_CHARS_MAX: usize = 40;

/// Where compiled plugins are kept and, beside them, what a host learned about its plugins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CacheSetting {
    /// Not set: a host asks [`crate::Config::cache_of_host`], other commands
    /// [`crate::Config::cache_of_commands`].
    Unset,
    /// Nowhere, and why.
    Nowhere(String),
    /// In this folder.
    At(PathBuf),
}

impl CacheSetting {
    /// What the key says in a file in `folder`.
    pub(super) fn of_key(said: Option<PathBuf>, folder: &Path) -> Self {
        match said {
            None => Self::Unset,
            Some(off) if off == Path::new(OFF) => Self::Nowhere(format!("host.cache is {OFF:?}")),
            Some(path) => Self::At(folder.join(path)),
        }
    }

    /// The folder; the error is why there is none.
    pub fn folder(&self) -> Result<&Path, &str> {
        match self {
            Self::At(folder) => Ok(folder),
            Self::Nowhere(why) => Err(why),
            Self::Unset => Err("host.cache is not set"),
        }
    }
}

/// The default folder for what outlives a host.
pub(super) fn of_system(
    file: &Path,
    plugins: &Path,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<PathBuf, String> {
    let state = state_folder(variable)?;
    Ok(state.join(own_name(file, plugins)).join("cache"))
}

/// The default folder for code that commands compile. Of all commands of a user: it is found by
/// what it was compiled from, and nothing is learned from it. No host has that name.
pub(super) fn of_commands(variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, String> {
    Ok(state_folder(variable)?.join("commands").join("cache"))
}

/// Below `$STATE_DIRECTORY`, which systemd sets, or where the XDG Base Directory Specification
/// says. It demands that relative paths are ignored.
fn state_folder(variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, String> {
    if let Some(of_service) = variable("STATE_DIRECTORY")
        .as_deref()
        .and_then(first_absolute)
    {
        return Ok(of_service);
    }
    if let Some(state) = variable("XDG_STATE_HOME")
        .as_deref()
        .and_then(first_absolute)
    {
        return Ok(state.join("shardmill"));
    }
    if let Some(home) = variable("HOME").as_deref().and_then(first_absolute) {
        return Ok(home.join(".local/state/shardmill"));
    }
    Err("host.cache is not set, and neither is STATE_DIRECTORY, XDG_STATE_HOME or HOME".to_owned())
}

/// The first of a list of folders, unless it is relative: a service may have several.
fn first_absolute(folders: &OsStr) -> Option<PathBuf> {
    let first = std::env::split_paths(folders).next()?;
    first.is_absolute().then_some(first)
}

/// Distinguishes two hosts of one user by what they are started with, since a version that worked
/// well for one may not work for the other. Links are not followed: those of a mounted ConfigMap
/// lead elsewhere after each change.
fn own_name(file: &Path, plugins: &Path) -> String {
    let hash = stable([whole(file), whole(plugins)].join(&0));
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || "-_.".contains(*c);
    let name: String = stem.chars().filter(is_plain).take(NAME_CHARS_MAX).collect();
    format!("{name}-{hash:016x}")
}

/// The absolute path in one spelling: `plugins/` is `plugins`.
fn whole(path: &Path) -> Vec<u8> {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let plain: PathBuf = whole.components().collect();
    plain.into_os_string().into_encoded_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    fn found(file: &str, plugins: &str, variables: &[(&str, &str)]) -> Result<PathBuf, String> {
        of_system(Path::new(file), Path::new(plugins), |name| {
            let (_, value) = variables.iter().find(|(set, _)| *set == name)?;
            Some(OsString::from(value))
        })
    }

    #[test]
    fn the_folder_is_the_services_or_else_the_users() {
        let all = [
            ("STATE_DIRECTORY", "/var/lib/a:/var/lib/b"),
            ("XDG_STATE_HOME", "/state"),
            ("HOME", "/home/me"),
        ];
        let of = |variables: &[(&str, &str)]| {
            let cache = found("/etc/one.toml", "/plugins", variables).unwrap();
            let state = cache.parent().unwrap().parent().unwrap();
            state.to_str().unwrap().to_owned()
        };
        assert_eq!(of(&all[..]), "/var/lib/a");
        assert_eq!(of(&all[1..]), "/state/shardmill");
        assert_eq!(of(&all[2..]), "/home/me/.local/state/shardmill");
        let relative = [("XDG_STATE_HOME", "state"), ("HOME", "/home/me")];
        assert_eq!(of(&relative), "/home/me/.local/state/shardmill");
        for none in [&[][..], &[("HOME", "")], &[("HOME", "home")]] {
            let why = found("/etc/one.toml", "/plugins", none).unwrap_err();
            assert!(why.contains("XDG_STATE_HOME or HOME"), "{why}");
        }
    }

    #[test]
    fn commands_of_one_user_share_a_folder_that_is_no_hosts() {
        let home = |name: &str| (name == "HOME").then(|| OsString::from("/home/me"));
        let cache = of_commands(home).unwrap();
        assert_eq!(
            cache,
            Path::new("/home/me/.local/state/shardmill/commands/cache")
        );
        let host = of_system(Path::new("/commands"), Path::new("/plugins"), home).unwrap();
        assert_ne!(host, cache);
        assert!(of_commands(|_| None).is_err());
    }

    #[test]
    fn hosts_that_are_started_with_other_files_keep_what_they_learn_apart() {
        let home = [("HOME", "/home/me")];
        let of = |file, plugins| {
            let cache = found(file, plugins, &home).unwrap();
            let name = cache.parent().unwrap().file_name().unwrap();
            name.to_str().unwrap().to_owned()
        };
        let one = of("/etc/orders.toml", "/plugins");
        assert!(one.starts_with("orders-"), "{one}");
        assert_eq!(one, of("/etc/./orders.toml", "/plugins/"));
        assert_ne!(one, of("/srv/orders.toml", "/plugins"));
        assert_ne!(one, of("/etc/orders.toml", "/others"));
        let long = of(&format!("/etc/{}\u{202e}", "x".repeat(400)), "/plugins");
        assert!(long.len() < 100 && long.is_ascii(), "{long}");
    }

    #[test]
    fn off_keeps_nothing_and_a_folder_of_that_name_has_a_path() {
        let said = |value: &str| {
            let text = format!("stream = \"s\"\n[host]\ncache = {value:?}");
            let config = Config::parse(&text, Path::new("/etc")).unwrap();
            config.cache_of_host(Path::new("/etc/one.toml"))
        };
        assert_eq!(said("off"), Err("host.cache is \"off\"".to_owned()));
        assert_eq!(said("./off"), Ok("/etc/./off".into()));
        assert_eq!(said("/cache"), Ok("/cache".into()));
        let empty = Config::parse("stream = \"s\"\n[host]\ncache = \"\"", Path::new("/etc"));
        let told = empty.unwrap_err();
        assert!(
            told.contains("host.cache") && told.contains("\"off\""),
            "the folder of the file would become the cache: {told}"
        );
    }
}
