//! What was acknowledged stays, however the process ends.

use crate::harness::{Client, Request, Server, eventually};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const CLIENTS: usize = 6;
/// Acknowledged writes after which the process is killed, while more are on their way.
const WRITES: usize = 150;

fn start(folder: &Path) -> Server {
    Server::start(folder, &["apiserver", "--controllers", "", "--dir"])
}

/// What a client was told about one object: its uid and the newest count, or that it is gone.
#[derive(Clone, Debug, PartialEq)]
enum Told {
    There { uid: String, count: u64 },
    Gone,
}

#[derive(Default)]
struct Ledger {
    objects: Mutex<BTreeMap<String, Told>>,
    newest_version: AtomicUsize,
    writes: AtomicUsize,
}

impl Ledger {
    fn note(&self, name: &str, told: Told, version: &str) {
        self.objects.lock().unwrap().insert(name.into(), told);
        self.newest_version.fetch_max(version.parse().unwrap_or(0), Ordering::SeqCst);
        self.writes.fetch_add(1, Ordering::SeqCst);
    }
}

/// Creates, counts up and deletes objects until the server does not answer any more.
async fn write(client: Client, ledger: Arc<Ledger>, prefix: String) {
    for round in 0.. {
        let name = format!("{prefix}-{round}");
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"count": "0"}});
        let Ok(created) = client.try_send(&Request::post(MAPS, &body)).await else { return };
        assert_eq!(created.status.as_u16(), 201, "{}", created.text());
        let uid = created.str("/metadata/uid");
        ledger.note(&name, Told::There { uid: uid.clone(), count: 0 }, &created.str("/metadata/resourceVersion"));
        for count in 1..3 {
            let patch = Request::patch("merge", format!("{MAPS}/{name}"), &json!({"data": {"count": count.to_string()}}));
            let Ok(patched) = client.try_send(&patch).await else { return };
            ledger.note(&name, Told::There { uid: uid.clone(), count }, &patched.str("/metadata/resourceVersion"));
        }
        if round % 3 == 0 {
            // From here on either is true, until there is an answer.
            ledger.objects.lock().unwrap().remove(&name);
            let Ok(deleted) = client.try_send(&Request::delete(format!("{MAPS}/{name}"))).await else { return };
            assert_eq!(deleted.status.as_u16(), 200, "{}", deleted.text());
            ledger.note(&name, Told::Gone, "0");
        }
    }
}

async fn list(client: &Client) -> (BTreeMap<String, Told>, usize) {
    let list = client.send(&Request::get(MAPS)).await.json();
    let told = |object: &Value| Told::There {
        uid: object["metadata"]["uid"].as_str().unwrap().into(),
        count: object["data"]["count"].as_str().and_then(|c| c.parse().ok()).unwrap_or(0),
    };
    let items = list["items"].as_array().unwrap().iter();
    let objects = items.map(|o| (o["metadata"]["name"].as_str().unwrap().to_string(), told(o))).collect();
    (objects, list["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_while_clients_write() {
    let folder = TempDir::new().unwrap();
    let ledger = Arc::new(Ledger::default());
    let mut server = start(folder.path());
    let kubeconfig = std::fs::read_to_string(&server.kubeconfig).unwrap();
    for life in 0..3 {
        let wanted = ledger.writes.load(Ordering::SeqCst) + WRITES;
        let writers: Vec<_> =
            (0..CLIENTS).map(|c| tokio::spawn(write(server.client(), ledger.clone(), format!("life{life}-client{c}")))).collect();
        eventually("enough was written", async || ledger.writes.load(Ordering::SeqCst) >= wanted).await;
        server.kill();
        for writer in writers {
            writer.await.unwrap();
        }
        server = start(folder.path());
        assert_eq!(std::fs::read_to_string(&server.kubeconfig).unwrap(), kubeconfig, "the kubeconfig stays good");
        let (objects, revision) = list(&server.client()).await;
        for (name, told) in ledger.objects.lock().unwrap().iter() {
            match (told, objects.get(name)) {
                (Told::Gone, found) => assert_eq!(found, None, "{name} was deleted"),
                (Told::There { uid, count }, Some(Told::There { uid: found, count: newer })) => {
                    assert_eq!(uid, found, "{name} is the same object");
                    assert!(newer >= count, "{name}: {count} was acknowledged, {newer} is there");
                }
                (told, found) => panic!("{name}: {told:?} was acknowledged, {found:?} is there"),
            }
        }
        let newest = ledger.newest_version.load(Ordering::SeqCst);
        assert!(revision >= newest, "revision {revision} after {newest} was told");
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("after{life}")}});
        let after: usize = server.client().send(&Request::post(MAPS, &body)).await.str("/metadata/resourceVersion").parse().unwrap();
        assert!(after > newest, "revisions rise: {after} after {newest}");
    }
}

