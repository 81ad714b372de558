//! Recognises what a file is by its bytes, before anything is compiled, so that the error for a
//! wrong file can say how to fix it.

use std::fmt;

const ELF: &[u8] = b"\x7fELF";
const WASM: &[u8] = b"\0asm";
/// The eight bytes that every core module starts with: magic, version 1, layer 0.
const CORE_MODULE: &[u8] = b"\0asm\x01\0\0\0";
/// The section by which wasmtime marks the ELF files that it writes.
const PRECOMPILED_MARK: &[u8] = b".wasmtime.engine";

/// What some bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BytesKind {
    /// A WebAssembly component: what a plugin must be.
    Component,
    /// A core module.
    CoreModule,
    /// A core module for WASI preview 1.
    Wasip1Module,
    /// WebAssembly's text format.
    WebAssemblyText,
    /// Native code that wasmtime compiled ahead of time.
    Precompiled,
    /// A native program or library.
    NativeBinary,
    /// WebAssembly of a layer or version that is not defined yet, or that is broken.
    UnknownWebAssembly,
    /// No bytes at all.
    Empty,
    /// The beginning of a WebAssembly file and no more.
    Truncated,
    /// A pointer of Git LFS instead of the file itself.
    GitLfsPointer,
    /// A gzip archive.
    Gzip,
    /// Something else.
    Unknown,
}

impl BytesKind {
    /// Looks at the first bytes, and at imports where two kinds start alike. Never fails.
    pub fn of(bytes: &[u8]) -> Self {
        match bytes {
            [] => Self::Empty,
            _ if bytes.len() < 8 && (bytes.starts_with(WASM) || WASM.starts_with(bytes)) => {
                Self::Truncated
            }
            _ if bytes.starts_with(CORE_MODULE) && imports_wasip1(bytes) => Self::Wasip1Module,
            _ if bytes.starts_with(CORE_MODULE) => Self::CoreModule,
            _ if wasmparser::Parser::is_component(bytes) => Self::Component,
            _ if bytes.starts_with(WASM) => Self::UnknownWebAssembly,
            _ if bytes.starts_with(ELF) && contains(bytes, PRECOMPILED_MARK) => Self::Precompiled,
            _ if bytes.starts_with(ELF) => Self::NativeBinary,
            _ if bytes.starts_with(b"version https://git-lfs") => Self::GitLfsPointer,
            _ if bytes.starts_with(b"\x1f\x8b") => Self::Gzip,
            _ if is_text(bytes) => Self::WebAssemblyText,
            _ => Self::Unknown,
        }
    }

    /// How to get a component from it, where there is a way.
    pub fn mend(self) -> &'static str {
        match self {
            Self::CoreModule => {
                "build it as a component: for Rust `cargo build --target wasm32-wasip2`, for \
                    others `wasm-tools component new`"
            }
            Self::Wasip1Module => {
                "build it for WASI 0.2: for Rust `--target wasm32-wasip2`, for others `wasm-tools \
                    component new --adapt`"
            }
            Self::WebAssemblyText => "assemble it first: `wasm-tools parse`",
            Self::Precompiled => {
                "give the component it was compiled from; native code is never loaded from a file"
            }
            Self::NativeBinary => "build for the target wasm32-wasip2 instead of this machine",
            Self::Empty | Self::Truncated => {
                "copy it again; write to a temporary name and rename, so that it is complete when it appears"
            }
            Self::GitLfsPointer => "fetch the file itself: `git lfs pull`",
            Self::Gzip => "unpack it first",
            Self::UnknownWebAssembly | Self::Unknown | Self::Component => {
                "give a WebAssembly component that exports shardmill:processor/processor"
            }
        }
    }
}

impl fmt::Display for BytesKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Component => "a component",
            Self::CoreModule => "a core WebAssembly module, not a component",
            Self::Wasip1Module => "a WASI preview 1 module, not a component",
            Self::WebAssemblyText => "WebAssembly text, not a compiled component",
            Self::Precompiled => "native code precompiled by wasmtime, not a component",
            Self::NativeBinary => "a native program or library, not WebAssembly",
            Self::UnknownWebAssembly => "WebAssembly of an unknown version",
            Self::Empty => "empty",
            Self::Truncated => "the beginning of a WebAssembly file; the rest is missing",
            Self::GitLfsPointer => "a Git LFS pointer, not the file itself",
            Self::Gzip => "a gzip archive",
            Self::Unknown => "not WebAssembly",
        })
    }
}

fn imports_wasip1(bytes: &[u8]) -> bool {
    let imports = wasmparser::Parser::new(0)
        .parse_all(bytes)
        .map_while(Result::ok)
        .find_map(|payload| match payload {
            wasmparser::Payload::ImportSection(section) => Some(section),
            _ => None,
        });
    let modules = imports
        .into_iter()
        .flat_map(wasmparser::SectionLimited::into_imports)
        .map_while(Result::ok);
    modules
        .into_iter()
        .any(|import| import.module.starts_with("wasi_snapshot_preview1"))
}

fn is_text(bytes: &[u8]) -> bool {
    let text = bytes.trim_ascii_start();
    [&b"(module"[..], b"(component", b";;", b"(;"]
        .iter()
        .any(|start| text.starts_with(start))
}

fn contains(bytes: &[u8], mark: &[u8]) -> bool {
    bytes.windows(mark.len()).any(|window| window == mark)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_wrong_file_is_named() {
        let wasip1 =
            wat::parse_str(r#"(module (import "wasi_snapshot_preview1" "fd_write" (func)))"#)
                .unwrap();
        let cases: [(&[u8], BytesKind); 14] = [
            (b"", BytesKind::Empty),
            (b"\0", BytesKind::Truncated),
            (b"\0asm\x01", BytesKind::Truncated),
            (b"\0asm\x01\0\0\0", BytesKind::CoreModule),
            (&wasip1, BytesKind::Wasip1Module),
            (b"\0asm\x0d\0\x01\0", BytesKind::Component),
            (b"\0asm\x77\0\x07\0", BytesKind::UnknownWebAssembly),
            (b"  \n(component)", BytesKind::WebAssemblyText),
            (
                b"\x7fELF\x02\x01\x01\0....\0.wasmtime.engine\0",
                BytesKind::Precompiled,
            ),
            (b"\x7fELF\x02\x01\x01\0", BytesKind::NativeBinary),
            (
                b"version https://git-lfs.github.com/spec/v1\n",
                BytesKind::GitLfsPointer,
            ),
            (b"\x1f\x8b\x08", BytesKind::Gzip),
            (b"#!/bin/sh", BytesKind::Unknown),
            (b"\xff\xfe\x00\x01\x02\x03\x04\x05\x06", BytesKind::Unknown),
        ];
        for (bytes, kind) in cases {
            assert_eq!(BytesKind::of(bytes), kind, "{bytes:?}");
        }
    }
}
