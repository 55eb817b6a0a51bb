//! A small cluster to ask about.

use serde_json::{Value, json};
use std::net::IpAddr;
use std::sync::Arc;
use sublet_dns::World;
use sublet_machinery::ObjectExt;

pub struct Cluster {
    services: Vec<Arc<Value>>,
    slices: Vec<Arc<Value>>,
    pods: Vec<Arc<Value>>,
}

impl World for Cluster {
    fn has_namespace(&self, name: &str) -> bool {
        ["default", "prod", "empty"].contains(&name)
    }

    fn service(&self, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.services.iter().find(|s| s.namespace() == namespace && s.name() == name).cloned()
    }

    fn slices(&self, namespace: &str, service: &str) -> Vec<Arc<Value>> {
        let belongs = |s: &&Arc<Value>| s.namespace() == namespace && s.label("kubernetes.io/service-name") == Some(service);
        self.slices.iter().filter(belongs).cloned().collect()
    }

    fn pod_at(&self, namespace: &str, address: IpAddr) -> Option<Arc<Value>> {
        let has_it = |p: &&Arc<Value>| p.array_at("/status/podIPs").iter().any(|ip| ip["ip"] == *address.to_string());
        self.pods.iter().filter(|p| p.namespace() == namespace).find(has_it).cloned()
    }

    fn services(&self) -> Vec<Arc<Value>> {
        self.services.clone()
    }

    fn all_slices(&self) -> Vec<Arc<Value>> {
        self.slices.clone()
    }

    fn revision(&self) -> u64 {
        1
    }
}

fn service(namespace: &str, name: &str, spec: Value) -> Arc<Value> {
    Arc::new(json!({"metadata": {"namespace": namespace, "name": name}, "spec": spec}))
}

fn slice(service: &str, kind: &str, ports: Value, endpoints: Value) -> Arc<Value> {
    Arc::new(json!({
        "metadata": {"namespace": "prod", "name": format!("{service}-x"), "labels": {"kubernetes.io/service-name": service}},
        "addressType": kind, "ports": ports, "endpoints": endpoints,
    }))
}

/// Services of all shapes in namespace `prod`.
pub fn cluster(external: &str) -> Cluster {
    let web = json!([{"name": "http", "port": 80, "protocol": "TCP"}, {"name": "dns", "port": 53, "protocol": "UDP"}]);
    let db = json!([{"name": "sql", "port": 5432, "protocol": "TCP"}]);
    let pod = |spec: Value, addresses: &[&str]| {
        let addresses: Vec<Value> = addresses.iter().map(|a| json!({"ip": a})).collect();
        Arc::new(json!({"metadata": {"namespace": "prod", "name": "db-2"}, "spec": spec, "status": {"podIPs": addresses}}))
    };
    Cluster {
        pods: vec![pod(json!({}), &["10.244.0.7", "fd00::7"]), pod(json!({"subdomain": "db"}), &["10.244.0.3", "127.0.0.1"])],
        services: vec![
            service(
                "default",
                "kubernetes",
                json!({"type": "ClusterIP", "clusterIP": "10.96.0.1", "ports": [{"name": "https", "port": 443, "protocol": "TCP"}]}),
            ),
            service(
                "prod",
                "web",
                json!({"type": "ClusterIP", "clusterIP": "10.96.0.5", "clusterIPs": ["10.96.0.5", "fd01::5"], "ports": web}),
            ),
            service("prod", "db", json!({"type": "ClusterIP", "clusterIP": "None", "ports": db})),
            service("prod", "none-ready", json!({"type": "ClusterIP", "clusterIP": "None", "ports": db})),
            service("prod", "unready", json!({"type": "ClusterIP", "clusterIP": "None", "publishNotReadyAddresses": true, "ports": db})),
            service("prod", "elsewhere", json!({"type": "ExternalName", "externalName": external})),
            service("prod", "alias", json!({"type": "ExternalName", "externalName": "db.prod.svc.cluster.local"})),
        ],
        slices: vec![
            slice("web", "IPv4", web.clone(), json!([{"addresses": ["10.244.0.9"], "conditions": {"ready": true}}])),
            slice(
                "db",
                "IPv4",
                db.clone(),
                json!([
                    {"addresses": ["10.244.0.1"], "conditions": {"ready": true}, "hostname": "db-0"},
                    {"addresses": ["10.244.0.2"], "conditions": {"ready": true}},
                    {"addresses": ["10.244.0.3"], "conditions": {"ready": false}, "hostname": "db-2"},
                ]),
            ),
            slice("db", "IPv6", db.clone(), json!([{"addresses": ["fd00::1"], "conditions": {"ready": true}, "hostname": "db-0"}])),
            slice("none-ready", "IPv4", db.clone(), json!([{"addresses": ["10.244.0.4"], "conditions": {"ready": false}}])),
            slice("unready", "IPv4", db, json!([{"addresses": ["10.244.0.5"], "conditions": {"ready": false}, "hostname": "u"}])),
        ],
    }
}