#[tokio::test]
async fn stops_cleanly_with_a_watch_open() {
    let folder = TempDir::new().unwrap();
    let server = start(folder.path());
    let client = server.client();
    let watch = client.open(&Request::get(format!("{MAPS}?watch=true"))).await.unwrap();
    assert_eq!(watch.status().as_u16(), 200);
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"}});
    let uid = client.send(&Request::post(MAPS, &body)).await.str("/metadata/uid");
    assert_eq!(server.terminate().code(), Some(0));
    drop(watch);
    let server = start(folder.path());
    let again = server.client().send(&Request::get(format!("{MAPS}/kept"))).await;
    assert_eq!(again.str("/metadata/uid"), uid);
    // The client of the first life is as good as one of the second: same port, same authority.
    assert_eq!(client.send(&Request::get("/readyz")).await.text(), "ok");
}

#[tokio::test]
async fn memory_forgets_and_ports_are_taken_again() {
    let folder = TempDir::new().unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let arguments = ["apiserver", "--store", "memory", "--controllers", "", "--listen", &free, "--dir"];
    let server = Server::start(folder.path(), &arguments);
    let client = server.client();
    assert_eq!(client.authority, free);
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "fleeting"}});
    assert_eq!(client.send(&Request::post(MAPS, &body)).await.status.as_u16(), 201);
    server.kill();
    let _server = Server::start(folder.path(), &arguments);
    assert_eq!(client.send(&Request::get(format!("{MAPS}/fleeting"))).await.status.as_u16(), 404);
    assert_eq!(client.send(&Request::get("/api/v1/namespaces/default")).await.status.as_u16(), 200);
}

#[tokio::test]
async fn versions_that_are_gone() {
    let folder = TempDir::new().unwrap();
    let server = Server::start(folder.path(), &["apiserver", "--store", "memory", "--controllers", "", "--dir"]);
    let client = server.client();
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "big"}, "data": {"x": "y".repeat(900_000)}});
    let first = client.send(&Request::post(MAPS, &body)).await.str("/metadata/resourceVersion");
    let page = client.send(&Request::get("/api/v1/configmaps?limit=1")).await.str("/metadata/continue");
    // The log of changes has a bound in bytes; large ones push out the oldest soon.
    for round in 0..24 {
        let patch = json!({"data": {"round": round.to_string()}});
        assert_eq!(client.send(&Request::patch("merge", format!("{MAPS}/big"), &patch)).await.status.as_u16(), 200);
    }
    let (_, events) = client.lines(&Request::get(format!("{MAPS}?watch=true&resourceVersion={first}")), 1).await;
    assert_eq!(events[0]["type"], "ERROR");
    assert_eq!((&events[0]["object"]["code"], &events[0]["object"]["reason"]), (&json!(410), &json!("Expired")));
    let exact = client.send(&Request::get(format!("{MAPS}?resourceVersion={first}&resourceVersionMatch=Exact"))).await;
    assert_eq!((exact.status.as_u16(), exact.str("/reason")), (410, "Expired".into()), "{}", exact.text());
    let expired = client.send(&Request::get(format!("/api/v1/configmaps?limit=1&continue={page}"))).await;
    assert_eq!((expired.status.as_u16(), expired.str("/reason")), (410, "Expired".into()), "{}", expired.text());
    // The answer says how to go on, without consistency.
    let token = expired.str("/metadata/continue");
    let rest = client.send(&Request::get(format!("/api/v1/configmaps?continue={token}"))).await;
    assert_eq!(rest.status.as_u16(), 200, "{}", rest.text());
}
