//! `shardmill check`.

mod refusals;
mod report;
mod running;
mod settings;

use anyhow::{Context, bail};
use indicatif::HumanBytes;
use shardmill_config::{CacheSetting, Config};
use shardmill_serve::cache_of_command;
use shardmill_serve::component::Found;
use shardmill_serve::engine::runtime_options;
use shardmill_wasm::{Inspection, Metering, Runtime, RuntimeOptions};

use self::refusals::refusals;
use self::report::{ComponentReport, Report};
use self::running::Running;
use self::settings::{STREAM, Settings};
use crate::author::arguments::config_or_default;
use crate::cli::CheckArgs;
use crate::output::{Page, print, print_json};

/// Twice the default of what a host takes.
const INSPECTED_BYTES_MAX: u64 = 64 << 20;

/// What was found about a component.
struct Examined {
    inspection: Inspection,
    settings: Settings,
    /// Why the host would refuse it; empty if it would run.
    problems: Vec<String>,
    /// Only with `--running`.
    running: Option<Running>,
}

pub(crate) async fn execute(args: &CheckArgs) -> anyhow::Result<()> {
    let examined = Examined::by(args).await?;
    if args.output.json {
        print_json(&examined.report())?;
    } else {
        print(examined.as_text().trim_end());
    }
    if examined.problems.is_empty() {
        return Ok(());
    }
    bail!(
        "the host would refuse {}: {}",
        args.file.display(),
        examined.problems.join("; and ")
    )
}

impl Examined {
    async fn by(args: &CheckArgs) -> anyhow::Result<Self> {
        let named = args.connection.config.as_deref();
        let host = config_or_default(named, STREAM)?;
        // A component that is too large for the host is shown as well, if compiling it is not too
        // expensive.
        let bytes_max = host.host.plugin_bytes_max.max(INSPECTED_BYTES_MAX);
        let component = Found::read(&args.file, bytes_max)?;
        let runtime = runtime(&host)?;
        let inspection = runtime.inspect(component.bytes.clone()).await?;
        let settings = Settings::read(&args.file, &host, named.is_some())?;
        let running = if args.running {
            let named = named.is_some().then_some(&host);
            Some(Running::ask(args, named, &settings, &inspection, &runtime).await?)
        } else {
            None
        };
        let problems = refusals(&args.file, &component, &host, &settings, &inspection);
        Ok(Self {
            inspection,
            settings,
            problems,
            running,
        })
    }

    fn report(&self) -> Report<'_> {
        Report {
            component: ComponentReport::of(&self.inspection),
            settings: self.settings.report(),
            problems: &self.problems,
            running: self.running.as_ref().map(Running::report),
        }
    }

    fn as_text(&self) -> String {
        let mut page = Page::new(9);
        write_component(&mut page, &self.inspection);
        if self.inspection.sends_http && !self.settings.asks_http() {
            page.line(
                "grant",
                format_args!("{:48} not requested: its requests are denied", "http"),
            );
        }
        self.settings.write(&mut page);
        if let Some(running) = &self.running {
            running.write(&mut page);
        }
        for problem in &self.problems {
            page.line("problem", problem);
        }
        let would_run = self.problems.is_empty();
        let verdict = if would_run {
            "would be run"
        } else {
            "would be refused"
        };
        page.line("verdict", verdict);
        page.into_text()
    }
}

/// The host's engine, without its cache, so that what the host keeps is left alone: the cache is
/// that of commands.
fn runtime(host: &Config) -> anyhow::Result<Runtime> {
    let place = match &host.host.cache {
        CacheSetting::At(_) => &CacheSetting::Unset,
        said => said,
    };
    let options = RuntimeOptions {
        cache_dir: cache_of_command(place),
        ..runtime_options(host, Metering::Deadline).context("cannot find the compiler")?
    };
    Runtime::new(options).context("cannot start the Wasm engine")
}

fn write_component(page: &mut Page, inspection: &Inspection) {
    page.line("what", inspection.kind);
    if let Some(contract) = &inspection.contract {
        page.line("contract", format_args!("shardmill:processor@{contract}"));
    }
    page.line("size", HumanBytes(inspection.size as u64));
    page.line("digest", inspection.digest.as_str());
    if let Some(time) = inspection.compile_time {
        page.line(
            "compiled",
            format_args!("in {:.1} ms", time.as_secs_f64() * 1e3),
        );
    }
    for import in &inspection.imports {
        let granted = if import.is_granted {
            "granted"
        } else {
            "NOT GRANTED"
        };
        page.line("imports", format_args!("{:48} {granted}", import.name));
    }
    for export in &inspection.exports {
        page.line("exports", export);
    }
}
