//! Generated from the WIT beside this crate; the rest of the crate is the part that authors see.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::pedantic,
    reason = "generated code"
)]

wit_bindgen::generate!({
    world: "plugin",
    path: ".",
    additional_derives: [Clone, PartialEq],
    pub_export_macro: true,
    export_macro_name: "export",
    default_bindings_module: "shardmill_processor::bindings",
    generate_all,
});

/// The optional exports, as a separate world: a component that names them in
/// [`plugin!`](crate::plugin) has both.
pub mod state {
    wit_bindgen::generate!({
        inline: "
            package shardmill:guest@0.1.0;
            world keeps-state {
                export shardmill:processor/state@0.1.0;
            }
        ",
        path: ".",
        with: { "shardmill:processor/types@0.1.0": crate::bindings::shardmill::processor::types },
        pub_export_macro: true,
        export_macro_name: "export_state",
        default_bindings_module: "shardmill_processor::bindings::state",
    });
}

/// Calls because time has passed, for a component that names them in [`plugin!`](crate::plugin).
pub mod ticker {
    wit_bindgen::generate!({
        inline: "
            package shardmill:guest@0.1.0;
            world takes-ticks {
                export shardmill:processor/ticker@0.1.0;
            }
        ",
        path: ".",
        with: { "shardmill:processor/types@0.1.0": crate::bindings::shardmill::processor::types },
        pub_export_macro: true,
        export_macro_name: "export_ticker",
        default_bindings_module: "shardmill_processor::bindings::ticker",
    });
}

/// The faster way in and out, which [`plugin!`](crate::plugin) offers for every processor.
pub mod bulk {
    wit_bindgen::generate!({
        inline: "
            package shardmill:guest@0.1.0;
            world takes-frames {
                import shardmill:processor/bulk-emit@0.1.0;
                export shardmill:processor/bulk@0.1.0;
            }
        ",
        path: ".",
        with: {
            "shardmill:processor/types@0.1.0": crate::bindings::shardmill::processor::types,
            "shardmill:processor/emit@0.1.0": crate::bindings::shardmill::processor::emit,
        },
        pub_export_macro: true,
        export_macro_name: "export_bulk",
        default_bindings_module: "shardmill_processor::bindings::bulk",
        generate_all,
    });
}
