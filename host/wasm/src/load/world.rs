//! What a component imports and exports, read before compiling, and compared with the contract.

use wasmparser::{BinaryReaderError, Parser, Payload};

use crate::load::footprint::Footprint;
use crate::text::{SAID_BYTES_MAX, clean};
use crate::{BytesKind, LoadError};

/// The export that makes a component a record processor, and the version that this host knows.
pub(crate) const PROCESSOR: &str = "shardmill:processor/processor@0.1.0";
const PROCESSOR_UNVERSIONED: &str = "shardmill:processor/processor";
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
const GRANTED: [&str; 4] = [
    "shardmill:processor/types@0.1.",
    "shardmill:processor/context@0.1.",
    "shardmill:processor/emit@0.1.",
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
        let explain = |error: BinaryReaderError| malformed(&error, bytes.len());
        let (mut world, mut depth, mut functions) = (Self::default(), 0_usize, 0_u64);
        let mut footprint = Footprint::new();
        for payload in Parser::new(0).parse_all(bytes) {
            let payload = payload.map_err(explain)?;
            footprint.take(&payload).map_err(explain)?;
            match payload {
                Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
                Payload::End(_) => depth = depth.saturating_sub(1),
                Payload::ComponentImportSection(section) if depth == 0 => {
                    check(
                        "imports",
                        world.imports.len() as u64 + u64::from(section.count()),
                        NAMES_MAX,
                    )?;
                    for import in section {
                        world
                            .imports
                            .push(clean(import.map_err(explain)?.name.name, NAME_BYTES_MAX));
                    }
                }
                Payload::ComponentExportSection(section) if depth == 0 => {
                    check(
                        "exports",
                        world.exports.len() as u64 + u64::from(section.count()),
                        NAMES_MAX,
                    )?;
                    for export in section {
                        world
                            .exports
                            .push(clean(export.map_err(explain)?.name.name, NAME_BYTES_MAX));
                    }
                }
                Payload::CodeSectionStart { count, .. } => {
                    functions += u64::from(count);
                    check("functions", functions, FUNCTIONS_MAX)?;
                }
                Payload::CodeSectionEntry(body) => {
                    check(
                        "bytes in one function",
                        body.range().len() as u64,
                        FUNCTION_BYTES_MAX,
                    )?;
                }
                _ => {}
            }
        }
        world.instance_bytes = check_footprint(&footprint)?;
        Ok(world)
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
    let is_wasi_p2 = || {
        GRANTED_WASI
            .iter()
            .any(|package| import.starts_with(package))
            && import.contains("@0.2.")
    };
    GRANTED.iter().any(|granted| import.starts_with(granted))
        || GRANTED_DRAFTS.contains(&import)
        || is_wasi_p2()
}

fn check(what: &'static str, actual: u64, limit: u64) -> Result<(), LoadError> {
    if actual > limit {
        Err(LoadError::TooBig {
            what,
            actual,
            limit,
        })
    } else {
        Ok(())
    }
}

fn check_footprint(footprint: &Footprint) -> Result<u64, LoadError> {
    if footprint.passes_components() {
        // How many there will be of what could not be told.
        return Err(LoadError::Feature {
            message: "components that are passed to components".to_owned(),
        });
    }
    let bytes = footprint.bytes();
    check(
        "bytes in globals, functions and segments of all its instances, outside of its memories",
        bytes,
        INSTANCE_BYTES_MAX,
    )?;
    Ok(bytes)
}

fn malformed(error: &BinaryReaderError, size: usize) -> LoadError {
    let message = error.to_string();
    // Too long a string or list is also called out of bounds, and is no sign that bytes are
    // missing.
    let is_too_long = message.contains("string size") || message.contains("size is out of bounds");
    if !is_too_long && (message.contains("unexpected end") || message.contains("out of bounds")) {
        return LoadError::Truncated { size };
    }
    LoadError::Malformed {
        message: clean(&message, SAID_BYTES_MAX),
    }
}
