//! Many clients at once: what only one may win, one wins, and what all may do, all do.

use crate::api::{config_map, pod};
use crate::harness::{Client, PATIENCE, Request, Response, Server};
use futures::future::join_all;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use tempfile::TempDir;

const CLIENTS: usize = 24;
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn start(folder: &TempDir) -> Server {
    Server::start(folder.path(), &["apiserver", "--store", "memory", "--controllers", "", "--dir"])
}

async fn at_once(client: &Client, request: impl Fn(usize) -> Request) -> Vec<Response> {
    let requests: Vec<Request> = (0..CLIENTS).map(request).collect();
    join_all(requests.iter().map(|request| client.send(request))).await
}

fn count(responses: &[Response], status: u16) -> usize {
    responses.iter().filter(|r| r.status.as_u16() == status).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_name_for_many_creators() {
    let folder = TempDir::new().unwrap();
    let server = start(&folder);
    let client = server.client();
    let created = at_once(&client, |i| Request::post(MAPS, &config_map("wanted", json!({"by": i.to_string()})))).await;
    assert_eq!((count(&created, 201), count(&created, 409)), (1, CLIENTS - 1));
    let winner = created.iter().find(|r| r.status.as_u16() == 201).unwrap();
    assert_eq!(client.send(&Request::get(format!("{MAPS}/wanted"))).await.json(), winner.json());
    let generated = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "x"}});
    let generated = at_once(&client, |_| Request::post(MAPS, &generated)).await;
    let names: BTreeSet<String> = generated.iter().map(|r| r.str("/metadata/name")).collect();
    assert_eq!(names.len(), CLIENTS);
    let deleted = at_once(&client, |_| Request::delete(format!("{MAPS}/wanted"))).await;
    assert_eq!((count(&deleted, 200), count(&deleted, 404)), (1, CLIENTS - 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn patches_wait_for_each_other_and_versions_do_not() {
    let folder = TempDir::new().unwrap();
    let server = start(&folder);
    let client = server.client();
    let created = client.send(&Request::post(MAPS, &config_map("shared", json!({"first": "x"})))).await.json();
    let patched = at_once(&client, |i| Request::patch("merge", format!("{MAPS}/shared"), &json!({"data": {format!("key{i}"): "x"}}))).await;
    assert!(patched.iter().all(|r| matches!(r.status.as_u16(), 200 | 409)), "{patched:?}");
    let data = client.send(&Request::get(format!("{MAPS}/shared"))).await.json()["data"].as_object().unwrap().len();
    assert_eq!(data, 1 + count(&patched, 200), "each patch that was acknowledged is there");
    let applied = at_once(&client, |i| {
        let object = config_map("shared", json!({format!("applied{i}"): "x"}));
        Request::patch("apply", format!("{MAPS}/shared?fieldManager=manager{i}"), &object)
    })
    .await;
    assert!(applied.iter().all(|r| matches!(r.status.as_u16(), 200 | 409)), "{applied:?}");
    let object = client.send(&Request::get(format!("{MAPS}/shared"))).await.json();
    let managers = object["metadata"]["managedFields"].as_array().unwrap().iter().filter(|m| m["operation"] == "Apply").count();
    assert_eq!(managers, count(&applied, 200));
    // Updates that name a version: the one that was right when it came, and no other.
    let mut stale = created;
    stale["metadata"]["resourceVersion"] = object["metadata"]["resourceVersion"].clone();
    let updated = at_once(&client, |i| {
        let mut update = stale.clone();
        update["data"] = json!({"winner": i.to_string()});
        Request::put(format!("{MAPS}/shared"), &update)
    })
    .await;
    assert_eq!((count(&updated, 200), count(&updated, 409)), (1, CLIENTS - 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quotas_and_addresses_are_not_given_twice() {
    let folder = TempDir::new().unwrap();
    let server = start(&folder);
    let client = server.client();
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    client.send(&Request::post("/api/v1/namespaces/default/serviceaccounts", &account)).await;
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "five"}, "spec": {"hard": {"pods": "5"}}});
    client.send(&Request::post(quotas, &quota)).await;
    let status = json!({"status": {"hard": {"pods": "5"}, "used": {"pods": "0"}}});
    client.send(&Request::patch("merge", format!("{quotas}/five/status"), &status)).await;
    let pods = at_once(&client, |i| Request::post("/api/v1/namespaces/default/pods", &pod(&format!("pod{i}")))).await;
    assert_eq!((count(&pods, 201), count(&pods, 403)), (5, CLIENTS - 5), "{pods:?}");
    let used = client.send(&Request::get(format!("{quotas}/five"))).await.str("/status/used/pods");
    assert_eq!(used, "5");
    let services = at_once(&client, |i| {
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": format!("service{i}")}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
        Request::post("/api/v1/namespaces/default/services", &service)
    })
    .await;
    let addresses: BTreeSet<String> = services.iter().map(|s| s.str("/spec/clusterIP")).collect();
    let ports: BTreeSet<String> = services.iter().map(|s| s.json()["spec"]["ports"][0]["nodePort"].to_string()).collect();
    assert_eq!((count(&services, 201), addresses.len(), ports.len()), (CLIENTS, CLIENTS, CLIENTS));
}

/// Watchers that start at any time see the same history, each change once and in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watchers_miss_nothing() {
    let folder = TempDir::new().unwrap();
    let server = start(&folder);
    let client = server.client();
    let start = client.send(&Request::get(MAPS)).await.str("/metadata/resourceVersion");
    let watch = |from: &str| {
        let request = Request::get(format!("{MAPS}?watch=true&resourceVersion={from}&timeoutSeconds={}", PATIENCE.as_secs()));
        let client = client.clone();
        tokio::spawn(async move { client.lines(&request, 3 * CLIENTS).await.1 })
    };
    let early = watch(&start);
    let writers = (0..CLIENTS).map(|i| {
        let client = &client;
        async move {
            let name = format!("map{i}");
            client.send(&Request::post(MAPS, &config_map(&name, json!({})))).await;
            client.send(&Request::patch("merge", format!("{MAPS}/{name}"), &json!({"data": {"a": "b"}}))).await;
            client.send(&Request::delete(format!("{MAPS}/{name}"))).await;
        }
    });
    join_all(writers).await;
    let late = watch(&start);
    let (early, late) = (early.await.unwrap(), late.await.unwrap());
    assert_eq!(early, late);
    let version = |event: &Value| event["object"]["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
    assert!(early.windows(2).all(|pair| version(&pair[0]) < version(&pair[1])), "versions rise");
    for i in 0..CLIENTS {
        let of_map = early.iter().filter(|e| e["object"]["metadata"]["name"] == format!("map{i}"));
        assert_eq!(of_map.map(|e| e["type"].as_str().unwrap()).collect::<Vec<_>>(), ["ADDED", "MODIFIED", "DELETED"]);
    }
}
