//! The pods of an installation, and what surrounds them.

use super::rights::{OPERATOR, SHARD};
use super::{API_PORTS, DNS_PORT_OFFSET, HEALTH_PORT, Options, STORES_PATH, Storage, USER, labels, pod_labels};
use serde_json::{Value, json};

pub fn objects(options: &Options) -> Vec<Value> {
    vec![
        namespace(options),
        operator(options),
        shard(options),
        shard_service(options),
        disruption(options, OPERATOR, "operator"),
        disruption(options, SHARD, "shard"),
        closed(options),
        open_ports(options),
        open_metrics(options),
    ]
}

fn metadata(options: &Options, name: &str, component: &str) -> Value {
    json!({"name": name, "namespace": options.namespace, "labels": labels(component)})
}

/// Pods here keep to the strictest standard, and the namespace holds them to it.
fn namespace(options: &Options) -> Value {
    let mut labels = labels("namespace");
    for mode in ["enforce", "audit", "warn"] {
        labels[format!("pod-security.kubernetes.io/{mode}")] = json!("restricted");
    }
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": options.namespace, "labels": labels}})
}

fn field(name: &str, path: &str) -> Value {
    json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}})
}

/// A container of ours: no root, no capabilities, nothing writable but its volumes.
fn container(options: &Options, name: &str, arguments: &[&str], requests: Value, limits: Value) -> Value {
    let mut args: Vec<Value> = arguments.iter().map(|a| json!(a)).collect();
    args.push(json!(format!("--v={}", options.verbosity.as_str().map_or_else(|| options.verbosity.to_string(), str::to_string))));
    let probe =
        |path: &str, period: u32| json!({"httpGet": {"path": path, "port": "health"}, "periodSeconds": period, "failureThreshold": 3});
    json!({
        "name": name, "image": options.image, "imagePullPolicy": "IfNotPresent",
        "args": args,
        "env": [
            field("POD_NAME", "metadata.name"), field("POD_NAMESPACE", "metadata.namespace"),
            {"name": "SUBLET_IMAGE", "value": options.image},
        ],
        "ports": [{"name": "health", "containerPort": HEALTH_PORT, "protocol": "TCP"}],
        "livenessProbe": probe("/healthz", 10), "readinessProbe": probe("/readyz", 2),
        "resources": {"requests": requests, "limits": limits},
        "securityContext": {
            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "privileged": false,
            "capabilities": {"drop": ["ALL"]},
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
    })
}

/// What pods of all components have in common.
pub fn pod_spec(account: &str, container: Value) -> Value {
    json!({
        "serviceAccountName": account, "enableServiceLinks": false,
        "securityContext": {
            "runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER,
            "fsGroupChangePolicy": "OnRootMismatch", "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
    })
}

fn operator(options: &Options) -> Value {
    let requests = json!({"cpu": "20m", "memory": "32Mi"});
    let mut spec = pod_spec(OPERATOR, container(options, "operator", &["operator"], requests, json!({"memory": "256Mi"})));
    // One node less must not mean no operator.
    spec["topologySpreadConstraints"] = json!([{
        "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": pod_labels("operator")},
    }]);
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": metadata(options, OPERATOR, "operator"),
        "spec": {
            "replicas": options.operators,
            "selector": {"matchLabels": pod_labels("operator")},
            "template": {"metadata": {"labels": labels("operator")}, "spec": spec},
        },
    })
}

fn shard(options: &Options) -> Value {
    let arguments = ["shard", &format!("--dir={STORES_PATH}")];
    let requests = json!({"cpu": "50m", "memory": "128Mi"});
    let mut container = container(options, "shard", &arguments, requests, json!({"memory": "2Gi"}));
    container["volumeMounts"] = json!([{"name": "stores", "mountPath": STORES_PATH}]);
    let mut spec = pod_spec(SHARD, container);
    spec["topologySpreadConstraints"] = json!([{
        "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": pod_labels("shard")},
    }]);
    let mut set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": metadata(options, SHARD, "shard"),
        "spec": {
            "replicas": options.shards, "serviceName": SHARD, "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": pod_labels("shard")},
            // The stores of tenants outlive their shard.
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
            "template": {"metadata": {"labels": labels("shard")}, "spec": spec},
        },
    });
    match &options.storage {
        Storage::Claim { class, size } => {
            let mut claim = json!({
                "metadata": {"name": "stores", "labels": labels("shard")},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}},
            });
            if !class.is_empty() {
                claim["spec"]["storageClassName"] = json!(class);
            }
            set["spec"]["volumeClaimTemplates"] = json!([claim]);
        }
        Storage::EmptyDir => set["spec"]["template"]["spec"]["volumes"] = json!([{"name": "stores", "emptyDir": {}}]),
    }
    set
}

/// Gives shards their names; tenants have Services of their own.
fn shard_service(options: &Options) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": metadata(options, SHARD, "shard"),
        "spec": {
            "clusterIP": "None", "publishNotReadyAddresses": true, "selector": pod_labels("shard"),
            "ports": [{"name": "health", "port": HEALTH_PORT, "protocol": "TCP", "targetPort": HEALTH_PORT}],
        },
    })
}

fn disruption(options: &Options, name: &str, component: &str) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": metadata(options, name, component),
        // A drain may go on, one pod at a time.
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": pod_labels(component)}},
    })
}

fn policy(options: &Options, name: &str, pods: Value, ingress: Option<Value>) -> Value {
    let mut policy = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": metadata(options, name, "network"),
        "spec": {"podSelector": pods, "policyTypes": ["Ingress"]},
    });
    if let Some(ingress) = ingress {
        policy["spec"]["ingress"] = ingress;
    }
    policy
}

fn closed(options: &Options) -> Value {
    policy(options, "sublet-closed", json!({}), None)
}

/// Tenants come from everywhere, to their API server and their name server alone.
fn open_ports(options: &Options) -> Value {
    let (first, last) = API_PORTS;
    let range = |protocol: &str, offset: u16| json!({"protocol": protocol, "port": first + offset, "endPort": last + offset});
    let ports = json!([range("TCP", 0), range("UDP", DNS_PORT_OFFSET), range("TCP", DNS_PORT_OFFSET)]);
    let pods =
        json!({"matchExpressions": [{"key": "app.kubernetes.io/component", "operator": "In", "values": ["shard", "control-plane"]}]});
    policy(options, "sublet-tenants", pods, Some(json!([{"ports": ports}])))
}

/// Whoever collects metrics says so on its namespace.
fn open_metrics(options: &Options) -> Value {
    let from = json!([{"namespaceSelector": {"matchLabels": {"sublet.dev/metrics": "allowed"}}}]);
    let ports = json!([{"protocol": "TCP", "port": HEALTH_PORT}]);
    policy(options, "sublet-metrics", json!({}), Some(json!([{"from": from, "ports": ports}])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn pods_are_restricted_and_nothing_is_left_open() {
        for object in objects(&Options::default()).iter().filter(|o| !o["spec"]["template"].is_null()) {
            let spec = &object["spec"]["template"]["spec"];
            assert_eq!(spec["securityContext"]["runAsNonRoot"], true);
            assert_eq!(spec["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
            let Value::Array(containers) = &spec["containers"] else { panic!("no containers") };
            for container in containers {
                let context = &container["securityContext"];
                assert_eq!((&context["allowPrivilegeEscalation"], &context["readOnlyRootFilesystem"]), (&json!(false), &json!(true)));
                assert_eq!(context["capabilities"], json!({"drop": ["ALL"]}));
                assert!(container["resources"]["requests"]["memory"].is_string() && container["livenessProbe"].is_object());
            }
        }
    }
}
