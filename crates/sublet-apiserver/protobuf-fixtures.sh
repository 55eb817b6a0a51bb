#!/usr/bin/env bash
# protobuf-fixtures.sh [MODULE@VERSION]: compares the protobuf transcoder with the fixtures in upstream's published Go module.
set -euo pipefail
module=${1:-k8s.io/api@v0.37.2}
folder=$(go mod download -json "$module" | sed -n 's/^\t"Dir": "\(.*\)",\?$/\1/p')
cargo run -q -p sublet-apiserver --example protobuf -- "$folder/testdata/HEAD"
