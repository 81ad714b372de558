//! `shardmill new`.

use std::path::PathBuf;

use crate::author::scaffold::{Project, ProjectName};
use crate::cli::NewArgs;
use crate::output::print;

pub(crate) fn execute(args: &NewArgs) -> anyhow::Result<()> {
    let project = Project {
        name: ProjectName::new(&args.name)?,
        language: args.lang,
    };
    let folder = args.at.clone().unwrap_or_else(|| PathBuf::from(&args.name));
    project.write(&folder)?;
    let folder = folder.display();
    print(&format!(
        "{folder}: a processor in {}; its README.md says how to build and test it",
        args.lang
    ));
    Ok(())
}
