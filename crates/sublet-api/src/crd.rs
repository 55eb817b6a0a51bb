//! The manifest of the `VirtualCluster` kind.

use serde_json::{Value, json};

/// Longest name of a virtual cluster: host objects of the cluster are named after it with a suffix.
const NAME_BYTES_MAX: usize = 50;

/// The CustomResourceDefinition, ready to be applied to a host.
pub fn virtual_cluster_crd() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "virtualclusters.sublet.dev"},
        "spec": {
            "group": crate::GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": "VirtualCluster", "listKind": "VirtualClusterList", "plural": "virtualclusters", "singular": "virtualcluster",
                "shortNames": ["vc"], "categories": ["sublet"],
            },
            "versions": [{
                "name": crate::VERSION, "served": true, "storage": true,
                "subresources": {"status": {}},
                "additionalPrinterColumns": columns(),
                "schema": {"openAPIV3Schema": schema()},
            }],
        },
    })
}

fn columns() -> Value {
    json!([
        {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status", "description": "Whether the cluster answers and syncs."},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        {"name": "Version", "type": "string", "jsonPath": ".status.version", "description": "The Kubernetes version that the cluster serves."},
        {"name": "Pods", "type": "integer", "jsonPath": ".status.usage.pods", "description": "Pods of the cluster on the host."},
        {"name": "Kubeconfig", "type": "string", "jsonPath": ".status.kubeconfigSecret", "description": "The Secret with the admin kubeconfig."},
        {"name": "Message", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].message", "description": "What the cluster waits for."},
        {"name": "Mode", "type": "string", "jsonPath": ".spec.controlPlane.mode", "priority": 1},
        {"name": "Endpoint", "type": "string", "jsonPath": ".status.endpoint", "priority": 1},
    ])
}

fn schema() -> Value {
    let mut spec = spec();
    fill_defaults(&mut spec);
    json!({
        "type": "object",
        "description": "A Kubernetes cluster of its own inside a namespace of this one.",
        "properties": {"spec": spec, "status": status()},
        "x-kubernetes-validations": [{
            "rule": format!("self.metadata.name.size() <= {NAME_BYTES_MAX}"),
            "message": format!("the name of a virtual cluster may have at most {NAME_BYTES_MAX} characters"),
        }],
    })
}

/// Gives every object a default made of the defaults of its fields. Rules are evaluated on a default
/// as it is written, before the defaults below it apply, so it has to be complete.
fn fill_defaults(schema: &mut Value) {
    let Some(properties) = schema["properties"].as_object_mut() else { return };
    let mut default = serde_json::Map::new();
    for (name, property) in properties.iter_mut() {
        fill_defaults(property);
        if let Some(value) = property.get("default") {
            default.insert(name.clone(), value.clone());
        }
    }
    // A reference without defaults stays absent; an object of optional parts is there.
    if schema["required"].is_null() {
        schema["default"] = Value::Object(default);
    }
}

fn spec() -> Value {
    json!({
        "type": "object",
        "properties": {
            "class": {"type": "string", "default": "", "maxLength": 253,
                "description": "The VirtualClusterClass with defaults and add-ons; empty: the operator's defaults."},
            "version": {"type": "string", "default": "1.37", "pattern": r"^1\.[0-9]{1,3}(\.[0-9]{1,3})?$",
                "description": "The Kubernetes version to serve."},
            "state": {"type": "string", "default": "Running", "enum": ["Running", "Paused", "Asleep"],
                "description": "Running; Paused: the API answers and nothing is synced; Asleep: nothing runs until a request wakes it."},
            "controlPlane": control_plane(),
            "layout": {"type": "string", "default": "Single", "enum": ["Single", "Mapped"],
                "description": "Single: all tenant namespaces in the namespace of this object; Mapped: a host namespace for each."},
            "weight": {"type": "integer", "format": "int32", "default": 1, "minimum": 1, "maximum": 100,
                "description": "Share of the host's attention beside other virtual clusters."},
            "podSecurity": {
                "type": "object",
                "properties": {"enforce": {"type": "string", "default": "baseline", "enum": ["privileged", "baseline", "restricted"],
                    "description": "The least Pod Security Standard of all pods of the tenant; labels of its namespaces may ask for more."}},
            },
            "audit": crate::settings::audit_schema(),
            "authentication": crate::settings::authentication_schema(),
            "kubeconfigs": kubeconfigs(),
            "access": {
                "type": "object",
                "description": "Host identities that may ask for kubeconfigs.",
                "properties": {"admins": identities(), "viewers": identities()},
            },
            "sync": {
                "type": "object",
                "properties": {"toHost": sync_rules(), "toTenant": sync_rules()},
            },
            "nodes": crate::nodes::schema(&label_selector()),
            "deletion": {
                "type": "object",
                "properties": {"volumes": {"type": "string", "default": "Delete", "enum": ["Delete", "Retain"],
                    "description": "What becomes of the volumes when the virtual cluster is deleted."}},
            },
        },
        "x-kubernetes-validations": [
            {"rule": "self.layout == oldSelf.layout", "message": "the layout of a virtual cluster cannot be changed", "fieldPath": ".layout", "reason": "FieldValueInvalid"},
            {"rule": "self.controlPlane.mode != 'Packed' || self.controlPlane.replicas == 1",
                "message": "a packed control plane has one replica", "fieldPath": ".controlPlane.replicas"},
            {"rule": "self.controlPlane.store.type == 'Etcd' || self.controlPlane.replicas == 1",
                "message": "several replicas need a store of type Etcd", "fieldPath": ".controlPlane.replicas"},
            {"rule": "self.controlPlane.mode != 'External' || has(self.controlPlane.kubeconfigSecretRef)",
                "message": "an external control plane needs kubeconfigSecretRef", "fieldPath": ".controlPlane"},
        ],
    })
}

fn control_plane() -> Value {
    json!({
        "type": "object",
        "properties": {
            "mode": {"type": "string", "default": "Packed", "enum": ["Packed", "Dedicated", "External"],
                "description": "Packed: many tenants in one process; Dedicated: pods of its own; External: an API server that exists already."},
            "replicas": {"type": "integer", "format": "int32", "default": 1, "minimum": 1, "maximum": 7},
            "store": {
                "type": "object",
                "properties": {
                    "type": {"type": "string", "default": "Embedded", "enum": ["Embedded", "Etcd"]},
                    "endpoints": {"type": "array", "maxItems": 16, "items": {"type": "string", "maxLength": 512}, "x-kubernetes-list-type": "set"},
                    "secretRef": secret_ref(),
                },
                "x-kubernetes-validations": [{
                    "rule": "self.type != 'Etcd' || (has(self.endpoints) && self.endpoints.size() > 0)",
                    "message": "a store of type Etcd needs endpoints", "fieldPath": ".endpoints",
                }, {
                    "rule": "self.type == oldSelf.type", "message": "the store of a virtual cluster cannot be changed in place", "fieldPath": ".type",
                }],
            },
            "expose": {
                "type": "object",
                "properties": {
                    "type": {"type": "string", "default": "ClusterIP", "enum": ["None", "ClusterIP", "NodePort", "LoadBalancer", "Ingress"]},
                    "hosts": {"type": "array", "maxItems": 32, "items": {"type": "string", "minLength": 1, "maxLength": 253}, "x-kubernetes-list-type": "set",
                        "description": "Names and addresses that the serving certificate covers beside the usual ones; with Ingress, the names that lead here."},
                    "ingressClassName": {"type": "string", "minLength": 1, "maxLength": 253,
                        "description": "The class of the Ingress; its controller must pass TLS through. Empty: the host's default."},
                },
                "x-kubernetes-validations": [{
                    "rule": "self.type != 'Ingress' || (has(self.hosts) && self.hosts.exists(h, !isIP(h)))",
                    "message": "exposure by Ingress needs at least one host that is a DNS name", "fieldPath": ".hosts",
                }, {
                    "rule": "self.type == 'Ingress' || !has(self.ingressClassName)",
                    "message": "ingressClassName is for exposure by Ingress", "fieldPath": ".ingressClassName",
                }],
            },
            "kubeconfigSecretRef": secret_ref(),
        },
    })
}

fn kubeconfigs() -> Value {
    let name = json!({"type": "string", "minLength": 1, "maxLength": 253});
    json!({
        "type": "array", "maxItems": 16, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["secretName"],
        "description": "Kubeconfigs beside the admin's, each in a Secret of its own in the namespace of this object.",
        "items": {
            "type": "object", "required": ["secretName"],
            "properties": {
                "secretName": name,
                "server": {"type": "string", "pattern": "^https://[^/]+$", "maxLength": 512,
                    "description": "The URL of the API server; the serving certificate covers its host. Empty: as pods of the host reach it."},
                "user": {"type": "string", "default": "admin", "minLength": 1, "maxLength": 64, "description": "The user name in the tenant."},
                "group": {"type": "string", "maxLength": 64,
                    "description": "The group in the tenant. Empty: for the user admin the one that may do everything, for others none."},
                "namespace": {"type": "string", "maxLength": 63, "description": "The namespace that commands use when they name none."},
                "validDays": {"type": "integer", "format": "int32", "default": 365, "minimum": 1, "maximum": 3650,
                    "description": "How long the certificate is good; the Secret has a new one in time."},
            },
        },
    })
}

fn secret_ref() -> Value {
    json!({
        "type": "object", "required": ["name"], "x-kubernetes-map-type": "atomic",
        "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 253}},
    })
}

fn identities() -> Value {
    json!({"type": "array", "maxItems": 128, "items": {"type": "string", "minLength": 1, "maxLength": 253}, "x-kubernetes-list-type": "set"})
}

fn sync_rules() -> Value {
    json!({
        "type": "object", "default": {}, "maxProperties": 64,
        "description": "By plural resource name.",
        "additionalProperties": {
            "type": "object",
            "properties": {
                "enabled": {"type": "boolean", "default": true},
                "selector": label_selector(),
            },
        },
    })
}

fn label_selector() -> Value {
    json!({
        "type": "object", "x-kubernetes-map-type": "atomic",
        "properties": {"matchLabels": {"type": "object", "maxProperties": 64, "additionalProperties": {"type": "string", "maxLength": 63}}},
    })
}

fn status() -> Value {
    let count = json!({"type": "integer", "format": "int64"});
    let text = json!({"type": "string"});
    json!({
        "type": "object",
        "properties": {
            "observedGeneration": count,
            "endpoint": text,
            "version": text,
            "kubeconfigSecret": text,
            "conditions": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
                "items": {
                    "type": "object",
                    "required": ["type", "status", "lastTransitionTime", "reason", "message"],
                    "properties": {
                        "type": {"type": "string", "maxLength": 316},
                        "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
                        "reason": {"type": "string", "maxLength": 1024},
                        "message": {"type": "string", "maxLength": 32768},
                        "lastTransitionTime": {"type": "string", "format": "date-time"},
                        "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
                    },
                },
            },
            "controlPlane": {
                "type": "object",
                "description": "Where the control plane runs, told by the operator.",
                "properties": {"pod": text, "namespace": text, "service": text, "apiPort": count, "dnsPort": count, "address": text, "keys": text, "external": text,
                    "from": {"type": "object", "description": "Who has the store, while it moves.", "properties": {"pod": text, "address": text, "port": count}}},
            },
            "plane": {
                "type": "object",
                "description": "What the process that runs the control plane says of it.",
                "properties": {
                    "pod": text, "phase": text, "synced": {"type": "boolean"}, "message": text, "off": text, "storeIdentity": text,
                    "namespaces": count, "pods": count, "objects": count, "bytes": count,
                },
            },
            "effective": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                "description": "What class and policy made of the spec."},
            "usage": {
                "type": "object",
                "properties": {"namespaces": count, "pods": count, "objects": count, "bytes": count, "cpu": text, "memory": text},
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_answer_the_first_question() {
        let crd = virtual_cluster_crd();
        let names: Vec<_> = crd["spec"]["versions"][0]["additionalPrinterColumns"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|c| c["priority"].is_null())
            .map(|c| c["name"].as_str().unwrap().to_string())
            .collect();
        assert_eq!(names, ["Ready", "Age", "Version", "Pods", "Kubeconfig", "Message"]);
    }

    #[test]
    fn the_default_of_spec_is_complete() {
        let crd = virtual_cluster_crd();
        let default = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["default"];
        assert_eq!(default["controlPlane"]["store"], json!({"type": "Embedded"}));
        assert_eq!(default["controlPlane"]["expose"], json!({"type": "ClusterIP"}));
        assert_eq!(default["sync"], json!({"toHost": {}, "toTenant": {}}));
        assert_eq!(default["layout"], "Single");
        assert!(default["controlPlane"]["kubeconfigSecretRef"].is_null());
    }
}
