//! Finds problems with the files, folders and variables that the configuration names, before a host
//! starts.

use std::collections::BTreeMap;
use std::path::Path;

use shardmill_core::plugin::SecretSource;
use shardmill_sinks::{FileSinkError, HeaderSource, SinkOptions};
use shardmill_wasm::{check_cache, check_secret};

use super::cache::CacheSetting;
use super::config::Config;
use super::token::read_token;
use crate::files;

impl Config {
    /// What a host with this configuration could not read, write or send. Makes nothing.
    pub(super) fn problems_of_files_and_variables(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for (name, sink) in &self.sinks {
            problems.extend(problems_of_sink(name, sink));
        }
        if let CacheSetting::At(folder) = &self.host.cache {
            problems.extend(cache_problem(folder));
        }
        if !self.sources.is_empty() {
            problems.extend(pulling_problem(&self.plugins));
        }
        if self.traces.is_enabled {
            problems.extend(problems_of_headers("traces.headers", &self.traces.headers));
        }
        for (name, secret) in &self.secrets {
            let source = &secret.source;
            if let Err(problem) = check_secret(source) {
                problems.push(format!("secrets.{name}: {source} {problem}"));
            }
        }
        for (host, login) in &self.pull.logins {
            let key = format!("pull.registries.{host}");
            problems.extend(password_problem(&key, &login.password));
        }
        problems.extend(self.problems_of_tokens());
        problems
    }

    fn problems_of_tokens(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.host.admin.is_some()
            && let Some(source) = &self.host.admin_token
        {
            problems.extend(token_problem("host.admin-token", source));
        }
        if self.console.is_enabled {
            for token in &self.console.tokens {
                let key = format!("console.tokens.{}", token.name);
                problems.extend(token_problem(&key, &token.source));
            }
        }
        problems
    }
}

/// What would keep a sink from being opened.
fn problems_of_sink(name: &str, sink: &SinkOptions) -> Vec<String> {
    match sink {
        SinkOptions::Http(options) => {
            problems_of_headers(&format!("sinks.{name}.headers"), &options.headers)
        }
        SinkOptions::File { path, .. } => {
            let problem = file_problem(path).map(|problem| format!("sinks.{name}: {problem}"));
            problem.into_iter().collect()
        }
        SinkOptions::Stdout { .. } | SinkOptions::Kinesis { .. } => Vec::new(),
    }
}

/// Why lines cannot be written to `path`. Makes nothing, and takes no lock: a host may run.
fn file_problem(path: &Path) -> Option<String> {
    if path.metadata().is_ok_and(|found| !found.is_file()) {
        let path = path.to_owned();
        return Some(FileSinkError::NotRegular { path }.to_string());
    }
    let error = files::check_file_to_write(path).err()?;
    Some(format!(
        "cannot write {}: {error}; name another `path`, or fix the folder",
        path.display()
    ))
}

/// Values that are not where the configuration says, or that HTTP does not allow.
fn problems_of_headers(key: &str, headers: &BTreeMap<String, HeaderSource>) -> Vec<String> {
    let mut problems = Vec::new();
    for (header, source) in headers {
        if let Err(problem) = source.header_value() {
            problems.push(format!("{key}: {header}: {problem}"));
        }
    }
    problems
}

/// Why a host cannot use `host.cache`.
fn cache_problem(folder: &Path) -> Option<String> {
    if let Err(error) = check_cache(folder) {
        return Some(format!("host.cache: {error}"));
    }
    let error = files::check_folder_to_write(folder).err()?;
    Some(format!(
        "host.cache: cannot write to {}: {error}",
        folder.display()
    ))
}

/// Why a host cannot keep what it pulls.
fn pulling_problem(plugins: &Path) -> Option<String> {
    let error = files::check_folder_to_write(plugins).err()?;
    Some(format!(
        "plugins: cannot write what is pulled to {}: {error}; name another folder, such as plugins \
            = [\"/var/lib/shardmill/plugins\", \"oci://...\"]",
        plugins.display()
    ))
}

