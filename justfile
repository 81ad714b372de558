# The daily commands. `just` lists them (https://just.systems); without just, each is one line to copy.

# Lists the commands.
default:
    @just --list --unsorted

# Builds the binary: target/debug/shardmill.
build:
    cargo build

# Runs the tests, or those whose names contain NAME.
test NAME="":
    cargo test --workspace {{NAME}}

# Runs the decisions' own tests: seconds.
test-core:
    cargo test -p shardmill-core

# Runs scenarios on the real binary, such as `just scenarios swaps`.
scenarios NAME="":
    cargo test --workspace --test scenarios -- {{NAME}}

# Tests the console's pages in Chromium, on the binary that is built. Needs Node.
console:
    tests/console/run

# Runs seeds of the simulator, such as `just simulate 0..1000`, or `just simulate 43`.
simulate SEEDS="0..200":
    cargo run --bin simulate -- --seeds {{SEEDS}}

# Checks format, lints and house rules.
lint:
    cargo fmt --all --check
    .ci/lints
    cargo test --workspace --test tidy

# Builds the documentation of the code: target/doc.
docs:
    RUSTDOCFLAGS="-D warnings" cargo doc --no-deps

# Changes core in small ways, to see whether its tests notice. Needs cargo-mutants.
mutants MINUTES="10":
    tests/mutants/run --minutes {{MINUTES}}

# Takes away what the real binary needs, and watches it recover. All drills, or those named.
drills *NAMES:
    tests/drills/run {{NAMES}}

# Fires each alarm by its fault, on the binary that is built. Needs Prometheus, or Debian to get it from.
alarms *NAMES:
    tests/alarms/run {{NAMES}}

# Checks licences, sources, advisories and duplicates of dependencies. Needs cargo-deny.
deny:
    cargo deny check

# Checks the chart, manifests, alarms, dashboards and the unit with the tools that read them; gets what is not installed.
deploy:
    deploy/check

# Makes a release of the tagged commit: dist/. See release/README.md.
release *OPTIONS:
    release/build {{OPTIONS}}

# Runs everything that must hold before a change lands.
ci:
    .ci/run
