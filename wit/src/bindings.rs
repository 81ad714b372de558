//! Generated from the WIT beside this crate; the rest of the crate is what a processor's author sees of it.

#![allow(missing_docs, unreachable_pub, clippy::pedantic, reason = "generated code")]

wit_bindgen::generate!({
    world: "plugin",
    path: ".",
    additional_derives: [Clone, PartialEq],
    pub_export_macro: true,
    export_macro_name: "export",
    default_bindings_module: "shardmill_processor::bindings",
    generate_all,
});
