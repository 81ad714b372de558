//! shardmill wasm.
