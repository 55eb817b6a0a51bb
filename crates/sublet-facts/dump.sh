#!/usr/bin/env bash
# dump.sh DIR: saves what the server of the current kubeconfig publishes about its APIs, as input for `sublet-facts`.
set -euo pipefail
dir=$1
save() { mkdir -p "$dir/$(dirname "$1")"; kubectl get --raw "/$1" >"$dir/$1.json"; }
save openapi/v2
save openapi/v3
kubectl get --raw /openapi/v3 | grep -o '"serverRelativeURL":"[^?"]*' | sed 's/.*":"\///' | while read -r path; do save "$path"; done
save api/v1
save apis
for version in $(kubectl api-versions | grep /); do save "apis/$version"; done
kubectl get --raw /apis/apiregistration.k8s.io/v1/apiservices >"$dir/apiservices.json"
