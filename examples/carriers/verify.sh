#!/usr/bin/env sh
# Runs a component on the embedded stack over flights, and compares the sums of its output with those of the flights.
#
#   verify.sh COMPONENT [FLIGHTS]
#
# Uses the manifest of the same name beside COMPONENT, if there is one. FLIGHTS are lines of JSON, plain or gzip; by default
# the sample. SHARDMILL names the host's binary, by default `shardmill`.
set -eu
component=$1
flights=${2:-$(dirname "$0")/../flights/sample.ndjson.gz}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# The answer, by a reader of the flights that shares nothing with the processors: each line is flat, and has
# each field once.
gzip -cdf "$flights" | sed 's/.*"dep_delay":\([^,}]*\).*"carrier":"\([^"]*\)".*/\2 \1/' |
    awk '{ flights[$1]++; if ($2 != "null") { delayed[$1]++; minutes[$1] += $2 } }
        END { for (name in flights) print name, flights[name], delayed[name] + 0, minutes[name] + 0 }' |
    sort >"$folder/wanted"

mkdir "$folder/plugins"
manifest=${component%.wasm}.toml
[ ! -f "$manifest" ] || cp "$manifest" "$folder/plugins/carriers.toml"
cp "$component" "$folder/plugins/carriers.wasm"
"${SHARDMILL:-shardmill}" dev --plugins "$folder/plugins" --data "$folder/data" \
    --feed "$flights" --key-field carrier --until-idle >"$folder/output"
grep '^{"carrier":' "$folder/output" | tr -d '{}"' | tr ':' ',' |
    awk -F, '{ flights[$2] += $4; delayed[$2] += $6; minutes[$2] += $8 }
        END { for (name in flights) print name, flights[name], delayed[name], minutes[name] }' |
    sort >"$folder/got"

diff "$folder/wanted" "$folder/got"
echo "$(wc -l <"$folder/got") carriers, $(awk '{ n += $2 } END { print n }' "$folder/got") flights: all sums are right"
