#!/usr/bin/env sh
# Makes plugin.h and plugin.c of the contract anew. Both are kept in git, so that nobody who writes a plugin needs this; to be run
# when a .wit file changes in more than its comments, which tests/tidy.rs sees by contract.md5. state.h and state.c are by hand.
#
# Without wit-bindgen on the PATH its command is compiled first, under target/, in a minute or two.
set -eu
cd "$(dirname "$0")"
version=0.63.0
tools=$(cd ../.. && pwd)/target/wit-bindgen-$version
if ! command -v wit-bindgen >/dev/null || [ "$(wit-bindgen --version)" != "wit-bindgen-cli $version" ]; then
    cargo install --quiet --locked --profile dev --root "$tools" "wit-bindgen-cli@$version" --no-default-features --features c
    PATH=$tools/bin:$PATH
fi
wit-bindgen c --world plugin --no-object-file --out-dir . ..
# The end of the file refers to an object with the component's type, which is put in by `jco embed` instead.
sed '/^\/\/ Ensure that the \*_component_type.o/,$d' plugin.c >plugin.c.new
mv plugin.c.new plugin.c
# All of the contract but comments and white space, the files in order of their paths.
(cd .. && find . -name '*.wit' | LC_ALL=C sort | xargs cat) | sed 's,//.*,,' | tr -d ' \n' | md5sum | cut -d' ' -f1 >contract.md5
