#!/usr/bin/env sh
# Builds the earthquake processor as a WebAssembly component, drops it in plugins/, and runs it on the embedded stack:
# feeds 200 real earthquakes, prints an alert for each strong one, and exits once all are checkpointed.
set -eu
cd "$(dirname "$0")/../.."

if command -v rustup >/dev/null && ! rustup target list --installed | grep -qx wasm32-wasip2; then
    rustup target add wasm32-wasip2
fi
cargo build --profile guest --target wasm32-wasip2 -p earthquakes
# Copied under another name, then renamed, so that a running host never sees half a file.
cp "${CARGO_TARGET_DIR:-target}/wasm32-wasip2/guest/earthquakes.wasm" plugins/.earthquakes.new
mv plugins/.earthquakes.new plugins/earthquakes.wasm

# With the features of the whole workspace, as `cargo test` uses them: `cargo run` would rebuild a third of everything.
cargo build --bin shardmill
exec "${CARGO_TARGET_DIR:-target}/debug/shardmill" dev --feed examples/earthquakes/sample.ndjson --key-field properties.net --until-idle "$@"
