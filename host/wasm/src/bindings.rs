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
    // What every plugin exports, and what some of them import besides.
    inline: "
        package shardmill:host@0.1.0;
        world plugin {
            include shardmill:processor/plugin@0.1.0;
            import shardmill:processor/bulk-emit@0.1.0;
        }
    ",
    world: "shardmill:host/plugin",
    ownership: Borrowing { duplicate_if_necessary: true },
    exports: { default: async },
});
