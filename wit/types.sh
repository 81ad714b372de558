#!/usr/bin/env sh
# Regenerates what type checkers see of the contract: stubs for Python, and modules for TypeScript. Both are in git and in the
# packages, so authors of plugins never need this. Run it when a .wit file changes; tests/tidy.rs notices by contract.md5,
# which c/generate.sh writes. Needs Python 3.10 or newer with venv, and Node 20 or newer.
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# A folder with nothing but the contract.
mkdir "$work/wit"
cp -R ./*.wit deps "$work/wit"

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check componentize-py==0.25.1
"$work/venv/bin/componentize-py" --quiet --wit-path "$work/wit" --world ticking-plugin bindings "$work/python"
rm -rf python/wit_world-stubs python/componentize_py_types-stubs
(cd "$work/python" && find wit_world -name '*.py') | while read -r module; do
    stub=python/wit_world-stubs/${module#wit_world/}i
    mkdir -p "$(dirname "$stub")"
    # Without spaces at the end of lines.
    sed 's/[[:space:]]*$//' "$work/python/$module" > "$stub"
done
mkdir python/componentize_py_types-stubs
sed 's/[[:space:]]*$//' "$work/python/componentize_py_types.py" > python/componentize_py_types-stubs/__init__.pyi

rm -rf javascript/contract
npx --yes @bytecodealliance/jco@1.24.0 guest-types "$work/wit" --quiet --world-name ticking-plugin --out-dir javascript/contract
find javascript/contract -type f | while read -r file; do
    sed 's/[[:space:]]*$//' "$file" > "$work/file"
    cat "$work/file" > "$file"
done
