//! Which application belongs to which plugin: no two plugins share a table.

use std::collections::BTreeMap;

use shardmill_core::plugin::{PluginName, tables_of};

use super::plugin::PluginConfig;
use crate::problem::Problem;

/// The tables that sections of the configuration reserve for their plugins, whether these are in
/// the folder or not: another host may serve them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Applications {
    by_table: BTreeMap<String, PluginName>,
}

impl Applications {
    /// Takes in the plugin of a section: `base` is its application, `plugin` what follows from the
    /// section alone.
    pub(crate) fn add(&mut self, name: &PluginName, base: &str, plugin: &PluginConfig) {
        let of_streams = plugin
            .streams
            .iter()
            .map(|stream| stream.application.as_str());
        for table in of_streams.chain([base]).flat_map(tables_of) {
            self.by_table.entry(table).or_insert_with(|| name.clone());
        }
    }

    /// Refuses applications of `name` of which a section of another plugin names a table.
    pub(crate) fn refuse_anothers<'a>(
        &self,
        name: &PluginName,
        mut applications: impl Iterator<Item = &'a str>,
    ) -> Result<(), Problem> {
        let owner = |application: &str| {
            let mut owners = tables_of(application)
                .into_iter()
                .filter_map(|table| self.by_table.get(&table));
            owners.find(|owner| *owner != name)
        };
        let Some((application, owner)) = applications.find_map(|one| Some((one, owner(one)?)))
        else {
            return Ok(());
        };
        let message = format!(
            "{application:?} is what the host's configuration names for plugin {owner} under \
                [plugin.{owner}]: its leases would be taken; rename the file, or set another \
                application under [plugin.{name}]"
        );
        Err(Problem::new("application", message))
    }
}

/// An application that another plugin has too.
pub(crate) struct Shared {
    pub(crate) plugin: String,
    pub(crate) message: String,
}

/// Two plugins with a table in common would take each other's leases, and which of them got them
/// would be the faster one's luck.
pub(crate) fn shared_applications(plugins: &BTreeMap<String, PluginConfig>) -> Vec<Shared> {
    let mut owners: BTreeMap<String, &str> = BTreeMap::new();
    let mut problems = Vec::new();
    for (name, plugin) in plugins {
        for stream in &plugin.streams {
            let tables = tables_of(&stream.application);
            // Those of the plugin itself are held against each other where its streams are read.
            let mut others = tables
                .map(|table| owners.insert(table, name))
                .into_iter()
                .flatten();
            if let Some(other) = others.find(|other| other != name) {
                let message = format!(
                    "plugins {other} and {name} both have the application {}: name another \
                        `application` for one of them",
                    stream.application
                );
                problems.push(Shared {
                    plugin: name.clone(),
                    message,
                });
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::Config;

    use super::*;

    fn of(config: &str, plugin: &str) -> Result<PluginConfig, String> {
        let config = Config::parse(&format!("stream = \"orders\"\n{config}"), Path::new("."))?;
        config.of_plugin(&PluginName::new(plugin).unwrap(), None)
    }

    #[test]
    fn an_application_that_a_section_names_is_taken_by_no_file_of_that_name() {
        let flights = "[plugin.flights]\napplication = \"billing\"\n";
        let refused = of(flights, "billing").unwrap_err();
        let told = "plugin.billing.application: \"billing\" is what the host's configuration \
            names for plugin flights under [plugin.flights]";
        assert!(refused.contains(told), "{refused}");
        assert!(
            refused.contains("set another application under [plugin.billing]"),
            "{refused}"
        );
        assert_eq!(
            of(flights, "flights").unwrap().streams[0].application,
            "billing"
        );
        assert!(of(flights, "alerts").is_ok());
        let mended = format!("{flights}[plugin.billing]\napplication = \"billing.v2\"\n");
        assert_eq!(
            of(&mended, "billing").unwrap().streams[0].application,
            "billing.v2"
        );
        let several = "[plugin.flights]\napplication = \"billing\"\nstreams = [\"clicks\"]\n";
        assert!(
            of(several, "billing").is_err(),
            "one day it may read the stream of that table"
        );
    }

    #[test]
    fn a_name_that_is_a_table_of_another_application_is_refused_wherever_it_comes_in() {
        for (config, told) in [
            (
                "[plugin.totals-state]\n",
                "plugin.totals-state: \"totals-state\" cannot name a plugin: it ends in \"-state\"",
            ),
            (
                "[plugin.flights]\napplication = \"totals-coordinator\"\n",
                "plugin.flights.application: \"totals-coordinator\": it ends in \"-coordinator\", \
                    like a table of the application \"totals\"; choose another ending",
            ),
            (
                "[plugin.flights]\nstreams = [\"device-state\", \"device\"]\n",
                "plugin.flights.streams: the leases of device would be kept in table \
                    flights.device",
            ),
            (
                "[plugin.aaa]\napplication = \"shared\"\nstreams = [\"device\"]\n\
                 [plugin.bbb]\napplication = \"shared\"\nstreams = [\"device-state\"]\n",
                "plugins aaa and bbb both have the application shared.device-state",
            ),
        ] {
            let refused = of(config, "flights").unwrap_err();
            assert!(refused.contains(told), "{refused}");
        }
        let alone = of(
            "[plugin.flights]\nstreams = [\"device-state\"]\n",
            "flights",
        )
        .unwrap();
        assert_eq!(
            alone.streams[0].application, "flights.device-state",
            "nobody chose the name of a stream for this"
        );
    }
}
