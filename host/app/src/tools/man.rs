//! `shardmill man`.

use std::path::Path;

use anyhow::Context;

use crate::cli::ManArgs;
use crate::output::print;

pub(crate) fn execute(args: &ManArgs) -> anyhow::Result<()> {
    write_pages(&args.out)
        .with_context(|| format!("cannot write manual pages to {}", args.out.display()))?;
    let page = args.out.join("shardmill.1");
    print(&format!(
        "manual pages are in {}; `man -l {}` shows the first",
        args.out.display(),
        page.display()
    ));
    Ok(())
}

fn write_pages(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    clap_mangen::generate_to(crate::cli::command(), folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_that_is_shown_has_a_page_with_its_options() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("man/man1");
        write_pages(&inner).unwrap();
        let command = crate::cli::command();
        let shown = command
            .get_subcommands()
            .filter(|command| !command.is_hide_set());
        for command in shown {
            let page =
                std::fs::read_to_string(inner.join(format!("shardmill-{}.1", command.get_name())))
                    .unwrap();
            for option in command.get_arguments().filter_map(clap::Arg::get_long) {
                let option = option.replace('-', "\\-");
                assert!(
                    page.contains(&option),
                    "{option} is not on the page of {}",
                    command.get_name()
                );
            }
        }
        let all = std::fs::read_to_string(inner.join("shardmill.1")).unwrap();
        assert!(
            all.contains("explain") && !all.contains("{options}"),
            "{all}"
        );
        assert!(!inner.join("shardmill-compile-component.1").exists());
    }
}
