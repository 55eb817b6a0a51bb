#!/usr/bin/env bash
# Writes objects.json: what an API server of Kubernetes 1.37 makes at its first start, one object a line.
# KUBECONFIG names an API server that has just been started, without controllers.
# Left out: what the server sets (uid, versions, times, managed fields), and what depends on the server's
# own addresses and keys, which mod.rs makes.
set -euo pipefail
cd "$(dirname "$0")"
resources=namespaces,priorityclasses.scheduling.k8s.io,clusterroles.rbac.authorization.k8s.io,clusterrolebindings.rbac.authorization.k8s.io
resources+=,roles.rbac.authorization.k8s.io,rolebindings.rbac.authorization.k8s.io,apiservices.apiregistration.k8s.io
resources+=,prioritylevelconfigurations.flowcontrol.apiserver.k8s.io,flowschemas.flowcontrol.apiserver.k8s.io
kubectl get "$resources" --all-namespaces -o json | jq -cS '.items[]
  | del(.metadata.uid, .metadata.resourceVersion, .metadata.creationTimestamp, .metadata.generation, .metadata.managedFields)
  | del(.status.conditions[]?.lastTransitionTime)' > objects.json
