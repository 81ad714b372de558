//! The key `parallelism` of a plugin, and the most that a manifest may ask for.

use shardmill_core::pipeline::{FailurePolicy, Order, Parallelism};

use super::problem::{At, Problem};

/// The most that a manifest may ask for by default; inclusive. More than AWS Lambda's 10 for the
/// same purpose, and far fewer than the threads that calls run on, which all shards share.
const DEFAULT_CEILING: u32 = 16;

const KEY: &str = "parallelism";

/// The parallelism that the key sets, where records that fail are handled by `failure`.
pub(super) fn check(set: Option<u32>, failure: &FailurePolicy) -> Result<Parallelism, Problem> {
    let parallelism = of(set.unwrap_or(1))?;
    if parallelism.is_parallel() && failure.order == Order::Shard {
        let message = "several instances for a shard keep the order of keys only: set \
            failure.order = \"key\" as well, or remove this";
        return Err(Problem::new(KEY, message));
    }
    Ok(parallelism)
}

/// The ceiling that the key sets in the section `[ceilings]`.
pub(super) fn ceiling(set: Option<u32>) -> Result<Parallelism, Problem> {
    of(set.unwrap_or(DEFAULT_CEILING))
}

/// Refuses what a manifest asks for beyond the ceiling.
pub(super) fn refuse_beyond(asked: Option<u32>, ceiling: Parallelism) -> Result<(), Problem> {
    if asked.is_none_or(|asked| asked as usize <= ceiling.get()) {
        return Ok(());
    }
    let message = format!(
        "is more than this host allows a manifest, {ceiling}: ask for less, raise \
            ceilings.{KEY}, or set it in the host's section of the plugin"
    );
    Err(Problem::new(KEY, message))
}

fn of(instances: u32) -> Result<Parallelism, Problem> {
    let most = Parallelism::MAX;
    Parallelism::new(instances)
        .ok_or_else(|| {
            format!(
                "must be between 1 and {most}: each instance has its own memory, and a thread \
                    while it is called"
            )
        })
        .at(KEY)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use shardmill_core::plugin::PluginName;

    use crate::{Config, Manifest};

    const BY_KEY: &str = "[failure]\norder = \"key\"\n";

    /// The parallelism of plugin `abc` with this manifest, on a host with this configuration.
    fn of_abc(config: &str, manifest: &str) -> Result<usize, String> {
        let config = Config::parse(&format!("stream = \"s\"\n{config}"), Path::new("."))?;
        let folder = tempfile::tempdir().unwrap();
        let name = PluginName::new("abc").unwrap();
        let path = Manifest::path_in(folder.path(), &name);
        std::fs::write(&path, manifest).unwrap();
        let manifest = Manifest::read(&path).map_err(|error| error.to_string())?;
        let settings = config.of_plugin(&name, manifest.as_ref())?;
        Ok(settings.parallelism.get())
    }

    #[test]
    fn a_plugin_has_one_instance_for_a_shard_unless_it_says_otherwise() {
        assert_eq!(of_abc("", ""), Ok(1));
        assert_eq!(of_abc("", "parallelism = 1\n"), Ok(1), "in any order");
        let four = format!("parallelism = 4\n{BY_KEY}");
        assert_eq!(of_abc("", &four), Ok(4));
        assert_eq!(of_abc(BY_KEY, "parallelism = 4\n"), Ok(4));
        let own = format!(
            "[plugin.abc]\nparallelism = 40\n{}",
            BY_KEY.replace("fail", "plugin.abc.fail")
        );
        assert_eq!(of_abc(&own, &four), Ok(40), "the operator's word counts");
    }

    #[test]
    fn several_instances_need_the_order_of_keys_and_no_state() {
        let refused = of_abc("", "parallelism = 2\n").unwrap_err();
        assert!(
            refused.contains("set failure.order = \"key\" as well"),
            "{refused}"
        );
        let with_state = format!("parallelism = 2\n{BY_KEY}[grants]\nstate = true\n");
        let refused = of_abc("", &with_state).unwrap_err();
        assert!(
            refused.contains("grants.state: cannot be kept"),
            "{refused}"
        );
    }

    #[test]
    fn a_manifest_may_ask_for_as_many_as_the_ceiling_and_nobody_for_more_than_64() {
        let asks = |instances: u32| format!("parallelism = {instances}\n{BY_KEY}");
        assert_eq!(of_abc("", &asks(16)), Ok(16));
        let refused = of_abc("", &asks(17)).unwrap_err();
        assert!(refused.contains("raise ceilings.parallelism"), "{refused}");
        assert_eq!(of_abc("[ceilings]\nparallelism = 64\n", &asks(64)), Ok(64));
        for (config, manifest) in [
            ("", "parallelism = 0\n".to_owned()),
            ("[ceilings]\nparallelism = 65\n", String::new()),
            ("[plugin.abc]\nparallelism = 65\n", String::new()),
        ] {
            let refused = of_abc(config, &manifest).unwrap_err();
            assert!(refused.contains("must be between 1 and 64"), "{refused}");
        }
    }
}
