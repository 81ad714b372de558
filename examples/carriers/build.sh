#!/usr/bin/env sh
# Builds the same processor in the languages given, or in all: `build.sh python go`. It installs the tools, in the versions
# that the projects name, under target/carriers/tools; the components are target/carriers/carriers-LANG.wasm.
set -eu
cd "$(dirname "$0")"
mkdir -p ../../target/carriers/tools
out=$(cd ../../target/carriers && pwd)
tools=$out/tools

build_rust() {
    if command -v rustup >/dev/null && ! rustup target list --installed | grep -qx wasm32-wasip2; then
        rustup target add wasm32-wasip2
    fi
    cargo build --profile guest --target wasm32-wasip2 -p carriers
    cp "${CARGO_TARGET_DIR:-../../target}/wasm32-wasip2/guest/carriers.wasm" "$out/carriers-rust.wasm"
}

build_python() {
    [ -d "$tools/python" ] || python3 -m venv "$tools/python"
    "$tools/python/bin/pip" install --quiet -r python/requirements.txt
    (cd python && python3 -m unittest && "$tools/python/bin/componentize-py" \
        --wit-path ../../../wit --world plugin componentize app --output "$out/carriers-python.wasm")
    cp python/carriers.toml "$out/carriers-python.toml"
}

build_javascript() {
    (cd javascript && npm install --no-package-lock --no-audit --no-fund && npm test && npm run build)
    cp javascript/carriers.toml "$out/carriers-javascript.toml"
    cp javascript/carriers.wasm "$out/carriers-javascript.wasm"
}

build_go() {
    make -C go test carriers.wasm
    cp go/carriers.wasm "$out/carriers-go.wasm"
}

# clang and WASI's C library come from the system: see c/README.md.
build_c() {
    make -C c test carriers.wasm
    cp c/carriers.wasm "$out/carriers-c.wasm"
}

[ $# -gt 0 ] || set -- rust python javascript go c
for language in "$@"; do
    case $language in
    rust | python | javascript | go | c) ;;
    *) echo "build.sh: no project for $language; there are rust, python, javascript, go and c" >&2 && exit 2 ;;
    esac
    "build_$language"
    ls -l "$out/carriers-$language.wasm"
done
