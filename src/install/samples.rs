//! Virtual clusters to begin with.

use serde_json::{Value, json};

/// File names, what they show, and the objects in them.
pub fn samples() -> Vec<(&'static str, &'static str, Vec<Value>)> {
    let namespace = |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let cluster = |namespace: &str, name: &str, spec: Value| {
        json!({
            "apiVersion": "sublet.dev/v1alpha1", "kind": "VirtualCluster",
            "metadata": {"name": name, "namespace": namespace}, "spec": spec,
        })
    };
    vec![
        ("virtualcluster.yaml", "An empty spec is a good cluster.", vec![namespace("team-a"), cluster("team-a", "alpha", json!({}))]),
        (
            "nodeport.yaml",
            "Reached from outside at a port of every node, under names that the certificate covers.",
            vec![
                namespace("team-b"),
                cluster(
                    "team-b",
                    "beta",
                    json!({"controlPlane": {"expose": {"type": "NodePort", "hosts": ["beta.example.org"]}}, "weight": 2}),
                ),
            ],
        ),
        (
            "ingress.yaml",
            "Reached by name through an Ingress that passes TLS through, with a kubeconfig for a pipeline beside the admin's.",
            vec![
                namespace("team-d"),
                cluster(
                    "team-d",
                    "delta",
                    json!({
                        "controlPlane": {"expose": {"type": "Ingress", "hosts": ["delta.example.org"]}},
                        "kubeconfigs": [{"secretName": "pipeline", "server": "https://delta.example.org", "user": "pipeline", "group": "deployers"}],
                    }),
                ),
            ],
        ),
        (
            "paused.yaml",
            "Its API answers, and nothing is synced until `state` is Running; volumes outlive the cluster.",
            vec![namespace("team-c"), cluster("team-c", "gamma", json!({"state": "Paused", "deletion": {"volumes": "Retain"}}))],
        ),
    ]
}
