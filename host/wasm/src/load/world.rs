//! What a component imports and exports, read before compiling, and compared with the contract.

use wasmparser::{
    BinaryReaderError, ComponentExportSectionReader, ComponentImportSectionReader, Parser, Payload,
};

use super::footprint::Footprint;
use crate::engine::wording;
use crate::text::{SAID_BYTES_MAX, clean};
use crate::{BytesKind, LoadError};

/// The export that makes a component a record processor, and the version that this host knows.
pub(crate) const PROCESSOR: &str = "shardmill:processor/processor@0.1.0";
const PROCESSOR_UNVERSIONED: &str = "shardmill:processor/processor";
/// The export of a record processor that keeps state.
pub(crate) const STATE: &str = "shardmill:processor/state@0.1.0";
/// The export of a record processor that takes a batch in one frame.
pub(crate) const BULK: &str = "shardmill:processor/bulk@0.1.0";
/// The export of a record processor that is called when time has passed.
pub(crate) const TICKER: &str = "shardmill:processor/ticker@0.1.0";
/// Versions that are compatible with ours: same major and minor, as semver has it below 1.0.
const COMPATIBLE: &str = "0.1.";

/// Functions in all modules. CPython and its libraries have some 30,000; compile time grows with
/// the number.
const FUNCTIONS_MAX: u64 = 200_000;
/// Bytes of one function. CPython's interpreter loop is near 200 KB; compile time grows faster than
/// the size.
const FUNCTION_BYTES_MAX: u64 = 2 << 20;

/// Bytes that one instance may take outside of its memories and tables. CPython's 30,000 functions
/// come to one MiB.
const INSTANCE_BYTES_MAX: u64 = 16 << 20;
/// Imports, and exports, of the whole component. Tools write some dozens.
const NAMES_MAX: u64 = 10_000;
/// Bytes of one of their names that are kept. The longest that a contract has is near 60.
const NAME_BYTES_MAX: usize = 1 << 10;

/// Imports that the host links, by prefix; what follows is the rest of a compatible version.
const GRANTED: [&str; 5] = [
    "shardmill:processor/types@0.1.",
    "shardmill:processor/context@0.1.",
    "shardmill:processor/emit@0.1.",
    "shardmill:processor/bulk-emit@0.1.",
    "shardmill:processor/metrics@0.1.",
];
/// Drafts match in full only.
const GRANTED_DRAFTS: [&str; 2] = [
    "wasi:logging/logging@0.1.0-draft",
    "wasi:config/store@0.2.0-rc.1",
];
/// Packages of WASI 0.2. Files and sockets, and HTTP without a grant, are there in name only, with
/// nothing behind them but denials: most toolchains import them unasked.
const GRANTED_WASI: [&str; 7] = [
    "wasi:io/",
    "wasi:clocks/",
    "wasi:random/",
    "wasi:cli/",
    "wasi:filesystem/",
    "wasi:sockets/",
    "wasi:http/",
];
/// What a component imports that makes HTTP requests, before its version.
const SENDS_HTTP: &str = "wasi:http/outgoing-handler@";

/// The outside of a component.
#[derive(Debug, Default)]
pub(crate) struct World {
    pub(crate) imports: Vec<String>,
    pub(crate) exports: Vec<String>,
    /// Bytes of one instance outside of its memories and tables.
    pub(crate) instance_bytes: u64,
}

impl World {
    /// Reads the whole file without compiling; refuses what is not a component or far too big.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, LoadError> {
        match BytesKind::of(bytes) {
            BytesKind::Component => {}
            kind => return Err(LoadError::NotAComponent { kind }),
        }
        let mut reading = Reading::new(bytes.len());
        for part in Parser::new(0).parse_all(bytes) {
            let part = part.map_err(|error| reading.malformed(&error))?;
            reading.take(part)?;
        }
        reading.end()
    }

    /// Compares with the contract, by name.
    pub(crate) fn check(&self) -> Result<(), LoadError> {
        match self.processor_version() {
            Some(version) if version.starts_with(COMPATIBLE) => {}
            Some(version) => {
                let found = format!("{PROCESSOR_UNVERSIONED}@{version}");
                return Err(LoadError::WrongVersion {
                    found,
                    expected: PROCESSOR,
                });
            }
            None => {
                return Err(LoadError::NoProcessor {
                    expected: PROCESSOR,
                    exports: self.exports.clone(),
                });
            }
        }
        let imports: Vec<String> = self
            .imports
            .iter()
            .filter(|name| !is_granted(name))
            .cloned()
            .collect();
        if imports.is_empty() {
            Ok(())
        } else {
            Err(LoadError::UnknownImports { imports })
        }
    }

    /// Whether it can make HTTP requests, if it is granted any host.
    pub(crate) fn sends_http(&self) -> bool {
        self.imports.iter().any(|name| name.starts_with(SENDS_HTTP))
    }

    /// The version of the contract that it was built against; empty if it names none.
    pub(crate) fn processor_version(&self) -> Option<&str> {
        self.exports
            .iter()
            .find_map(|name| version_of_processor(name))
    }
}

