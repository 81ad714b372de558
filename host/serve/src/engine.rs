//! The Wasm engine as this binary runs it: the binary compiles everything itself, in a separate
//! process.

use std::path::{Path, PathBuf};

use shardmill_config::Config;
use shardmill_wasm::{Compiler, CompilerProgram, Endpoint, HttpOptions, Metering, RuntimeOptions};

use crate::hardening;
use crate::own_cache::cache_of_command;

/// The subcommand that compiles, as the command line has it.
pub const COMPILE_COMMAND: &str = "compile-component";

/// What the engine is started with.
pub fn runtime_options(config: &Config, metering: Metering) -> std::io::Result<RuntimeOptions> {
    // The compiler in another process makes code that is metered by deadlines.
    let compiler = if metering == Metering::Deadline {
        compiler()?
    } else {
        Compiler::InProcess
    };
    Ok(RuntimeOptions {
        cache_dir: config.host.cache.folder().ok().map(Path::to_owned),
        limits: config.limits,
        compiler,
        compile_limits: config.compile,
        instances_memory_bytes: config.host.instances_memory_bytes,
        http: http_options(config),
        metering,
        ..RuntimeOptions::default()
    })
}

/// What the engine of a command is started with that is no host: it has a cache by default, too.
pub fn command_options(config: &Config) -> std::io::Result<RuntimeOptions> {
    Ok(RuntimeOptions {
        cache_dir: cache_of_command(&config.host.cache),
        ..runtime_options(config, Metering::Deadline)?
    })
}

/// The rules for plugins' requests. No plugin may reach what this host serves, or its tables'
/// endpoints.
fn http_options(config: &Config) -> HttpOptions {
    let endpoints = [&config.aws.kinesis_endpoint, &config.aws.dynamodb_endpoint];
    let aws = endpoints.into_iter().flatten();
    let aws = aws.filter_map(|url| endpoint_of(url));
    let admin = config.host.admin.map(|address| Endpoint {
        // Unspecified: every address of this machine.
        host: address.ip().to_string(),
        port: address.port(),
    });
    HttpOptions {
        limits: config.http.limits,
        addresses: config.http.addresses.clone(),
        never: aws.chain(admin).collect(),
    }
}

fn endpoint_of(url: &str) -> Option<Endpoint> {
    let url = reqwest::Url::parse(url).ok()?;
    Some(Endpoint {
        host: url.host_str()?.to_owned(),
        port: url.port_or_known_default()?,
    })
}

fn compiler() -> std::io::Result<Compiler> {
    let mut args = vec![COMPILE_COMMAND.into()];
    if !hardening::is_wall_wanted() {
        args.push("--no-wall".into());
    }
    Ok(Compiler::Child(CompilerProgram {
        program: own_binary()?,
        args,
    }))
}

/// The running binary. On Linux a link that leads to it though the file was replaced since: another
/// version's compiler would write code that this one does not find.
pub fn own_binary() -> std::io::Result<PathBuf> {
    const OWN: &str = "/proc/self/exe";
    if Path::new(OWN).exists() {
        Ok(OWN.into())
    } else {
        std::env::current_exe()
    }
}