fn token_problem(key: &str, source: &SecretSource) -> Option<String> {
    let error = read_token(source).err()?;
    Some(format!("{key}: {error}"))
}

fn password_problem(key: &str, source: &SecretSource) -> Option<String> {
    match source {
        SecretSource::Variable(name) => {
            let is_set = std::env::var_os(name).is_some();
            (!is_set).then(|| format!("{key}: the variable {name} is not set"))
        }
        SecretSource::File(path) => {
            let error = files::open(path).err()?;
            Some(format!("{key}: cannot read {}: {error}", path.display()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        let text = format!("stream = \"s\"\n{text}");
        let config = Config::parse(&text, Path::new(".")).unwrap();
        config.problems_of_files_and_variables()
    }

    #[test]
    fn what_cannot_be_written_or_sent_is_reported_as_the_start_would() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "two\nlines").unwrap();
        let below = file.join("below");
        let told = problems(&format!(
            "[host]\ncache = {below:?}\n[sinks.lines]\ntype = \"file\"\npath = {below:?}\n\
                [sinks.null]\ntype = \"file\"\npath = \"/dev/null\"\n\
                [sinks.out]\ntype = \"http\"\nurl = \"http://localhost:1\"\n\
                headers = {{ a = \"file:{}\" }}\n",
            file.display()
        ));
        let expected = [
            "sinks.lines: cannot write",
            "sinks.null: /dev/null is not a regular file",
            "sinks.out.headers: a: its value has",
            "host.cache: cannot use",
        ];
        assert_eq!(told.len(), expected.len(), "{told:?}");
        for (told, expected) in told.iter().zip(expected) {
            assert!(told.contains(expected), "{told}");
        }
    }

    #[test]
    fn a_folder_that_cannot_take_what_is_pulled_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let pulling = |into: &Path| {
            let text = format!("plugins = [{into:?}, \"oci://r.example/alerts:1\"]\n");
            let config = Config::parse(&format!("stream = \"s\"\n{text}"), Path::new(".")).unwrap();
            config.problems_of_files_and_variables()
        };
        assert_eq!(pulling(&folder.path().join("new")), Vec::<String>::new());
        let told = pulling(&file.join("below"));
        assert!(
            told.len() == 1 && told[0].contains("cannot write what is pulled to"),
            "{told:?}"
        );
    }

    #[test]
    fn a_secret_that_no_plugin_would_get_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        std::fs::write(&path, "abc\n").unwrap();
        let told = problems(&format!("[secrets.api]\nfile = {path:?}\n"));
        assert!(
            told.len() == 1 && told[0].contains("has less than 4 characters"),
            "{told:?}"
        );
        std::fs::write(&path, "abcd\n").unwrap();
        let text = format!("[secrets.api]\nfile = {path:?}\n");
        assert_eq!(problems(&text), Vec::<String>::new());
    }

    /// One token for the admin pages and for the console, which are served or not.
    fn with_token(path: &Path, served: bool) -> String {
        let admin = if served {
            "admin = \"127.0.0.1:0\"\n"
        } else {
            ""
        };
        format!(
            "[host]\n{admin}admin-token = {{ file = {path:?} }}\n[console]\n\
                enabled = {served}\n[console.tokens.ops]\nmay = [\"view\"]\nfile = {path:?}\n"
        )
    }

    #[test]
    fn a_token_that_a_host_would_refuse_at_its_start_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "a token with spaces").unwrap();
        let told = problems(&with_token(&path, true));
        assert_eq!(told.len(), 2, "{told:?}");
        for (told, key) in told.iter().zip(["host.admin-token", "console.tokens.ops"]) {
            assert!(
                told.contains(key) && told.contains("has 19 bytes"),
                "{told}"
            );
        }
        assert_eq!(
            problems(&with_token(&path, false)),
            Vec::<String>::new(),
            "nobody reads it"
        );
    }
}