/// Whether an export of this name is the record processor.
pub(crate) fn is_processor(export: &str) -> bool {
    version_of_processor(export).is_some()
}

fn version_of_processor(export: &str) -> Option<&str> {
    let rest = export.strip_prefix(PROCESSOR_UNVERSIONED)?;
    match rest.strip_prefix('@') {
        Some(version) => Some(version),
        None => rest.is_empty().then_some(""),
    }
}

/// Whether the host links this import.
pub(crate) fn is_granted(import: &str) -> bool {
    GRANTED.iter().any(|granted| import.starts_with(granted))
        || GRANTED_DRAFTS.contains(&import)
        || is_wasi_p2(import)
}

fn is_wasi_p2(import: &str) -> bool {
    import.contains("@0.2.")
        && GRANTED_WASI
            .iter()
            .any(|package| import.starts_with(package))
}

/// A file that is being read, part by part.
struct Reading {
    /// Bytes of the whole file.
    size: usize,
    world: World,
    footprint: Footprint,
    /// How many modules and components the next part is inside of; 0 is the component itself.
    depth: usize,
    functions: u64,
}

impl Reading {
    fn new(size: usize) -> Self {
        Self {
            size,
            world: World::default(),
            footprint: Footprint::new(),
            depth: 0,
            functions: 0,
        }
    }

    fn take(&mut self, part: Payload<'_>) -> Result<(), LoadError> {
        let counted = self.footprint.take(&part);
        counted.map_err(|error| self.malformed(&error))?;
        match part {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => self.depth += 1,
            Payload::End(_) => self.depth = self.depth.saturating_sub(1),
            Payload::ComponentImportSection(section) if self.depth == 0 => {
                self.add_imports(section)?;
            }
            Payload::ComponentExportSection(section) if self.depth == 0 => {
                self.add_exports(section)?;
            }
            Payload::CodeSectionStart { count, .. } => {
                self.functions += u64::from(count);
                check("functions", self.functions, FUNCTIONS_MAX)?;
            }
            Payload::CodeSectionEntry(body) => {
                let bytes = body.range().len() as u64;
                check("bytes in one function", bytes, FUNCTION_BYTES_MAX)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn add_imports(&mut self, section: ComponentImportSectionReader<'_>) -> Result<(), LoadError> {
        let count = self.world.imports.len() as u64 + u64::from(section.count());
        check("imports", count, NAMES_MAX)?;
        for import in section {
            let import = import.map_err(|error| self.malformed(&error))?;
            let name = clean(import.name.name, NAME_BYTES_MAX);
            self.world.imports.push(name);
        }
        Ok(())
    }

    fn add_exports(&mut self, section: ComponentExportSectionReader<'_>) -> Result<(), LoadError> {
        let count = self.world.exports.len() as u64 + u64::from(section.count());
        check("exports", count, NAMES_MAX)?;
        for export in section {
            let export = export.map_err(|error| self.malformed(&error))?;
            let name = clean(export.name.name, NAME_BYTES_MAX);
            self.world.exports.push(name);
        }
        Ok(())
    }

    fn end(self) -> Result<World, LoadError> {
        if self.footprint.passes_components() {
            // The file does not show how many instances of them there will be.
            return Err(LoadError::Feature {
                message: "components that are passed to components".to_owned(),
            });
        }
        let instance_bytes = self.footprint.bytes();
        check(
            "bytes in globals, functions and segments of all its instances, outside of its memories",
            instance_bytes,
            INSTANCE_BYTES_MAX,
        )?;
        Ok(World {
            instance_bytes,
            ..self.world
        })
    }

    fn malformed(&self, error: &BinaryReaderError) -> LoadError {
        let message = error.to_string();
        if wording::ends_early(&message) {
            return LoadError::Truncated { size: self.size };
        }
        LoadError::Malformed {
            message: clean(&message, SAID_BYTES_MAX),
        }
    }
}

fn check(what: &'static str, actual: u64, limit: u64) -> Result<(), LoadError> {
    if actual > limit {
        return Err(LoadError::TooBig {
            what,
            actual,
            limit,
        });
    }
    Ok(())
}
