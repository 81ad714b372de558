//! `shardmill completions`.

use clap::Command;
use clap_complete::{Shell, generate};

use crate::output::print_bytes;

pub(crate) fn execute(shell: Shell) {
    print_bytes(&script(shell));
}

fn script(shell: Shell) -> Vec<u8> {
    let mut command = shown(&crate::cli::command());
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    generate(shell, &mut command, name, &mut script);
    script
}

/// The same without hidden commands, which clap's scripts would offer.
fn shown(command: &Command) -> Command {
    let commands = command
        .get_subcommands()
        .filter(|command| !command.is_hide_set());
    Command::new("shardmill")
        .version(env!("CARGO_PKG_VERSION"))
        .args(command.get_arguments().cloned())
        .subcommands(commands.cloned())
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn the_script_of_each_shell_names_commands_and_options() {
        for shell in Shell::value_variants() {
            let script = String::from_utf8(script(*shell)).unwrap();
            for word in ["explain", "replay", "watch-for", "kinesis-endpoint"] {
                assert!(
                    script.contains(word),
                    "{word} is not in the script for {shell}"
                );
            }
            assert!(
                !script.contains("compile-component"),
                "a hidden command is in the script for {shell}"
            );
        }
    }
}
