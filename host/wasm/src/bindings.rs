//! Generated from the WIT. Parameters are borrowed, so that records are lowered straight from the
//! batch's buffers.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::pedantic,
    reason = "generated code"
)]

wasmtime::component::bindgen!({
    path: "../../wit",
    world: "plugin",
    ownership: Borrowing { duplicate_if_necessary: true },
    exports: { default: async },
});
