//! A first project in a language: templates that are part of the binary, together with the
//! contract.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use include_dir::{Dir, DirEntry, include_dir};

static TEMPLATES: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/templates");
/// The contract, and what is packed with it for the registry of each language. Projects get copies.
static CONTRACT: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../../wit");
/// In templates, the place of the project's name.
const NAME: &str = "{{name}}";
/// In templates, the place of the name that cargo gives its output.
const CRATE: &str = "{{crate}}";
/// As short as a plugin's name may be.
const NAME_CHARS_MIN: usize = 3;
/// As long as crate names on the registry may be; also what fits the other tools.
const NAME_CHARS_MAX: usize = 64;

/// A language that there is a template for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum Language {
    /// cargo, for `wasm32-wasip2`.
    #[default]
    Rust,
    /// componentize-py.
    Python,
    /// componentize-js.
    Javascript,
    /// go, and jco for the component.
    Go,
    /// clang, and jco for the component.
    C,
}

/// A name that a plugin, a crate, a Go module, an npm package and a file may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProjectName(String);

/// A name that is not allowed for one of these.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a name for a plugin and its project: use {NAME_CHARS_MIN} to {NAME_CHARS_MAX} \
        lower-case letters, digits, '-' or '_', with a letter first"
)]
pub(crate) struct InvalidProjectName(String);

/// A project to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Project {
    /// Its name, which becomes the plugin's.
    pub(crate) name: ProjectName,
    /// Its language.
    pub(crate) language: Language,
}

/// Why a project was not made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScaffoldError {
    /// Existing files are never overwritten.
    #[error("{} exists and is not empty: choose another folder with --at", .0.display())]
    Occupied(PathBuf),
    /// A file or folder could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl ProjectName {
    /// Checks that the text can name a project, a file and a package.
    pub(crate) fn new(text: &str) -> Result<Self, InvalidProjectName> {
        let is_inner =
            |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
        let is_good = (NAME_CHARS_MIN..=NAME_CHARS_MAX).contains(&text.len())
            && text.starts_with(|c: char| c.is_ascii_lowercase())
            && text.chars().all(is_inner);
        if is_good {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidProjectName(text.to_owned()))
        }
    }
}

impl Language {
    fn folder(self) -> &'static str {
        match self {
            Self::Rust => "rust",
            Self::Python => "python",
            Self::Javascript => "javascript",
            Self::Go => "go",
            Self::C => "c",
        }
    }

    /// Where in a project a file of the contract lies; `None` if projects in this language do not
    /// have it.
    fn path_in_project(self, path: &Path) -> Option<PathBuf> {
        if has_extension(path, &["wit"]) {
            return self.needs_wit(path).then(|| Path::new("wit").join(path));
        }
        let with_the_contract = |parts: &[&str]| {
            let is_part = parts.iter().any(|part| path.starts_with(part));
            is_part.then(|| Path::new("wit").join(path))
        };
        match self {
            Self::Rust => with_the_contract(&["src", "layout/src"]),
            Self::Go => with_the_contract(&["go", "go.mod"]),
            Self::Javascript => with_the_contract(&["javascript", "package.json"]),
            Self::Python => {
                let source = path.strip_prefix("python").ok()?;
                let is_run = has_extension(source, &["py"]);
                is_run.then(|| source.to_owned())
            }
            Self::C => {
                let source = path.strip_prefix("c").ok()?;
                has_extension(source, &["c", "h"]).then(|| Path::new("shardmill").join(source))
            }
        }
    }

    /// jco uses the only world that exists, even if another is named, so a project that keeps state
    /// adds to that world; in Go, when it is built.
    fn needs_wit(self, path: &Path) -> bool {
        path != Path::new("stateful.wit") || self != Self::C
    }
}

fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    extensions
        .iter()
        .any(|extension| path.extension().is_some_and(|found| found == *extension))
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rust => "Rust",
            Self::Python => "Python",
            Self::Javascript => "JavaScript",
            Self::Go => "Go",
            Self::C => "C",
        })
    }
}

