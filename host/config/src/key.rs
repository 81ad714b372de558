//! Whole paths of keys, such as `plugin.orders.batch.records`.

/// The first name in `key` and what follows it. The name is the longest of `names` that fits, since
/// names of plugins and sinks may contain dots.
pub(super) fn split_first<'n, 'k>(
    key: &'k str,
    names: impl Iterator<Item = &'n str>,
) -> Option<(&'n str, &'k str)> {
    let fits = |name: &&str| {
        key.strip_prefix(name)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let name = names.filter(fits).max_by_key(|name| name.len())?;
    Some((name, key[name.len()..].trim_start_matches('.')))
}

/// The last name in `key`.
pub(super) fn last_name(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}
