#!/usr/bin/env sh
# Regenerates plugin.h and plugin.c from the contract. Both are in git, so authors of plugins never need this. Run it when a
# .wit file changes in more than its comments; tests/tidy.rs notices by contract.md5. state.h and state.c are written by hand.
#
# If wit-bindgen is not on the PATH, it is compiled first, under target/, in a minute or two.
set -eu
cd "$(dirname "$0")"
version=0.63.0
tools=$(cd ../.. && pwd)/target/wit-bindgen-$version
if ! command -v wit-bindgen >/dev/null || [ "$(wit-bindgen --version)" != "wit-bindgen-cli $version" ]; then
    cargo install --quiet --locked --profile dev --root "$tools" "wit-bindgen-cli@$version" --no-default-features --features c
    PATH=$tools/bin:$PATH
fi
wit-bindgen c --world plugin --no-object-file --out-dir . ..
# The end of the file refers to an object with the component's type, which `jco embed` adds instead.
sed '/^\/\/ Ensure that the \*_component_type.o/,$d' plugin.c >plugin.c.new
mv plugin.c.new plugin.c
# All of the contract except comments and white space, with the files ordered by path.
(cd .. && find . -name '*.wit' | LC_ALL=C sort | xargs cat) | sed 's,//.*,,' | tr -d ' \n' | md5sum | cut -d' ' -f1 >contract.md5