impl Project {
    /// Every file, by its path in the project.
    pub(crate) fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut files = Vec::new();
        if let Some(template) = TEMPLATES.get_dir(self.language.folder()) {
            for (path, content) in files_of(template) {
                let path = path.strip_prefix(template.path()).unwrap_or(path);
                let path = path.display().to_string().replace(NAME, &self.name.0);
                files.push((PathBuf::from(path), self.named(content)));
            }
        }
        for (path, content) in files_of(&CONTRACT) {
            files.extend(
                self.language
                    .path_in_project(path)
                    .map(|place| (place, content.to_vec())),
            );
        }
        files
    }

    /// Creates `folder` and everything in it.
    pub(crate) fn write(&self, folder: &Path) -> Result<(), ScaffoldError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| ScaffoldError::Write { path, source }
        };
        fs::create_dir_all(folder).map_err(failed(folder))?;
        if fs::read_dir(folder)
            .map_err(failed(folder))?
            .next()
            .is_some()
        {
            return Err(ScaffoldError::Occupied(folder.to_owned()));
        }
        for (path, content) in self.files() {
            let path = folder.join(path);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent).map_err(failed(parent))?;
            }
            fs::write(&path, content).map_err(failed(&path))?;
        }
        Ok(())
    }

    fn named(&self, content: &[u8]) -> Vec<u8> {
        match std::str::from_utf8(content) {
            Ok(text) => text
                .replace(NAME, &self.name.0)
                .replace(CRATE, &self.name.0.replace('-', "_"))
                .into_bytes(),
            Err(_) => content.to_vec(),
        }
    }
}

fn files_of<'a>(dir: &'a Dir<'static>) -> Vec<(&'a Path, &'a [u8])> {
    let mut files = Vec::new();
    for entry in dir.entries() {
        match entry {
            DirEntry::Dir(dir) => files.extend(files_of(dir)),
            DirEntry::File(file) => files.push((file.path(), file.contents())),
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::ValueEnum;

    use super::*;

    fn project(language: Language) -> Project {
        Project {
            name: ProjectName::new("alerts").unwrap(),
            language,
        }
    }

    #[test]
    fn each_language_has_a_project_with_a_readme_a_test_and_the_contract() {
        for language in Language::value_variants() {
            let files = project(*language).files();
            let paths: BTreeSet<String> = files
                .iter()
                .map(|(path, _)| path.display().to_string())
                .collect();
            assert_eq!(
                paths.len(),
                files.len(),
                "{language}: two files in one place"
            );
            let contract = [
                "wit/processor.wit",
                "wit/state.wit",
                "wit/deps/wasi-logging/logging.wit",
                "wit/deps/wasi-http/http.wit",
            ];
            for expected in ["README.md", ".gitignore"].into_iter().chain(contract) {
                assert!(
                    paths.contains(expected),
                    "{language} has no {expected}: {paths:?}"
                );
            }
            let has_test = files.iter().any(|(path, content)| {
                path.display().to_string().contains("test")
                    || String::from_utf8_lossy(content).contains("#[test]")
            });
            assert!(has_test, "{language}: no test");
            let text: String = files
                .iter()
                .map(|(_, content)| String::from_utf8_lossy(content))
                .collect();
            assert!(
                paths.iter().all(|path| !path.contains(NAME)),
                "{language}: {paths:?}"
            );
            assert!(
                text.contains("alerts") && !text.contains(NAME) && !text.contains(CRATE),
                "{language}"
            );
        }
    }

    #[test]
    fn a_rust_project_may_be_made_in_the_folder_of_another_workspace() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(
            folder.path().join("Cargo.toml"),
            "[workspace]\nmembers = []\n",
        )
        .unwrap();
        let path = folder.path().join("alerts");
        project(Language::Rust).write(&path).unwrap();
        let mut cargo = std::process::Command::new(env!("CARGO"));
        let read = cargo
            .args(["metadata", "--no-deps", "--offline", "--format-version=1"])
            .current_dir(path)
            .output();
        let read = read.unwrap();
        assert!(
            read.status.success(),
            "{}",
            String::from_utf8_lossy(&read.stderr)
        );
    }

    #[test]
    fn nothing_that_is_there_is_written_over() {
        let folder = tempfile::tempdir().unwrap();
        project(Language::Rust).write(folder.path()).unwrap();
        let readme = fs::read_to_string(folder.path().join("README.md")).unwrap();
        assert!(readme.starts_with("# alerts"), "{readme}");
        let again = project(Language::Go).write(folder.path()).unwrap_err();
        assert!(again.to_string().contains("is not empty"), "{again}");
        assert!(!folder.path().join("go.mod").exists());
    }

    #[test]
    fn a_name_does_for_every_tool_or_is_refused() {
        for good in ["abc", "alerts", "alerts-2", "order_totals"] {
            assert!(ProjectName::new(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "ab",
            "2alerts",
            "Alerts",
            "a b",
            "-a",
            "a/b",
            "..",
            "ä",
            &"a".repeat(65),
        ] {
            assert!(ProjectName::new(bad).is_err(), "{bad}");
        }
    }
}
