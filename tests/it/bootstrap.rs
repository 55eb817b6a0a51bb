//! What is there before anybody does anything, with all controllers on.

use crate::harness::{Client, Request, Server, eventually};
use std::collections::BTreeSet;
use tempfile::TempDir;

/// Resource, namespace, name: what a kube-apiserver of 1.37 has a minute after its start, with a kube-controller-manager.
const UPSTREAM: &str = include_str!("bootstrap-objects.tsv");

async fn path_of(client: &Client, group_resource: &str) -> String {
    match group_resource.split_once('.') {
        None => format!("/api/v1/{group_resource}"),
        Some((resource, group)) => {
            let version = client.send(&Request::get(format!("/apis/{group}"))).await.str("/preferredVersion/groupVersion");
            format!("/apis/{version}/{resource}")
        }
    }
}

/// Names that tell a digest of the server's own certificates or host name.
fn without_digest(name: &str) -> String {
    for prefix in ["apiserver-", "kubernetes.io:kube-apiserver-serving:"] {
        if name.strip_prefix(prefix).is_some_and(|rest| rest.len() >= 20) {
            let what = if prefix == "apiserver-" { "<hash of host name>" } else { "<hash>" };
            return format!("{prefix}{what}");
        }
    }
    name.to_string()
}

#[tokio::test]
async fn a_new_server_holds_what_upstreams_holds() {
    let folder = TempDir::new().unwrap();
    let server = Server::start(folder.path(), &["apiserver", "--store", "memory", "--dir"]);
    let client = server.client();
    let wanted: BTreeSet<String> = UPSTREAM.lines().map(String::from).collect();
    let resources: BTreeSet<&str> = wanted.iter().filter_map(|row| row.split('\t').next()).collect();
    let mut paths = Vec::new();
    for resource in resources {
        paths.push((resource, path_of(&client, resource).await));
    }
    let mut difference = Vec::new();
    eventually("the objects of upstream", async || {
        let mut found = BTreeSet::new();
        for (resource, path) in &paths {
            let list = client.send(&Request::get(path.as_str())).await.json();
            for object in list["items"].as_array().unwrap() {
                let part = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_string();
                found.insert(format!("{resource}\t{}\t{}", part("namespace"), without_digest(&part("name"))));
            }
        }
        let changed: Vec<String> = wanted.symmetric_difference(&found).cloned().collect();
        if changed != difference {
            eprintln!("{changed:#?}");
        }
        difference = changed;
        difference.is_empty()
    })
    .await;
}
