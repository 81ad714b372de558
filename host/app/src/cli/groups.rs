//! The commands of `shardmill --help`, by purpose. clap has no groups of subcommands, so the page
//! is built here, out of the commands' own descriptions.

use std::fmt::Write;

use clap::Command;

/// Every command that is shown, but `help`.
const GROUPS: [(&str, &[&str]); 7] = [
    ("Write a plugin", &["dev", "new", "test", "bench", "check"]),
    (
        "Operate hosts",
        &[
            "run",
            "doctor",
            "status",
            "top",
            "leases",
            "explain",
            "debug",
            "plan",
            "plugins",
            "push",
            "consumers",
            "state",
            "replay",
            "iam",
            "cost",
        ],
    ),
    (
        "Change a running fleet",
        &[
            "deploy", "pause", "resume", "seek", "skip", "reset", "drain", "release", "reload",
            "shadow", "delete", "history",
        ],
    ),
    ("Back up and restore", &["backup", "restore"]),
    ("Migrate from another library", &["import", "export"]),
    ("Move records", &["put", "capture", "load"]),
    ("About shardmill", &["completions", "man", "version"]),
];

/// The commands that run the embedded stack.
const OF_THE_EMBEDDED_STACK: [&str; 2] = ["dev", "test"];

/// Whether the command exists, but not in this build.
pub(super) fn is_left_out(name: &str) -> bool {
    cfg!(not(feature = "local")) && OF_THE_EMBEDDED_STACK.contains(&name)
}

/// Columns of the longest name.
const NAME_COLUMNS: usize = 11;

/// Shows the commands in groups.
pub(super) fn grouped(command: Command) -> Command {
    let page = page(&command);
    command.help_template(page)
}

fn page(command: &Command) -> String {
    let styles = command.get_styles();
    let (heading, literal) = (styles.get_header(), styles.get_literal());
    let mut page = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (title, names) in GROUPS {
        let _ = writeln!(page, "\n{heading}{title}:{heading:#}");
        for name in names {
            // A lean build has not all of them.
            if let Some(about) = command.find_subcommand(name).and_then(Command::get_about) {
                let _ = writeln!(page, "  {literal}{name:NAME_COLUMNS$}{literal:#}  {about}");
            }
        }
    }
    let _ = write!(
        page,
        "\n{heading}Options:{heading:#}\n{{options}}{{after-help}}"
    );
    page
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory;

    use super::super::Cli;
    use super::*;

    /// Columns of a usual terminal.
    const LINE_COLUMNS: usize = 80;

    fn shown(command: &Command) -> impl Iterator<Item = &Command> {
        command
            .get_subcommands()
            .filter(|command| !command.is_hide_set())
    }

    #[test]
    fn every_command_is_in_one_group_and_no_other_name_is() {
        let command = Cli::command();
        let grouped: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| names.iter().copied())
            .collect();
        let names: BTreeSet<&str> = shown(&command).map(Command::get_name).collect();
        let mut expected: BTreeSet<&str> = grouped.iter().copied().collect();
        assert_eq!(grouped.len(), expected.len(), "a command is in two groups");
        expected.retain(|name| !is_left_out(name));
        assert_eq!(names, expected);
    }

    #[test]
    fn the_page_shows_each_command_with_its_description_in_one_line() {
        let command = Cli::command();
        let page = super::super::command().render_help().to_string();
        for shown in shown(&command) {
            let (name, about) = (shown.get_name(), shown.get_about().unwrap().to_string());
            let line = format!("  {name:NAME_COLUMNS$}  {about}");
            assert!(line.len() <= LINE_COLUMNS, "too long for a line: {line}");
            assert!(
                page.lines().any(|found| found == line),
                "{line:?} is not in {page}"
            );
            assert!(
                !about.contains(['{', '}']),
                "clap reads braces on this page: {about}"
            );
        }
        assert!(
            page.contains("--log-format") && page.contains("Operate hosts:"),
            "{page}"
        );
        assert!(!page.contains("compile-component"), "{page}");
    }

    #[test]
    fn definitions_are_sound() {
        super::super::command().debug_assert();
    }

    const PAGE: &str = include_str!("../../../../docs/commands.md");

    /// The cells of each row of the table with that first line.
    fn rows(head: &str) -> Vec<Vec<&'static str>> {
        let table = PAGE.lines().skip_while(|line| !line.starts_with(head));
        let rows = table.skip(2).take_while(|line| line.starts_with('|'));
        let cells = |row: &'static str| row.split('|').skip(1).map(str::trim).collect();
        rows.map(cells).collect()
    }

    /// The names in a cell, such as "`leases`, `plugins`", or "[`new`](#new)".
    fn names(cell: &'static str) -> impl Iterator<Item = &'static str> {
        cell.split('`').skip(1).step_by(2)
    }

    #[test]
    fn the_page_of_commands_lists_each_command_and_no_other() {
        let listed = rows("| Command | Does");
        let listed: BTreeSet<&str> = listed.iter().flat_map(|row| names(row[0])).collect();
        let expected: BTreeSet<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| names.iter().copied())
            .collect();
        assert_eq!(listed, expected);
    }

    #[test]
    fn the_page_of_commands_says_which_of_the_shared_options_each_command_has() {
        let cli = Cli::command();
        let has = |command: &Command, option: &str| {
            command
                .get_arguments()
                .any(|argument| argument.get_long() == Some(option))
        };
        let mut seen = 0;
        for row in rows("| Command | `--config`") {
            for name in names(row[0]) {
                let Some(command) = cli.find_subcommand(name) else {
                    continue;
                };
                seen += 1;
                let options = ["config", "endpoint", "json", "watch-for"];
                for (option, cell) in options.into_iter().zip(&row[1..]) {
                    let is_said = match option {
                        "watch-for" => !cell.is_empty(),
                        _ => *cell == "yes" || cell.starts_with("with "),
                    };
                    assert_eq!(has(command, option), is_said, "{name} --{option}: {cell:?}");
                }
            }
        }
        assert_eq!(seen, shown(&cli).count(), "each command is in the table");
    }
}
